// SPDX-License-Identifier: Apache-2.0
//
// The one function that launches kernels. It is a function call, not nvcc's launch syntax, so any C++ compiler can parse
// the launch of a kernel.
//
// Each kernel begins with begin_kernel(). Where CudaOptions::dependent_launch is set, a kernel that follows another one is
// brought to the GPU when all blocks of that one have called it, and waits in it until that one has ended. As each kernel
// waits so before it lets the next one come, all kernels before have ended by then, too.
#pragma once

#include <algorithm>
#include <string>
#include <utility>

#include <cuda_runtime.h>

#include <cupola/core/error.hpp>
#include <cupola/device/cuda.hpp>
#include <cupola/device/impl/cuda_error.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

/// Whether an error says that the program has no code for the GPU, or only PTX that the driver cannot compile for it.
[[nodiscard, gnu::cold]] inline bool lacks_code(cudaError_t status) {
    return status == cudaErrorNoKernelImageForDevice || status == cudaErrorInvalidDeviceFunction ||
           status == cudaErrorInvalidKernelImage || status == cudaErrorUnsupportedPtxVersion;
}

/// A template, so that only files of nvcc, which defines the list, compile it.
template <class... Parameters>
[[noreturn, gnu::cold]] void throw_no_code(cudaError_t status) {
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
    if (lacks_code(status)) throw_no_code<Parameters...>(status);
    check_cuda(status, "cudaFuncGetAttributes");
}

/// The first statement of each kernel: what kernels and copies before it have written can be read after it.
__device__ inline void begin_kernel() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    cudaGridDependencySynchronize();
    cudaTriggerProgrammaticLaunchCompletion();
#endif
}

/// Queues `kernel(arguments...)` on the context's stream for each thread of `grid` blocks of `block` threads; the
/// context's device is the calling thread's. Each argument is converted to the type of its parameter and copied before the call returns. Throws
/// DeviceError if the launch fails; an error of the kernel itself is reported by a later call that waits for it.
template <class... Parameters, class... Arguments>
void launch_kernel(void (*kernel)(Parameters...), dim3 grid, dim3 block, const CudaContext& context,
                   Arguments&&... arguments) {
    const CudaContext::NextKernel next = context.next_kernel();
    cudaLaunchConfig_t config{};
    config.gridDim = grid;
    config.blockDim = block;
    config.stream = next.stream;
    cudaLaunchAttribute dependent{};
    dependent.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    dependent.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &dependent;
    config.numAttrs = next.dependent ? 1 : 0;
    const cudaError_t status = cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...);
    if (status != cudaSuccess && lacks_code(status)) [[unlikely]]
        throw_no_code<Parameters...>(status);
    check_cuda(status, "kernel launch");
}

/// The number of blocks of `threads` threads of a kernel that a multiprocessor of the calling thread's device holds at a time;
/// its registers and shared memory limit it. At least 1. Waits for nothing, and may be called while a stream is captured.
template <class... Parameters>
[[nodiscard]] int resident_blocks(void (*kernel)(Parameters...), int threads) {
    int blocks = 0;
    const cudaError_t status =
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, reinterpret_cast<const void*>(kernel), threads, 0);
    if (lacks_code(status)) throw_no_code<Parameters...>(status);
    check_cuda(status, "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
    return std::max(1, blocks);
}

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
