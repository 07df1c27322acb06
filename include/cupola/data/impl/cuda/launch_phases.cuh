// SPDX-License-Identifier: Apache-2.0
//
// Queues a kernel whose blocks work in phases: between two phases all threads of a block wait for each other, and they
// pass on data in the block's shared memory.
//
// A work has the number of `threads` of its blocks, the number of `phases`, the type `Shared` of its shared memory, and
// the computation of a thread:
//      template <int phase> CUPOLA_HOST_DEVICE void run(std::int64_t block, int thread, Shared& shared) const
// So the host can run it too, one thread after another.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include <cuda_runtime.h>

#include <cupola/device/cuda.hpp>
#include <cupola/device/cuda/launch.cuh>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

template <int phase, class Work>
__device__ void run_phases(const Work& work, typename Work::Shared& shared) {
    work.template run<phase>(static_cast<std::int64_t>(blockIdx.x), static_cast<int>(threadIdx.x), shared);
    if constexpr (phase + 1 < Work::phases) {
        __syncthreads();
        run_phases<phase + 1>(work, shared);
    }
}

/// The work stays where the launch puts it: a table in it is not copied by each thread.
template <class Work>
__global__ void __launch_bounds__(Work::threads) phases_kernel(const Work __grid_constant__ work) {
    begin_kernel();
    using Shared = typename Work::Shared;
    static_assert(std::is_trivially_copyable_v<Shared> && std::is_trivially_destructible_v<Shared>);
    alignas(Shared) __shared__ unsigned char memory[sizeof(Shared)];
    run_phases<0>(work, *reinterpret_cast<Shared*>(memory));
}

/// Queues `blocks` blocks of it.
template <class Work>
void launch_phases(const CudaContext& context, std::int64_t blocks, const Work& work) {
    static_assert(sizeof(Work) <= 4096, "the arguments of a kernel may take at most 4096 bytes with older drivers");
    if (blocks <= 0) return;
    constexpr std::int64_t limit = std::numeric_limits<int>::max();
    require(blocks <= limit, "a kernel can have at most ", limit, " blocks, not ", blocks);
    launch_kernel(phases_kernel<Work>, static_cast<unsigned>(blocks), Work::threads, context, work);
}

}}}  // namespace cupola::CUPOLA_ABI::impl
