// SPDX-License-Identifier: Apache-2.0
// Predictions of a trained network over and over, for inference.py; it talks to turns.py as peers/protocol.py does.
//
//   prediction NETWORK BATCH THREADS WEIGHTS.safetensors SAMPLES OUTPUTS [winograd]
//
// NETWORK is lrn or resnet44; `winograd` takes Winograd's convolution where it is faster; SAMPLES is a file of floats,
// the samples of one batch with their channels last; what the network says of them is written to OUTPUTS before
// anything is timed.
#include <cupola/models/cifar10_net.hpp>
#include <cupola/models/resnet.hpp>
#include <cupola/ops/host/winograd_convolution.hpp>
#include <cupola/predict.hpp>

#include "../standard.hpp"

using namespace cupola;

namespace {

std::vector<float> read_floats(const char* path, std::size_t count) {
    std::vector<float> values(count);
    std::FILE* file = std::fopen(path, "rb");
    require<DataError>(file != nullptr, path, " cannot be read");
    const std::size_t got = std::fread(values.data(), sizeof(float), count, file);
    std::fclose(file);
    require<DataError>(got == count, path, " has fewer than ", count, " numbers");
    return values;
}

template <class Net>
int serve(std::int64_t batch, const HostOptions& device, const char* weights, const char* samples_file,
          const char* outputs_file) {
    const Predictor<Net> predictor(weights, {.max_batch = batch, .device = device});
    const auto count = static_cast<std::size_t>(batch);
    const std::vector<float> samples =
        read_floats(samples_file, count * static_cast<std::size_t>(Net::input_shape.size()));
    std::vector<float> outputs(count * static_cast<std::size_t>(Net::output_shape.size()));
    for (int i = 0; i < 5; ++i) predictor.predict(samples, outputs);
    std::FILE* file = std::fopen(outputs_file, "wb");
    require<DataError>(
        file != nullptr && std::fwrite(outputs.data(), sizeof(float), outputs.size(), file) == outputs.size(),
        outputs_file, " cannot be written");
    std::fclose(file);
    std::printf("{\"name\": \"Cupola\", \"version\": \"%d.%d.%d\", \"how\": \"Predictor%s\"}\n", CUPOLA_VERSION_MAJOR,
                CUPOLA_VERSION_MINOR, CUPOLA_VERSION_PATCH, device.convolution != nullptr ? ", Winograd" : "");
    std::fflush(stdout);
    char line[64];
    while (std::fgets(line, sizeof line, stdin) != nullptr) {
        std::printf("{\"seconds\": [");
        const int times = std::atoi(line);
        for (int i = 0; i < times; ++i) {
            const auto start = std::chrono::steady_clock::now();
            predictor.predict(samples, outputs);
            std::printf("%s%.8f", i == 0 ? "" : ", ",
                        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
        }
        std::printf("]}\n");
        std::fflush(stdout);
    }
    return 0;
}

}  // namespace

int main(int argc, char** argv) try {
    require(argc == 7 || (argc == 8 && std::string_view(argv[7]) == "winograd"),
            "usage: prediction NETWORK BATCH THREADS WEIGHTS.safetensors SAMPLES OUTPUTS [winograd]");
    const std::string_view network = argv[1];
    const std::int64_t batch = std::atoll(argv[2]);
    const HostOptions device{.threads = std::atoi(argv[3]), .convolution = argc == 8 ? &winograd : nullptr};
    require(network == "lrn" || network == "resnet44", "NETWORK is lrn or resnet44, not ", network);
    return network == "lrn" ? serve<Cifar10Net>(batch, device, argv[4], argv[5], argv[6])
                            : serve<ResNet<44>>(batch, device, argv[4], argv[5], argv[6]);
} catch (const std::exception& error) {
    std::fprintf(stderr, "prediction: %s\n", error.what());
    return 1;
}
