// SPDX-License-Identifier: Apache-2.0
//
// Lesson 2: images from the files train/<class>/*.jpg and test/<class>/*.jpg of a folder or an archive (without an
// argument, the sample in examples/data/), augmented for training and prefetched by a separate thread.
// Prints what was read, the loss every 50 steps, and the accuracy on the test images.
#include <cstdio>
#include <exception>

#include <cupola/cupola.hpp>
#include <cupola/data/open.hpp>
#include <cupola/data/random_crop_flip.hpp>
#include <cupola/device/processors.hpp>
#include <cupola/host.hpp>

using namespace cupola;

struct Net : Sequential<Input<32, 32, 3>,                                 //
                        Conv2d<16, 5, stride(2)>, ReLU, MaxPool2d<3, 2>,  // 16 x 16, then 8 x 8
                        Conv2d<32, 3>, ReLU, MaxPool2d<3, 2>,             // 4 x 4
                        Flatten, Linear<10>> {};

int main(int argc, char** argv) try {
    const ImageData images = open_image_data(argc > 1 ? argv[1] : CUPOLA_SAMPLE_DATA, usable_processors().count());
    std::printf("%lld training and %lld test images of %lld classes\n", static_cast<long long>(images.train.size()),
                static_cast<long long>(images.test.size()), static_cast<long long>(images.train.class_count()));

    // A random crop of the image in a black frame, randomly flipped; the test images are unchanged.
    Prefetch batches(TrainingBatches(images.train, RandomCropFlip{}, {.batch_size = 64, .seed = 1}), {.workers = 1});
    EvaluationBatches test(images.test, ScaledPixels{}, 64);

    DataParallel<Net, CrossEntropy<10>, Sgd, ConcatMean, Host> training(
        {.batch_size = 64, .seed = 1, .optimizer = {.learning_rate = cosine(0.05, 300), .momentum = 0.9}});
    fit(training, batches, {.steps = 300}, LogEvery{50}, Progress{});
    std::printf("accuracy = %.3f\n", evaluate(training, test).accuracy());
} catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
