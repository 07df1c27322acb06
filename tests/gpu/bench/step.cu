// SPDX-License-Identifier: Apache-2.0
//
// The training step of the tutorial's network on a GPU, with synthetic batches that are in its memory already. It
// communicates with side_by_side.py by the protocol of tests/benchmarks/peers/protocol.py. Compiled once with
// CUPOLA_BENCH_PRECISION Float32 and once with MixedBFloat16.
//
//   bench_step_PRECISION BATCH [tf32]          steps, queued as far ahead as in a training; every report is read
//   bench_step_PRECISION BATCH [tf32] nodes    the time of each part of a step, not captured, as one line of JSON
//   bench_step_PRECISION BATCH [tf32] kernels  the kernels of a captured step, if CUPTI was found by the build
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include <cupola/cuda.hpp>
#include <cupola/cupola.hpp>
#include <cupola/models/cifar10_net.hpp>

#include "../synthetic_batches.hpp"
#ifdef CUPOLA_BENCH_CUPTI
#include "kernel_times.hpp"
#endif
#include "node_times.hpp"

using namespace cupola;

namespace {

using Net = InPrecision<CUPOLA_BENCH_PRECISION, Cifar10Net>;
using Loss = Cifar10Loss;

class Steps {
public:
    Steps(std::int64_t batch, const CudaOptions& device)
        : batches_(batch),
          training_({.device = device, .batch_size = batch, .seed = 1, .optimizer = {.learning_rate = 0.01}}) {
        constexpr int warm_up = 20;
        run(warm_up);
    }
    /// Waits for all steps and returns the loss of the last.
    double run(int steps) {
        double loss = 0;
        for (int i = 0; i < steps; ++i) {
            training_.queue(batches_);
            while (const StepReport* const report = training_.poll_report()) loss = report->loss;
        }
        while (const StepReport* const report = training_.poll_report(0)) loss = report->loss;
        return loss;
    }
    [[nodiscard]] std::string not_captured() const { return training_.not_captured(); }

private:
    gpu_tests::SyntheticBatches batches_;
    DataParallel<Net, Loss, Sgd, ConcatMean, Cuda> training_;
};

int kernels(std::int64_t batch, const CudaOptions& device) {
#ifdef CUPOLA_BENCH_CUPTI
    constexpr int recorded = 20;
    Steps steps(batch, device);
    bench::KernelTimes::start();
    steps.run(recorded);
    bench::KernelTimes::stop();
    bench::KernelTimes::print(recorded);
    return 0;
#else
    throw DeviceError(text("CUPTI was not there when this was built: the kernels of a step of ", batch, " in ",
                           device.tf32 ? "TF32" : "its precision", " are not recorded"));
#endif
}

int serve(std::int64_t batch, const CudaOptions& device) {
    Steps training(batch, device);
    std::string why = training.not_captured();
    std::replace(why.begin(), why.end(), '"', '\'');
    std::printf(
        "{\"name\": \"Cupola\", \"version\": \"%d.%d.%d\", \"how\": \"%s%s\", \"libraries\": \"%s\", \"tf32\": %s}\n",
        CUPOLA_VERSION_MAJOR, CUPOLA_VERSION_MINOR, CUPOLA_VERSION_PATCH,
        why.empty() ? "captured" : "not captured: ", why.c_str(), Cuda::library_version().c_str(),
        device.tf32 ? "true" : "false");
    std::fflush(stdout);
    char line[64];
    while (std::fgets(line, sizeof line, stdin) != nullptr) {
        const int steps = std::atoi(line);
        const auto start = std::chrono::steady_clock::now();
        const double loss = training.run(steps);
        const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        std::printf("{\"seconds\": [%.9f], \"loss\": %.6f}\n", seconds / steps, loss);
        std::fflush(stdout);
    }
    return 0;
}

}  // namespace

int main(int argc, char** argv) try {
    require(argc >= 2, "usage: bench_step_PRECISION BATCH [tf32] [nodes|kernels]");
    [[maybe_unused]] const int devices = cuda_devices();
    const std::int64_t batch = std::atoll(argv[1]);
    CudaOptions device;
    std::string_view what;
    for (int i = 2; i < argc; ++i) {
        const std::string_view word = argv[i];
        require(word == "tf32" || word == "nodes" || word == "kernels",
                "a word after BATCH is tf32, nodes or kernels, not ", word);
        if (word == "tf32") {
            device.tf32 = true;
        } else {
            what = word;
        }
    }
    if (what == "kernels") return kernels(batch, device);
    if (what.empty()) return serve(batch, device);
    const gpu_tests::SyntheticBatches batches(batch);
    CudaContext context(0, device);
    bench::print(bench::node_times<Net, Loss>(device, batch, batches(0, 0, context)));
    return 0;
} catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", CUPOLA_BENCH_NAME, error.what());
    return 1;
}
