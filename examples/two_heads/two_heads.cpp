// SPDX-License-Identifier: Apache-2.0
//
// A network with two heads on shapes that the program draws: one classifies the shape (square, disc or cross), the
// other finds its centre and half its width. It is trained by two replicas.
// Prints each head's loss every 100 steps, and its figures on 1024 shapes that the training has not seen.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>

#include <cupola/cupola.hpp>
#include <cupola/data/generator.hpp>
#include <cupola/host.hpp>
#include <cupola/loss/huber.hpp>
#include <cupola/metrics.hpp>
#include <cupola/net/named_values.hpp>

using namespace cupola;

struct TwoHeads : Sequential<Input<16, 16, 1>, Conv2d<8, 3>, ReLU, MaxPool2d<2>, Conv2d<16, 3>, ReLU, MaxPool2d<2>,
                             Flatten, Linear<64>, ReLU, Keep<"features">,  //
                             Linear<3>, Output<"kind">,                    // the logits of the kinds
                             From<"features">, Linear<3>, Output<"box">> {};

using Loss = Losses<At<"kind", CrossEntropy<3>>, At<"box", Weighted<10, Huber<>>>>;

/// A shape of any kind, anywhere in the image, with noise; the box is in units of the image's width.
void draw(std::int64_t, const RandomStream& random, const BatchSpan& sample) {
    const RandomWords<4> words = random.words(0);
    const auto kind = static_cast<std::int32_t>(uniform_below(words[0], 3));  // square, disc, cross
    const float size = 2 + 3 * uniform(words[1]);                             // half the width, in pixels
    const float x0 = size + (15 - 2 * size) * uniform(words[2]), y0 = size + (15 - 2 * size) * uniform(words[3]);
    for (std::uint32_t i = 0; i < 256; ++i) {
        const float x = std::abs(static_cast<float>(i % 16) - x0), y = std::abs(static_cast<float>(i / 16) - y0);
        const bool inside = kind == 0   ? x <= size && y <= size
                            : kind == 1 ? x * x + y * y <= size * size
                                        : (x <= 0.7F && y <= size) || (y <= 0.7F && x <= size);
        sample.inputs()[i] = (inside ? 1.0F : 0.0F) + 0.2F * (uniform(random.words(1 + i)[0]) - 0.5F);
    }
    sample.data<std::int32_t>("kind")[0] = kind;
    const std::array<float, 3> box{x0 / 16, y0 / 16, size / 16};
    std::copy(box.begin(), box.end(), sample.data<float>("box"));
}

int main() try {
    const Columns columns{{"input", ElementType::float32, {16, 16, 1}},
                          {"kind", ElementType::int32, {1}},
                          {"box", ElementType::float32, {3}}};
    Prefetch batches(Generator(columns, draw, {.batch_size = 32, .replicas = 2, .seed = 1}));
    FirstBatches test(Generator(columns, draw, {.batch_size = 32, .seed = 2}), 32);

    DataParallel<TwoHeads, Loss, Adam, ConcatMean, Host> training(
        {.replicas = 2, .batch_size = 32, .seed = 1, .optimizer = {.learning_rate = 0.003}});
    fit(training, batches, {.steps = 501}, LogEvery({.every = 100, .parts = true}));

    const Evaluation result = evaluate(training, test, metrics::At<"box", metrics::MeanAbsoluteError>{});
    for (const OutputEvaluation& head : result.losses)
        std::printf("%s: test loss = %.4f\n", head.name.c_str(), head.loss);
    std::printf("accuracy = %.3f\n", result.accuracy());
    std::printf("boxes are off by %.2f pixels\n", 16 * result.metric("box/mean_absolute_error"));
} catch (const std::exception& error) {
    return std::fprintf(stderr, "%s\n", error.what()), 1;
}
