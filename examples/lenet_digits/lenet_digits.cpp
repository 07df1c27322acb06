// SPDX-License-Identifier: Apache-2.0
//
// LeNet-5 (LeCun et al. 1998; with ReLU and max pooling) on the digits of MNIST: `lenet_digits FOLDER` reads
// train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte from FOLDER. A
// tenth of the training images is for validation, the same fraction of each digit.
// Prints what was read, the loss every 100 steps, that on the validation images after each of five epochs, and the
// accuracy on the test images.
#include <cstdio>
#include <exception>

#include <cupola/cupola.hpp>
#include <cupola/data/idx.hpp>
#include <cupola/data/split.hpp>
#include <cupola/data/standardization.hpp>
#include <cupola/host.hpp>

using namespace cupola;

struct LeNet5 : Sequential<Input<28, 28, 1>,                          //
                           Conv2d<6, 5>, ReLU, MaxPool2d<2>,          // 14 x 14 x 6
                           Conv2d<16, 5, valid>, ReLU, MaxPool2d<2>,  // 5 x 5 x 16
                           Flatten, Linear<120>, ReLU, Linear<84>, ReLU, Linear<10>> {};
static_assert(LeNet5::parameter_count == 61'706);

int main(int argc, char** argv) try {
    require(argc == 2 && *argv[1] != '-', "usage: lenet_digits FOLDER");
    const ImageData digits = read_mnist(argv[1]);
    const auto [images, held_back] = split(digits.train, {.validation = 0.1, .seed = 1, .stratified = true});
    std::printf("%lld images for training, %lld for validation, %lld for the test\n",
                static_cast<long long>(images.size()), static_cast<long long>(held_back.size()),
                static_cast<long long>(digits.test.size()));

    // One mean and deviation of all pixels, of the training images alone.
    const Standardization constants = Standardization::of(images);
    Prefetch batches(TrainingBatches(images, constants, {.batch_size = 50, .seed = 1}));
    EvaluationBatches validation(held_back, constants, 50);
    EvaluationBatches test(digits.test, constants, 50);

    DataParallel<LeNet5, CrossEntropy<10>, Adam, ConcatMean, Host> training(
        {.batch_size = 50, .seed = 1, .optimizer = {.learning_rate = 0.002}});
    fit(training, batches, {.epochs = 5, .validation = validation}, LogEvery{100});
    std::printf("accuracy = %.3f\n", evaluate(training, test).accuracy());
} catch (const std::exception& error) {
    return std::fprintf(stderr, "%s\n", error.what()), 1;
}
