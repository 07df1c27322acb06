// SPDX-License-Identifier: Apache-2.0
//
// The only function that launches kernels. It is a function call, not nvcc's launch syntax, so any C++ compiler can
// parse the launch of a kernel.
//
// Each kernel begins with begin_kernel(). Where CudaOptions::dependent_launch is set, a kernel that follows another one
// is brought to the GPU when all blocks of its predecessor have called it, and waits in it until the predecessor has
// ended. As each kernel waits before it lets the next one come, all earlier kernels have ended by then, too. A
// library's kernel begins when its predecessors have ended, or waits for them in the same way; if it does not
// allow an early launch of its successor, that begins as soon as it has ended.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <cuda_runtime.h>

#include <cupola/core/error.hpp>
#include <cupola/device/cuda.hpp>
#include <cupola/device/impl/cuda/cuda_error.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Whether an error says that the program has no code for the GPU, or only PTX that the driver cannot compile for it.
[[nodiscard, gnu::cold]] inline bool lacks_code(cudaError_t status) {
    return status == cudaErrorNoKernelImageForDevice || status == cudaErrorInvalidDeviceFunction ||
           status == cudaErrorInvalidKernelImage || status == cudaErrorUnsupportedPtxVersion;
}

/// A template, so that it is only compiled in files of nvcc, which defines the list.
template <class Error>
[[noreturn, gnu::cold]] void throw_no_code(Error status) {
    cudaGetLastError();  // the error is reported here, and not by the next launch
    std::string built_for;
    for (const int architecture : {__CUDA_ARCH_LIST__}) {
        built_for += text(built_for.empty() ? "" : ", ", architecture / 100, '.', architecture / 10 % 10);
    }
    const int gpu = current_cuda_device(), capability = compute_capability(gpu);
    throw DeviceError(text(capability_text(gpu), ", and this program was built for ", built_for, " (",
                           cudaGetErrorName(status), "): build it again with -DCMAKE_CUDA_ARCHITECTURES=", capability,
                           ", or choose another GPU by CUDA_VISIBLE_DEVICES"));
}

/// Throws DeviceError if the program has no code of `kernel` for the calling thread's device.
template <class... Parameters>
[[gnu::cold]] void require_code(void (*kernel)(Parameters...)) {
    cudaFuncAttributes attributes{};
    const cudaError_t status = cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel));
    if (lacks_code(status)) throw_no_code(status);
    check_cuda(status, "cudaFuncGetAttributes");
}

/// The first statement of each kernel: after it, the kernel can read what earlier kernels and copies have written.
__device__ inline void begin_kernel() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    cudaGridDependencySynchronize();
    cudaTriggerProgrammaticLaunchCompletion();
#endif
}

/// Waits until all threads of all blocks of a kernel launched by launch_cooperative() have called it: after it, what
/// they have written before can be read, except by constant loads. `arrived` is context.grid_counter(), whose highest
/// bit each barrier flips.
__device__ inline void grid_barrier(unsigned* arrived) {
    __syncthreads();
    if (threadIdx.x == 0) {
        constexpr unsigned highest = 0x8000'0000U;
        __threadfence();
        const unsigned before = atomicAdd(arrived, blockIdx.x == 0 ? highest - (gridDim.x - 1) : 1U);
        constexpr unsigned nanoseconds = 20;
        while (((before ^ *static_cast<volatile unsigned*>(arrived)) & highest) == 0) __nanosleep(nanoseconds);
        __threadfence();
    }
    __syncthreads();
}

/// Whether the calling block is the last of those that have done `all` units of work, of which it has done `done`: what
/// the others have written before they called this can be read after it, by other than constant loads. Called by all
/// threads of each of these blocks. `arrived` is 0 before the first of them comes, and again after the last.
__device__ inline bool arrives_last(unsigned* arrived, unsigned done, unsigned all) {
    __shared__ bool last;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        last = atomicAdd(arrived, done) + done == all;
        if (last) *arrived = 0;
    }
    __syncthreads();
    if (last) __threadfence();
    return last;
}

/// Launches a kernel with at most one attribute; null for none.
template <class... Parameters, class... Arguments>
void launch_with(cudaLaunchAttribute* attribute, void (*kernel)(Parameters...), dim3 grid, dim3 block,
                 cudaStream_t stream, Arguments&&... arguments) {
    cudaLaunchConfig_t config{};
    config.gridDim = grid;
    config.blockDim = block;
    config.stream = stream;
    config.attrs = attribute;
    config.numAttrs = attribute == nullptr ? 0 : 1;
    const cudaError_t status = cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...);
    if (status != cudaSuccess && lacks_code(status)) [[unlikely]]
        throw_no_code(status);
    check_cuda(status, "kernel launch");
}

/// Whether the code of `kernel` for the calling thread's device has the instructions of begin_kernel(): it was compiled
/// for compute capability 9.0 or later. From PTX for an earlier one the driver makes code for such a device, too, which
/// waits for nothing and must not be launched before its predecessor has ended.
template <class... Parameters>
[[nodiscard]] bool waits_for_predecessor(void (*kernel)(Parameters...)) {
    constexpr int least_virtual_architecture = 90;
    cudaFuncAttributes attributes{};
    if (cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel)) != cudaSuccess) {
        cudaGetLastError();  // the launch reports it
        return false;
    }
    return attributes.ptxVersion >= least_virtual_architecture;
}

/// Queues `kernel(arguments...)` on the context's stream for each thread of `grid` blocks of `block` threads; the
/// context's device is the calling thread's. Each argument is converted to the type of its parameter and copied before
/// the call returns. Throws DeviceError if the launch fails; an error of the kernel itself is reported by a later call
/// that waits for it.
template <class... Parameters, class... Arguments>
void launch_kernel(void (*kernel)(Parameters...), dim3 grid, dim3 block, const CudaContext& context,
                   Arguments&&... arguments) {
    const CudaContext::NextKernel next = context.next_kernel();
    cudaLaunchAttribute dependent{};
    dependent.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    dependent.val.programmaticStreamSerializationAllowed = 1;
    launch_with(next.dependent && waits_for_predecessor(kernel) ? &dependent : nullptr, kernel, grid, block,
                next.stream, std::forward<Arguments>(arguments)...);
}

/// The same for a kernel that calls grid_barrier(), with the blocks of cooperative_grid(), in one dimension: the GPU
/// then runs all of them at the same time. It begins when the work that precedes it has ended.
template <class... Parameters, class... Arguments>
void launch_cooperative(void (*kernel)(Parameters...), unsigned blocks, dim3 block, const CudaContext& context,
                        Arguments&&... arguments) {
    cudaLaunchAttribute cooperative{};
    cooperative.id = cudaLaunchAttributeCooperative;
    cooperative.val.cooperative = 1;
    launch_with(&cooperative, kernel, blocks, block, context.next_kernel(false).stream,
                std::forward<Arguments>(arguments)...);
}

/// The number of blocks of `threads` threads of a kernel that a multiprocessor of the calling thread's device holds at
/// a time; its registers and shared memory limit it. Waits for nothing, and may be called while a stream is captured.
template <class... Parameters>
[[nodiscard]] int held_blocks(void (*kernel)(Parameters...), int threads) {
    int blocks = 0;
    const cudaError_t status =
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, reinterpret_cast<const void*>(kernel), threads, 0);
    if (lacks_code(status)) throw_no_code(status);
    check_cuda(status, "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
    return blocks;
}
/// The same for the size of a grid: at least 1.
template <class... Parameters>
[[nodiscard]] int resident_blocks(void (*kernel)(Parameters...), int threads) {
    return std::max(1, held_blocks(kernel, threads));
}

/// The largest grid that launch_cooperative() can launch for a kernel of which a multiprocessor holds `resident`
/// blocks; 0 on a device that launches no cooperative grids.
[[nodiscard]] inline std::int64_t cooperative_blocks(const CudaContext& context, int resident) {
    return context.cooperative_launch() ? std::int64_t{context.multiprocessors()} * resident : 0;
}

/// The number of blocks with which launch_cooperative() launches a kernel that can use up to `most` blocks, at least 1,
/// and needs `least`: at most those that all multiprocessors of the GPU hold at a time. 0 if the kernel cannot be
/// launched so. If the GPU holds too few blocks, the log says so; `what` names the kernel's work there.
template <class... Parameters>
[[nodiscard]] unsigned cooperative_grid(const CudaContext& context, std::string_view what,
                                        void (*kernel)(Parameters...), int threads, std::int64_t most,
                                        std::int64_t least = 1) {
    if (!context.cooperative_launch()) return 0;
    const std::int64_t held = cooperative_blocks(context, held_blocks(kernel, threads));
    if (held >= least) return static_cast<unsigned>(std::min(most, held));
    context.plan_choices().note_once(text("GPU ", context.gpu(), " (", context.gpu_name(), ") holds ", held,
                                          " blocks of the kernel of ", what, " at a time, which needs ", least,
                                          ": its parts are kernels of their own"));
    return 0;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
