// SPDX-License-Identifier: Apache-2.0
//
// Networks for photographs, for vision.py; it talks to turns.py as peers/protocol.py does.
//
//   vision NETWORK step BATCH THREADS                                           training steps on synthetic samples
//   vision NETWORK predict BATCH THREADS WEIGHTS.safetensors SAMPLES OUTPUTS    predictions
//
// NETWORK is resnet50, mobilenet_v2, unet (with transposed convolutions) or, for steps, resnet50-frozen, of which the
// last layer alone is trained. SAMPLES is a file of floats, the samples of one batch with their channels last; what the
// network says of them is written to OUTPUTS before anything is timed.
#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#include <cupola/models/mobilenet_v2.hpp>
#include <cupola/models/torchvision_resnet.hpp>
#include <cupola/models/transposed_unet.hpp>
#include <cupola/net/frozen.hpp>
#include <cupola/ops/host/winograd_convolution.hpp>
#include <cupola/predict.hpp>

#include <fstream>

#include "../standard.hpp"
#include "synthetic.hpp"

using namespace cupola;

namespace {

struct FrozenBody : Frozen<ResNet50<>, "conv1*", "bn1*", "layer*"> {};
using UNet128 = TransposedUNet<128, 128, 3, 2, 32>;

void describe() {
    std::printf("{\"name\": \"Cupola\", \"version\": \"%d.%d.%d\", \"how\": \"Winograd where it is faster\"}\n",
                CUPOLA_VERSION_MAJOR, CUPOLA_VERSION_MINOR, CUPOLA_VERSION_PATCH);
    std::fflush(stdout);
}

/// Answers each line of standard input, a number, with the seconds of so many calls of `work`.
template <class Work>
void serve(const Work& work) {
    char line[64];
    while (std::fgets(line, sizeof line, stdin) != nullptr) {
        std::printf("{\"seconds\": [");
        for (int i = 0, count = std::atoi(line); i < count; ++i) {
            const auto start = std::chrono::steady_clock::now();
            work();
            const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
            std::printf("%s%.7f", i == 0 ? "" : ", ", took.count());
        }
        std::printf("]}\n");
        std::fflush(stdout);
    }
}

/// Two classes, or labels of them, for each position that the network has outputs for.
template <class Net>
void steps(std::int64_t batch, const HostOptions& device) {
    constexpr std::int64_t classes = Net::output_shape.channels(), places = Net::output_shape.size() / classes;
    const benchmarks::Synthetic samples(batch, 1, Net::input_shape);
    std::vector<std::int32_t> labels(static_cast<std::size_t>(batch * places));
    for (std::size_t i = 0; i < labels.size(); ++i) {
        const std::uint32_t word = RandomStream(1, RngDomain::user, 2, i).words(0)[0];
        labels[i] = static_cast<std::int32_t>(uniform_below(word, 2));
    }
    DataParallel<Net, CrossEntropy<classes>, Sgd, ConcatMean, Host> training(
        {.device = device, .batch_size = batch, .seed = 1, .optimizer = {.learning_rate = 0.01, .momentum = 0.9}});
    Shape of_labels{1};
    if constexpr (Net::output_shape.rank == 3) of_labels = {Net::output_shape.height(), Net::output_shape.width()};
    const auto step = [&] {
        const std::size_t first = static_cast<std::size_t>(training.step()) % benchmarks::batch_count * samples.batch;
        const BatchView view =
            Net::output_shape.rank == 1
                ? BatchView{samples.samples.data() + first * samples.sample, labels.data(), batch, Net::input_shape}
                : BatchView{batch,
                            {{{"input", ElementType::float32, Net::input_shape},
                              samples.samples.data() + first * samples.sample},
                             {{"target", ElementType::int32, of_labels}, labels.data()}}};
        training.step(std::vector<BatchView>{view});
    };
    const char* const warm_up = std::getenv("WARM_UP");  // as protocol.py
    for (int i = warm_up != nullptr ? std::atoi(warm_up) : 5; i > 0; --i) step();
    describe();
    serve(step);
}

template <class Net>
void predictions(std::int64_t batch, const HostOptions& device, const char* weights, const char* samples_path,
                 const char* outputs_path) {
    const Predictor<Net> predictor(weights, {.max_batch = batch, .device = device});
    std::vector<float> samples(static_cast<std::size_t>(batch * Net::input_shape.size())),
        outputs(static_cast<std::size_t>(batch * Net::output_shape.size()));
    std::ifstream file(samples_path, std::ios::binary);
    file.read(reinterpret_cast<char*>(samples.data()), static_cast<std::streamsize>(samples.size() * sizeof(float)));
    require<DataError>(file.good(), samples_path, " has fewer than ", samples.size(), " numbers");
    for (int i = 0; i < 5; ++i) predictor.predict(samples, outputs);
    std::ofstream to(outputs_path, std::ios::binary);
    to.write(reinterpret_cast<const char*>(outputs.data()),
             static_cast<std::streamsize>(outputs.size() * sizeof(float)));
    to.close();
    require<DataError>(to.good(), outputs_path, " cannot be written");
    describe();
    serve([&] { predictor.predict(samples, outputs); });
}

template <class Net>
void run(int argc, char** argv) {
    const std::string_view what = argv[2];
    const std::int64_t batch = std::atoll(argv[3]);
    const HostOptions device{.threads = std::atoi(argv[4]), .convolution = &winograd};
    require((what == "step" && argc == 5) || (what == "predict" && argc == 8),
            "usage: vision NETWORK step BATCH THREADS, or vision NETWORK predict BATCH THREADS WEIGHTS SAMPLES "
            "OUTPUTS");
    if (what == "step") return steps<Net>(batch, device);
    predictions<Net>(batch, device, argv[5], argv[6], argv[7]);
}

}  // namespace

int main(int argc, char** argv) try {
    require(argc >= 5, "usage: vision NETWORK step|predict BATCH THREADS ...");
    const std::string_view network = argv[1];
    if (network == "resnet50") {
        run<ResNet50<>>(argc, argv);
    } else if (network == "resnet50-frozen") {
        run<FrozenBody>(argc, argv);
    } else if (network == "mobilenet_v2") {
        run<MobileNetV2<>>(argc, argv);
    } else {
        require(network == "unet", "there is no network ", network);
        run<UNet128>(argc, argv);
    }
    return 0;
} catch (const std::exception& error) {
    std::fprintf(stderr, "vision: %s\n", error.what());
    return 1;
}
