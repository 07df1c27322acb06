// SPDX-License-Identifier: Apache-2.0
// The tutorial's training step in Cupola, one replica on one host device, synthetic images already in memory; it talks
// to throughput.py as peers/protocol.py does. With `unfused` the fusion pass is off.
//
//   cifar10_step threads batch [unfused]       each line of standard input is a number of steps, each answer a line of
//   JSON
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>

using namespace cupola;

// clang-format off
struct Cifar10Net : Sequential<Input<24, 24, 3>,
    Named<"conv1", Conv2d<64, 5, weights(truncated_normal(0.05))>>, ReLU, MaxPool2d<3, 2>, LocalResponseNorm<4>,
    Named<"conv2", Conv2d<64, 5, weights(truncated_normal(0.05)), biases(constant(0.1))>>, ReLU, LocalResponseNorm<4>,
    MaxPool2d<3, 2>, Flatten,
    Named<"local3", Linear<384, weights(truncated_normal(0.04)), biases(constant(0.1))>>, ReLU,
    Named<"local4", Linear<192, weights(truncated_normal(0.04)), biases(constant(0.1))>>, ReLU,
    Named<"softmax_linear", Linear<10, weights(truncated_normal(1.0 / 192))>>> {};
// clang-format on
static_assert(Cifar10Net::output == Extents<10>{} && Cifar10Net::parameter_count == 1'068'298);

using Cifar10Loss = LossCollection<CrossEntropy<10>, WeightDecay<0.004, "local3", "local4">>;

namespace {

// Four batches in turn, as the peers have.
constexpr std::size_t batch_count = 4;

struct Synthetic {
    std::vector<float> samples;
    std::vector<std::int32_t> labels;
    std::int64_t batch;

    explicit Synthetic(std::int64_t size) : batch(size) {
        const auto images = batch_count * static_cast<std::size_t>(size);
        for (std::size_t i = 0; i < images * static_cast<std::size_t>(Cifar10Net::input_shape.size()); ++i) {
            const auto words = RandomStream(1, Purpose::user, 0, i).words(0);
            samples.push_back(static_cast<float>(standard_normal(words[0], words[1])));
        }
        for (std::size_t i = 0; i < images; ++i) {
            labels.push_back(static_cast<std::int32_t>(RandomStream(1, Purpose::user, 1, i).words(0)[0] % 10));
        }
    }

    BatchView operator()(std::int64_t step, int, HostContext&) const {
        const auto first = (static_cast<std::size_t>(step) % batch_count) * static_cast<std::size_t>(batch);
        return {samples.data() + first * static_cast<std::size_t>(Cifar10Net::input_shape.size()),
                labels.data() + first, batch};
    }
};

template <class Net>
int serve(int threads, std::int64_t batch, const char* how) {
    const Synthetic batches(batch);
    DataParallel<Net, Cifar10Loss, Sgd, ConcatMean, Host> training({.replicas = 1,
                                                                    .device = {.threads = threads},
                                                                    .batch_size = batch,
                                                                    .seed = 1,
                                                                    .optimizer = {.learning_rate = 0.01}});
    for (int i = 0; i < 5; ++i) training.step(batches);  // as protocol.py warms up
    std::printf("{\"name\": \"Cupola\", \"version\": \"%d.%d.%d\", \"how\": \"%s\"}\n", CUPOLA_VERSION_MAJOR,
                CUPOLA_VERSION_MINOR, CUPOLA_VERSION_PATCH, how);
    std::fflush(stdout);
    char line[64];
    while (std::fgets(line, sizeof line, stdin) != nullptr) {
        std::vector<double> seconds;
        double loss = 0;
        for (int i = std::atoi(line); i > 0; --i) {
            const auto start = std::chrono::steady_clock::now();
            loss = training.step(batches).loss;
            seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
        }
        std::printf("{\"seconds\": [");
        for (std::size_t i = 0; i < seconds.size(); ++i) std::printf("%s%.7f", i == 0 ? "" : ", ", seconds[i]);
        std::printf("], \"loss\": %.6f}\n", loss);
        std::fflush(stdout);
    }
    return 0;
}

}  // namespace

int main(int count, char** words) {
    if (count < 3) {
        std::fprintf(stderr, "usage: cifar10_step threads batch [unfused]\n");
        return 2;
    }
    const int threads = std::atoi(words[1]);
    const std::int64_t batch = std::atoll(words[2]);
    if (count > 3 && std::strcmp(words[3], "unfused") == 0) {
        return serve<Unfused<Cifar10Net>>(threads, batch, "one host device, unfused");
    }
    return serve<Cifar10Net>(threads, batch, "one host device");
}
