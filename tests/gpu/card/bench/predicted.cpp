// SPDX-License-Identifier: Apache-2.0
//
// What a captured training step of the tutorial's network launches, and the bytes and operations of each launch, as one line of
// JSON: on an emulated GPU, without computing what cuDNN and cuBLASLt compute. predicted.py makes the table of predicted times
// from it. The training is that of step.cu.
//
//   gpu_predicted PRECISION BATCH         PRECISION is float, tf32, half, bfloat16, or bfloat16-padded, with padded channels
//   gpu_predicted PRECISION BATCH names   without the bytes of kernels, which takes less time
#include <cupola/cuda.hpp>
#include <cupola/cupola.hpp>
#include <cupola/models/cifar10_net.hpp>

#include "../../../standard.hpp"
#include "../../emulator/control.hpp"
#include "../../synthetic_batches.hpp"

using namespace cupola;

namespace {

/// The third step: the first is not captured, and the second is captured.
template <class Net>
std::vector<emulator::RecordedWork> step_of(std::int64_t batch, const CudaOptions& device, bool with_bytes) {
    // An H200's multiprocessors, on which the sizes of grids depend, and its memory.
    constexpr int multiprocessors = 132;
    emulator::set_multiprocessors(multiprocessors);
    emulator::set_memory(std::size_t{141} * 1'000'000'000);
    // The watched pages are regions of the process, whose number is limited: larger ones for the larger arrays.
    constexpr std::int64_t samples_per_small_page = 256;
    constexpr std::size_t page = 4096;
    if (with_bytes) emulator::track_memory(batch <= samples_per_small_page ? page : 4 * page);
    // The libraries' outputs stay zero: all numbers are finite, and no kernel leaves anything out.
    emulator::set_runs(with_bytes ? emulator::Runs::no_libraries : emulator::Runs::nothing);
    const gpu_tests::SyntheticBatches batches(batch);
    DataParallel<Net, Cifar10Loss, Sgd, ConcatMean, Cuda> training(
        {.device = device, .batch_size = batch, .seed = 1, .optimizer = {.learning_rate = 0.01}});
    cudaDeviceSynchronize();
    emulator::set_runs(emulator::Runs::nothing);
    training.queue(batches);
    training.queue(batches);
    cudaDeviceSynchronize();
    if (with_bytes) emulator::set_runs(emulator::Runs::no_libraries);
    emulator::record_work();
    training.queue(batches);
    cudaDeviceSynchronize();
    std::vector<emulator::RecordedWork> work = emulator::recorded_costs();
    const std::string why = training.not_captured();
    require(why.empty(), "the step is not captured: ", why);
    require(emulator::failure().empty(), emulator::failure());
    return work;
}

std::string json_of(const std::string& text) {
    std::string result;
    for (const char c : text) result += c == '"' ? '\'' : c == '\\' ? '/' : c;
    return '"' + result + '"';
}

void print(const std::vector<emulator::RecordedWork>& work) {
    std::printf("[");
    for (const emulator::RecordedWork& each : work) {
        constexpr std::string_view before = "the kernel ";
        const std::string name = each.name.starts_with(before) ? each.name.substr(before.size()) : each.name;
        std::printf("%s{\"name\": %s, \"library\": %s, \"read\": %lld, \"written\": %lld, \"operations\": %lld}",
                    &each == work.data() ? "" : ", ", json_of(name).c_str(), each.is_library ? "true" : "false",
                    static_cast<long long>(each.bytes_read), static_cast<long long>(each.bytes_written),
                    static_cast<long long>(each.operations));
    }
    std::printf("]\n");
}

}  // namespace

int main(int argc, char** argv) try {
    require(argc == 3 || (argc == 4 && std::string_view(argv[3]) == "names"),
            "usage: gpu_predicted float|tf32|half|bfloat16|bfloat16-padded BATCH [names]");
    const std::string_view precision = argv[1];
    const std::int64_t batch = std::atoll(argv[2]);
    const bool padded = precision == "bfloat16-padded";
    require(precision == "float" || precision == "tf32" || precision == "half" || precision == "bfloat16" || padded,
            "the precision is float, tf32, half, bfloat16 or bfloat16-padded, not ", precision);
    CudaOptions device;
    device.tf32 = precision == "tf32";
    // Without times the emulated cuDNN's ranking decides, which pads. With times, the kernel that pads takes too long here.
    if (padded) device.plan_seconds = 0;
    if (!padded) emulator::set_kernel_seconds(1e-3);
    const bool with_bytes = argc == 3;
    if (precision == "bfloat16" || padded) {
        print(step_of<Cifar10NetBf16>(batch, device, with_bytes));
    } else if (precision == "half") {
        print(step_of<InPrecision<MixedFloat16, Cifar10Net>>(batch, device, with_bytes));
    } else {
        print(step_of<Cifar10Net>(batch, device, with_bytes));
    }
    // The work of the steps that were not computed would be found wrong.
    std::fflush(stdout);
    std::_Exit(EXIT_SUCCESS);
} catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_predicted: %s\n", error.what());
    return EXIT_FAILURE;
}
