// SPDX-License-Identifier: Apache-2.0
//
// Describes the first GPU in one line of JSON.
//
//   bench_machine rates      the rate of a large matrix product in float, TF32, bfloat16 and half, and of a large copy
//   bench_machine describe   cuDNN's description of the device, from which plans can be made without the device
#include <cupola/ops/cuda/impl/cudnn_graph.hpp>
#include <cupola/ops/cuda/peak_rates.hpp>

#include "../../../standard.hpp"

using namespace cupola;

namespace {

template <class T>
void print_rates(const char* name, bool tf32, const char* before) {
    CudaOptions options;
    options.tf32 = tf32;
    const CudaContext context(0, options);
    const PeakRates rates = ops::MeasurePeakRates<Cuda, T>::run(context);
    std::printf("%s\"%s\": {\"operations\": %.6e, \"bytes\": %.6e}", before, name, rates.operations, rates.bytes);
}

int run(std::string_view what) {
    if (what == "describe") {
        const CudaContext context(0, {});
        std::string description = impl::cudnn_device_description(context.cudnn());
        while (!description.empty() && description.back() == '\0') description.pop_back();
        std::printf("%s\n", description.c_str());
        return 0;
    }
    require(what == "rates", "usage: bench_machine rates|describe, not ", what);
    [[maybe_unused]] const int devices = cuda_devices();
    std::printf("{\"device\": \"%s\", \"libraries\": \"%s\"", impl::cuda_device_name(0).c_str(),
                Cuda::library_version().c_str());
    print_rates<float>("float", false, ", ");
    print_rates<float>("tf32", true, ", ");
    print_rates<BFloat16>("bfloat16", false, ", ");
    print_rates<Float16>("half", false, ", ");
    std::printf("}\n");
    return 0;
}

}  // namespace

int main(int argc, char** argv) try { return run(argc == 2 ? argv[1] : ""); } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_machine: %s\n", error.what());
    return 1;
}
