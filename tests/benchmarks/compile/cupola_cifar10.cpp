// SPDX-License-Identifier: Apache-2.0
// The file whose compilation is measured: the tutorial's network, its loss, the optimiser, replicas on several devices
// and the training loop, on data in memory. dlib_cifar10.cpp is the same in dlib.
#include <cstdint>
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

using Cifar10Loss = LossCollection<CrossEntropy<10>, WeightDecay<0.004, "local3", "local4">>;

void train(const std::vector<float>& images, const std::vector<std::int32_t>& labels) {
    const InMemory data(Cifar10Net::input_shape, images, labels, 10);
    DataParallel<Cifar10Net, Cifar10Loss, Sgd, ConcatMean, Host> training(
        {.replicas = 4, .devices = 2, .batch_size = 128, .seed = 1, .optimizer = {.learning_rate = 0.1}});
    InMemoryBatches batches(data, {.batch_size = 128, .replicas = 4, .seed = 1});
    fit(training, batches, {.steps = 1000}, LogEvery{10});
}
