// SPDX-License-Identifier: Apache-2.0
//
// A U-Net that classifies the pixels of shapes (shapes.hpp): training steps for turns.py, as peers/protocol.py describes,
// or a training whose losses are printed.
//
//   unet BATCH THREADS [recompute]     `recompute` computes each block again in backward
//   unet train STEPS BATCH THREADS     one line of JSON: the loss of each step, and that of 256 other images at the end
#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#include <cupola/models/unet.hpp>
#include <cupola/net/recompute.hpp>
#include <cupola/ops/host/winograd_convolution.hpp>

#include "../standard.hpp"
#include "shapes.hpp"

using namespace cupola;

namespace {

struct Net : UNet<shapes::side, shapes::side, 1, shapes::classes> {};
struct Recomputed : Recompute<Net, "down?", "bottom", "up?"> {};
template <class Network>
using TrainingOf = DataParallel<Network, CrossEntropy<shapes::classes>, Adam, ConcatMean, Host>;
using Training = TrainingOf<Net>;

template <class Network = Net>
TrainingOf<Network> make_training(std::int64_t batch, int threads, double rate = 1e-3) {
    return TrainingOf<Network>({.device = {.threads = threads, .convolution = &winograd},
                                .batch_size = batch,
                                .seed = 1,
                                .optimizer = {.learning_rate = rate}});
}

BatchView view(const shapes::Batch& batch) {
    constexpr std::int64_t pixels = shapes::side * shapes::side;
    return {static_cast<std::int64_t>(batch.images.size()) / pixels,
            {{{"input", ElementType::float32, Net::input_shape}, batch.images.data()},
             {{"target", ElementType::int32, {shapes::side, shapes::side}}, batch.labels.data()}}};
}

template <class Network>
int serve(std::int64_t batch, int threads) {
    std::vector<shapes::Batch> batches;
    for (std::uint32_t i = 0; i < 4; ++i) batches.emplace_back(i * static_cast<std::uint32_t>(batch), batch);
    TrainingOf<Network> training = make_training<Network>(batch, threads);
    const auto step = [&] {
        const std::vector<BatchView> one{view(batches[static_cast<std::size_t>(training.step()) % batches.size()])};
        return training.step(one).loss;
    };
    const char* const warm_up = std::getenv("WARM_UP");  // as protocol.py
    for (int i = warm_up != nullptr ? std::atoi(warm_up) : 5; i > 0; --i) step();
    std::printf("{\"name\": \"Cupola\", \"version\": \"%d.%d.%d\", \"how\": \"Winograd\", \"activations\": %zu}\n",
                CUPOLA_VERSION_MAJOR, CUPOLA_VERSION_MINOR, CUPOLA_VERSION_PATCH, training.memory().plan.activations);
    std::fflush(stdout);
    char line[64];
    while (std::fgets(line, sizeof line, stdin) != nullptr) {
        double loss = 0;
        std::printf("{\"seconds\": [");
        for (int i = 0, count = std::atoi(line); i < count; ++i) {
            const auto start = std::chrono::steady_clock::now();
            loss = step();
            const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
            std::printf("%s%.7f", i == 0 ? "" : ", ", took.count());
        }
        std::printf("], \"loss\": %.6f}\n", loss);
        std::fflush(stdout);
    }
    return 0;
}

int train(std::uint32_t steps, std::int64_t batch, int threads) {
    Training training = make_training(batch, threads);
    const auto images = static_cast<std::uint32_t>(batch);
    std::printf("{\"losses\": [");
    for (std::uint32_t i = 0; i < steps; ++i) {
        const shapes::Batch drawn(i * images, batch);
        const std::vector<BatchView> one{view(drawn)};
        std::printf("%s%.6f", i == 0 ? "" : ", ", training.step(one).loss);
    }
    // A rate of zero leaves the parameters as they are.
    Training trained = make_training(batch, threads, 0);
    trained.set_parameters(training.parameters());
    double held_out = 0;
    constexpr std::uint32_t others = 256;
    for (std::uint32_t i = 0; i < others / images; ++i) {
        const shapes::Batch drawn(1'000'000 + i * images, batch);
        const std::vector<BatchView> one{view(drawn)};
        held_out += trained.step(one).loss / (others / images);
    }
    std::printf("], \"held_out\": %.6f}\n", held_out);
    return 0;
}

}  // namespace

int main(int argc, char** argv) try {
    if (argc == 5 && std::string_view(argv[1]) == "train")
        return train(static_cast<std::uint32_t>(std::atoi(argv[2])), std::atoll(argv[3]), std::atoi(argv[4]));
    const bool recompute = argc == 4 && std::string_view(argv[3]) == "recompute";
    require(argc == 3 || recompute, "usage: unet BATCH THREADS [recompute], or unet train STEPS BATCH THREADS");
    if (recompute) return serve<Recomputed>(std::atoll(argv[1]), std::atoi(argv[2]));
    return serve<Net>(std::atoll(argv[1]), std::atoi(argv[2]));
} catch (const std::exception& error) {
    std::fprintf(stderr, "unet: %s\n", error.what());
    return 1;
}
