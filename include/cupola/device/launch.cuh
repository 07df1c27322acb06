// SPDX-License-Identifier: Apache-2.0
//
// The one function that launches kernels. It is a function call, not nvcc's launch syntax, so any C++ compiler can parse
// the launch of a kernel.
#pragma once

#include <utility>

#include <cuda_runtime.h>

#include <cupola/device/impl/cuda_error.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

/// Queues `kernel(arguments...)` on `stream`, of the calling thread's device, for each thread of `grid` blocks of `block`
/// threads. Each argument is converted to the type of its parameter and copied before the call returns. Throws
/// DeviceError if the launch fails; an error of the kernel itself is reported by a later call that waits for it.
template <class... Parameters, class... Arguments>
void launch_kernel(void (*kernel)(Parameters...), dim3 grid, dim3 block, cudaStream_t stream,
                   Arguments&&... arguments) {
    cudaLaunchConfig_t config{};
    config.gridDim = grid;
    config.blockDim = block;
    config.stream = stream;
    check_cuda(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...), "kernel launch");
}

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
