// SPDX-License-Identifier: Apache-2.0
//
// export_onnx MODEL.onnx [CHECKPOINT]: a network with two heads as an ONNX file. The weights are those of a checkpoint,
// or of a short training on squares that the program draws. One head says whether there is a square, the other where.
// Prints the inputs and outputs of the file. ONNX Runtime runs it: docs/how-to/onnx.md.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>

#include <cupola/cupola.hpp>
#include <cupola/data/generator.hpp>
#include <cupola/host.hpp>
#include <cupola/io/checkpoint.hpp>
#include <cupola/io/onnx.hpp>
#include <cupola/loss/mean_squared_error.hpp>
#include <cupola/loss/several_outputs.hpp>
#include <cupola/net/named_values.hpp>
#include <cupola/parallel/state_transfer.hpp>

using namespace cupola;

struct Net : Sequential<Input<16, 16, 1>, Named<"conv", Conv2d<8, 3>>, Named<"norm", BatchNorm2d<>>, ReLU, MaxPool2d<2>,
                        Flatten, Named<"hidden", Linear<32>>, ReLU, Keep<"features">,  //
                        Named<"to_kind", Linear<2>>, Output<"kind">,                   //
                        From<"features">, Named<"to_place", Linear<2>>, Output<"place">> {};

using Loss = Losses<At<"kind", CrossEntropy<2>>, At<"place", MeanSquaredError>>;

/// Noise, and in every second sample a square of 5 x 5 pixels around the place, which is in units of the image's width.
void draw(std::int64_t number, const RandomStream& random, const BatchSpan& sample) {
    const RandomWords<4> words = random.words(0);
    const bool square = number % 2 == 0;
    const float row = 2 + 11 * uniform(words[0]), column = 2 + 11 * uniform(words[1]);
    for (std::uint32_t i = 0; i < 256; ++i) {
        const float y = static_cast<float>(i / 16), x = static_cast<float>(i % 16);
        const bool inside = square && std::abs(y - row) <= 2 && std::abs(x - column) <= 2;
        sample.inputs()[i] = (inside ? 1.0F : 0.0F) + 0.2F * uniform(random.words(1 + i)[0]);
    }
    sample.data<std::int32_t>("kind")[0] = square ? 1 : 0;
    sample.data<float>("place")[0] = square ? row / 16 : 0.5F;
    sample.data<float>("place")[1] = square ? column / 16 : 0.5F;
}

TrainingState trained() {
    const Columns columns{{"input", ElementType::float32, {16, 16, 1}},
                          {"kind", ElementType::int32, {1}},
                          {"place", ElementType::float32, {2}}};
    Prefetch batches(Generator(columns, draw, {.batch_size = 32, .seed = 1}));
    DataParallel<Net, Loss, Adam, ConcatMean, Host> training(
        {.batch_size = 32, .seed = 1, .optimizer = {.learning_rate = 0.003}});
    fit(training, batches, {.steps = 201}, LogEvery({.every = 100}));
    return training.state();
}

int main(int argc, char** argv) try {
    require((argc == 2 || argc == 3) && *argv[1] != '-', "usage: export_onnx MODEL.onnx [CHECKPOINT]");
    const std::string path = argv[1];
    const TrainingState state = argc == 3 ? read_checkpoint(argv[2], Net::layers).state : trained();
    write_onnx<Net>(path, state, {.metadata = {{"kinds", "nothing,square"}}});

    std::printf("%s: input N x 1 x 16 x 16\n", path.c_str());
    for (const NetworkOutput& output : Net::outputs)
        std::printf("output %s: N x %s\n", std::string(output.name).c_str(), to_string(output.shape).c_str());
} catch (const std::exception& error) {
    return std::fprintf(stderr, "%s\n", error.what()), 1;
}
