// SPDX-License-Identifier: Apache-2.0
//
// An autoencoder: a network that reproduces its input, here discs and squares of 16 x 16 pixels that this file draws,
// from a code of 32 numbers in its middle.
// Prints the loss every 200 steps and after each of four epochs, with the fraction of the pixels of other images that
// are reproduced, and three of these images next to their reproductions.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <vector>

#include <cupola/cupola.hpp>
#include <cupola/data/generator.hpp>
#include <cupola/host.hpp>
#include <cupola/layers/upsample2d.hpp>
#include <cupola/loss/binary_cross_entropy.hpp>
#include <cupola/metrics.hpp>

using namespace cupola;

struct Autoencoder : Sequential<Input<16, 16, 1>,                    //
                                Conv2d<16, 3>, ReLU, MaxPool2d<2>,   // 8 x 8 x 16
                                Conv2d<16, 3>, ReLU, MaxPool2d<2>,   // 4 x 4 x 16
                                Conv2d<2, 1>,                        // 4 x 4 x 2: the code
                                Conv2d<16, 3>, ReLU, Upsample2d<2>,  // 8 x 8 x 16
                                Conv2d<16, 3>, ReLU, Upsample2d<2>,  // 16 x 16 x 16
                                Conv2d<1, 3>> {};
static_assert(Autoencoder::output == Autoencoder::input);

/// A white disc or square on black, the input and the target.
struct Shapes {
    void operator()(std::int64_t, const RandomStream& random, const BatchSpan& sample) const {
        const auto words = random.words(0);
        const float size = 2 + 4 * uniform(words[0]), y = 4 + 8 * uniform(words[1]), x = 4 + 8 * uniform(words[2]);
        for (int i = 0; i < 256; ++i) {
            const float down = std::abs(static_cast<float>(i / 16) - y),
                        across = std::abs(static_cast<float>(i % 16) - x);
            const float distance = words[3] % 2 == 0 ? std::hypot(down, across) : std::max(down, across);
            sample.inputs()[i] = sample.data<float>("target")[i] = distance < size ? 1.0F : 0.0F;
        }
    }
};

int main() try {
    const Columns columns{{"input", ElementType::float32, {16, 16, 1}}, {"target", ElementType::float32, {16, 16, 1}}};
    Prefetch batches(Generator(columns, Shapes{}, {.batch_size = 32, .seed = 1}, 6400));
    FirstBatches validation(Generator(columns, Shapes{}, {.batch_size = 32, .seed = 3}), 16);
    DataParallel<Autoencoder, BinaryCrossEntropy, Adam, ConcatMean, Host> training(
        {.batch_size = 32, .seed = 1, .optimizer = {.learning_rate = 0.004}});
    fit(training, batches, {.epochs = 4, .validation = validation, .metrics = {metrics::BinaryAccuracy{}}},
        LogEvery{200});

    std::vector<float> images(3 * 256);
    BatchSpan memory(columns);
    for (std::size_t c = 0; c < 2; ++c) memory.set_data(c, reinterpret_cast<std::byte*>(images.data()));
    validation.source().fill(0, 0, 0, 3, memory);
    const std::vector<float> logits = training.predict({images.data(), 3});
    for (std::size_t row = 0; row < 3 * 16; ++row) {
        for (std::size_t i = 16 * row; i < 16 * (row + 1); ++i) std::fputs(images[i] > 0.5F ? "##" : " .", stdout);
        std::fputs("   ", stdout);
        for (std::size_t i = 16 * row; i < 16 * (row + 1); ++i) std::fputs(logits[i] > 0 ? "##" : " .", stdout);
        std::puts(row % 16 == 15 ? "\n" : "");
    }
} catch (const std::exception& error) {
    return std::fprintf(stderr, "%s\n", error.what()), 1;
}
