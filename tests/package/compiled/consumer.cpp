// SPDX-License-Identifier: Apache-2.0
//
// A program that links to cupola::compiled and uses most of its contents: each operation in both element types, the
// optimisers, schedules, data in memory and the log. What the library lacks is an error of the linker. The training
// itself has to work, too.
#include <cmath>
#include <cstdio>
#include <vector>

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>

using namespace cupola;

struct Net : Sequential<Input<8, 8, 3>, Conv2d<16, 3, no_bias>, BatchNorm2d<>, ReLU, MaxPool2d<3, 2>,
                        LocalResponseNorm<2>, Residual<Identity, Conv2d<16, 3>, ReLU, Conv2d<16, 3>>,
                        LocalResponseNorm<2>, MaxPool2d<3, 2>, Dropout<0.1>, AvgPool2d<2>, Flatten, Linear<10>> {};
struct Net16 : InPrecision<MixedBFloat16, Net> {};

template <class Network, class Optimizer>
bool trains(const InMemory& data, const Optimizer& optimizer) {
    DataParallel<Network, CrossEntropy<10>, Optimizer, ConcatMean, Host> training({.replicas = 2,
                                                                                   .devices = 2,
                                                                                   .batch_size = 8,
                                                                                   .seed = 1,
                                                                                   .optimizer = optimizer,
                                                                                   .moving_average = {.decay = 0.99}});
    InMemoryBatches batches(data, {.batch_size = 8, .replicas = 2, .seed = 1});
    fit(training, batches, {.steps = 3}, LogEvery(LogOptions{.every = 1, .parts = true}));
    std::printf("%s\n", to_string(training.memory()).c_str());
    return training.step() == 3 && std::isfinite(training.parameters()[0]);
}

int main() {
    std::vector<float> samples;
    std::vector<std::int32_t> labels;
    for (std::uint64_t i = 0; i < 64; ++i) {
        for (std::uint64_t k = 0; k < 8 * 8 * 3; ++k) {
            samples.push_back(uniform(RandomStream(1, RngDomain::user, 0, i * 192 + k).words(0)[0]));
        }
        labels.push_back(static_cast<std::int32_t>(i % 10));
    }
    const InMemory data(Net::input_shape, samples, labels, 10);
    if (!trains<Net>(data, Sgd{.learning_rate = exponential_decay(0.1, 10, 0.5), .momentum = 0.9})) return 1;
    const auto trains16 = [&] { return trains<Net16>(data, Adam{.learning_rate = cosine(0.01, 10)}); };
    if (__builtin_cpu_supports("avx512bf16") != 0) return trains16() ? 0 : 1;
    try {
        trains16();
    } catch (const DeviceError& error) {
        std::printf("%s\n", error.what());
        return 0;
    }
    return 1;
}
