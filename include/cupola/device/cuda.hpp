// SPDX-License-Identifier: Apache-2.0
//
// An NVIDIA GPU as a device: memory, a stream, and the handles of cuDNN and cuBLASLt. Device `ordinal` of a training is
// the GPU of that number (CUDA_VISIBLE_DEVICES selects the visible GPUs), unless `devices_per_gpu` devices share each
// GPU: each of them then has its own stream, handles and memory, as devices on several GPUs have.
//
// Work of its context (device/cuda/context.hpp) is queued on its stream and runs in order; copy_to_host waits for the
// data that the host reads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/device/cuda/arena.hpp>
#include <cupola/device/cuda/context.hpp>
#include <cupola/device/cuda/devices.hpp>
#include <cupola/device/cuda/options.hpp>
#include <cupola/device/device.hpp>
#include <cupola/device/impl/cuda/cuda_error.hpp>
#include <cupola/device/plan_choices.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

class CudaQueue;

/// An NVIDIA GPU.
struct Cuda {
    static constexpr std::string_view name = "Cuda";
    static constexpr bool has_nccl = true;
    /// Whether the host can read the device's memory.
    static constexpr bool host_memory = false;
    /// Work is queued and the host continues: a training has at most two complete steps queued behind an incomplete
    /// one.
    static constexpr int max_steps_in_flight = 3;
    /// The alignment that cuBLASLt requires of its workspaces, and that of cudaMalloc, with which cuDNN's engines are
    /// tested.
    static constexpr std::size_t scratch_alignment = 256;
    /// Each pass of an optimiser is a launch, so neighbouring parameters are updated in one launch.
    static constexpr bool joins_segments = true;
    using Options = CudaOptions;
    using Context = CudaContext;
    using Arena = CudaArena;
    using Kernels = Cuda;
    /// Defined in parallel/cuda/queue.hpp.
    using Queue = CudaQueue;

    /// Queues a copy between two devices' memory.
    static void copy_between(CudaContext& context, void* to, const void* from, std::size_t bytes) {
        context.queue_copy(to, from, bytes);
    }
    /// Throws DeviceError if this program has no code for the context's GPU. Defined in ops/cuda/training_step.hpp, as
    /// only nvcc knows the kernels.
    static void require_code(const CudaContext& context);
    /// The number of free bytes on the calling thread's device.
    [[nodiscard]] static std::size_t available_memory() {
        [[maybe_unused]] const int count = cuda_devices();
        std::size_t free = 0, total = 0;
        impl::check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
        return free;
    }
    /// The bytes that `devices` devices may use together if each uses the same number; the devices on one GPU share its
    /// memory.
    [[nodiscard, gnu::cold]] static std::size_t available_memory(const CudaOptions& options, int devices) {
        const int count = cuda_devices(), last = options.gpu_of(devices - 1);
        std::size_t least = ~std::size_t{0};
        for (int gpu = options.first_gpu; gpu <= last && gpu < count; ++gpu) {
            const impl::OnCudaDevice scope(gpu);
            const int before = (gpu - options.first_gpu) * options.devices_per_gpu;
            least = std::min(least, available_memory() /
                                        static_cast<std::size_t>(std::min(options.devices_per_gpu, devices - before)));
        }
        return least == ~std::size_t{0} ? 0 : least * static_cast<std::size_t>(devices);
    }
    /// Queues a copy on the context's stream; returns when `from` may be changed.
    static void copy_from_host(CudaContext& context, std::byte* to, const std::byte* from, std::size_t bytes) {
        if (bytes == 0) return;
        impl::check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, context.stream()), "cudaMemcpyAsync");
        context.synchronize();
    }
    /// Returns when the copy is complete.
    static void copy_to_host(CudaContext& context, std::byte* to, const std::byte* from, std::size_t bytes) {
        if (bytes == 0) return;
        impl::check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, context.stream()), "cudaMemcpyAsync");
        context.synchronize();
    }
    /// "CUDA 13.0, cuDNN 9.19.0, cuBLASLt 13.1.0": the versions that, with the GPU, determine the bits of a result.
    [[nodiscard, gnu::cold]] static std::string library_version() {
        int runtime = 0;
        impl::check_cuda(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
        const auto cudnn = static_cast<std::int64_t>(cudnnGetVersion()),
                   cublas = static_cast<std::int64_t>(cublasLtGetVersion());
        return text("CUDA ", runtime / 1000, '.', runtime % 1000 / 10, ", cuDNN ", cudnn / 10000, '.',
                    cudnn % 10000 / 100, '.', cudnn % 100, ", cuBLASLt ", cublas / 10000, '.', cublas % 10000 / 100,
                    '.', cublas % 100);
    }
    /// Calls add(name, text) for each `machine_property` of this machine, and for TF32, which is a setting of the run.
    /// The plans are those made so far. `options` are CudaOptions.
    template <class Options, class Add>
    static void describe(const Options& options, Add&& add) {
        add(machine_property::gpu, gpu_name());
        add(machine_property::cuda, library_version());
        if (options.tf32 || options.tf32_convolutions) add("tf32", std::string(options.tf32 ? "on" : "convolutions"));
        if (!options.linear_chains) add("linear_chains", std::string("off"));
        if (!options.deterministic) return;
        add(machine_property::deterministic, std::string("on"));
        // Deterministic algorithms give a later run the bits of an earlier one only if they are the same algorithms.
        const std::string plans = options.plan_choices == nullptr ? std::string() : options.plan_choices->fingerprint();
        if (!plans.empty()) add(machine_property::plans, plans);
    }
    /// The lines about the plans that were made since the last call, for a run to print. `options` are CudaOptions.
    template <class Options>
    [[nodiscard]] static std::vector<std::string> take_lines(const Options& options) {
        return options.plan_choices == nullptr ? std::vector<std::string>() : options.plan_choices->take_lines();
    }
    /// The name of the first GPU that the process sees.
    [[nodiscard, gnu::cold]] static std::string gpu_name() {
        cudaDeviceProp properties{};
        return cudaGetDeviceProperties(&properties, 0) == cudaSuccess ? properties.name : "a GPU without a name";
    }
};

static_assert(Device<Cuda>);

}}  // namespace cupola::CUPOLA_ABI
