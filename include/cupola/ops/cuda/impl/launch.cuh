// SPDX-License-Identifier: Apache-2.0
//
// Launches of Cupola's own kernels: over `count` elements, and sums that have the same bits each time.
//
// A kernel is a functor with `__device__ void operator()(std::int64_t i) const`, called once for each i in [0, count),
// in no specified order, by a grid with as many blocks as the GPU holds at a time, which strides over the elements. A
// sum is added within each of a fixed number of blocks, in a fixed order, and then over the blocks in order: the result
// depends only on the count, not on the GPU.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <cuda_runtime.h>

#include <cupola/device/cuda.hpp>
#include <cupola/device/cuda/launch.cuh>
#include <cupola/ops/cuda/impl/sums_memory.hpp>
#include <cupola/ops/impl/kernel_parts/pack.hpp>
#include <cupola/ops/operation.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

inline constexpr int block_threads = 256;

/// The number of blocks in a grid over `count` elements where each thread processes one at a time: at most those that
/// the GPU holds at a time, if each multiprocessor holds `resident` of them.
[[nodiscard]] inline unsigned grid_of(const CudaContext& context, std::int64_t count, int resident) {
    const std::int64_t limit = std::int64_t{context.multiprocessors()} * resident;
    return static_cast<unsigned>(
        std::max<std::int64_t>(1, std::min((count + block_threads - 1) / block_threads, limit)));
}

template <class Functor>
__device__ void run_strided(std::int64_t count, const Functor& functor) {
    const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
    for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride)
        functor(i);
}
template <class Functor>
__global__ void __launch_bounds__(block_threads) strided_kernel(std::int64_t count, Functor functor) {
    begin_kernel();
    run_strided(count, functor);
}
/// For a functor that indexes an array of its own by a variable: nvcc copies any other parameter to the stack for that.
template <class Functor>
__global__ void __launch_bounds__(block_threads)
    strided_constant_kernel(std::int64_t count, const Functor __grid_constant__ functor) {
    begin_kernel();
    run_strided(count, functor);
}

template <class Functor>
[[nodiscard]] auto strided_kernel_of() {
    if constexpr (indexes_own_array<Functor>) {
        return &strided_constant_kernel<Functor>;
    } else {
        return &strided_kernel<Functor>;
    }
}

/// The kernel that calls a functor for each index, with the parameters `count` and the functor, and its blocks.
template <class Functor>
struct StridedLaunch {
    decltype(strided_kernel_of<Functor>()) kernel;
    unsigned blocks;
};
template <class Functor>
[[nodiscard]] StridedLaunch<Functor> strided_launch(const CudaContext& context, std::int64_t count) {
    const auto kernel = strided_kernel_of<Functor>();
    // Depends on the kernel's registers. A GPU of another kind in the same process gets a grid of this size too.
    static const int resident = resident_blocks(kernel, block_threads);
    return {kernel, grid_of(context, count, resident)};
}

/// Queues functor(i) for each i in [0, count).
template <class Functor>
void launch(const CudaContext& context, std::int64_t count, const Functor& functor) {
    if (count <= 0) return;
    const auto [kernel, blocks] = strided_launch<Functor>(context, count);
    launch_kernel(kernel, blocks, block_threads, context, count, functor);
}

/// The maximum number of parts of the sums of a gradient over its positions, and whether a kernel can add the sums of
/// so many channels: a thread must have the same channels at each of its positions.
inline constexpr std::int64_t max_gradient_sum_parts = 1024;
[[nodiscard]] constexpr bool sums_channels(std::int64_t channels) {
    return channels > 0 && channels <= block_threads && block_threads % channels == 0;
}
/// The number of blocks, each of which writes a part: the same on each GPU.
[[nodiscard]] constexpr std::int64_t gradient_sum_parts(std::int64_t elements) {
    const std::int64_t blocks = (elements + block_threads * 4 - 1) / (block_threads * 4);
    return blocks < 1 ? 1 : blocks > max_gradient_sum_parts ? max_gradient_sum_parts : blocks;
}

/// Functor::values(i, values) computes n channels of a gradient, for `groups` groups of n channels of each position;
/// the kernel stores them by Functor::store(i, values) and writes the sums of what is stored to partial[blockIdx.x,
/// channel].
template <int n, class Functor>
__global__ void __launch_bounds__(block_threads)
    summed_kernel(std::int64_t count, int groups, Functor functor, float* partial) {
    begin_kernel();
    __shared__ float sums[n * block_threads];
    const int thread = static_cast<int>(threadIdx.x), group = thread % groups, lane = thread / groups,
              lanes = block_threads / groups;
    const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * block_threads;
    float sum[n] = {};
    for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * block_threads + thread; i < count; i += stride) {
        float value[n];
        functor.values(i, value);
        functor.store(i, value);
        CUPOLA_UNROLL
        for (int k = 0; k < n; ++k) sum[k] += Functor::stored(value[k]);
    }
    CUPOLA_UNROLL
    for (int k = 0; k < n; ++k) sums[k * block_threads + thread] = sum[k];
    for (int step = lanes / 2; step > 0; step /= 2) {
        __syncthreads();
        if (lane < step) {
            CUPOLA_UNROLL
            for (int k = 0; k < n; ++k)
                sums[k * block_threads + thread] += sums[k * block_threads + thread + step * groups];
        }
    }
    if (lane != 0) return;
    float* const to = partial + (static_cast<std::int64_t>(blockIdx.x) * groups + group) * n;
    CUPOLA_UNROLL
    for (int k = 0; k < n; ++k) to[k] = sums[k * block_threads + thread];
}

/// Queues a functor for [0, count), with the sums of its values where they have parts; `channels` are those of a
/// position.
template <int n, class Functor>
void launch_summed(const CudaContext& context, std::int64_t count, std::int64_t channels, const ChannelSums& sums,
                   const Functor& functor) {
    if (sums.parts == 0) return launch(context, count, functor);
    launch_kernel(summed_kernel<n, Functor>, static_cast<unsigned>(sums.parts), block_threads, context, count,
                  static_cast<int>(channels / n), functor, sums.partial);
}

/// The value of the thread `by` lanes higher in the warp. A struct is transferred in words of 8 bytes.
template <class V>
__device__ V shuffled_down(V value, unsigned by) {
    if constexpr (std::is_arithmetic_v<V>) {
        return __shfl_down_sync(0xFFFF'FFFFU, value, by);
    } else {
        static_assert(sizeof(V) % sizeof(unsigned long long) == 0);
        struct Words {
            unsigned long long word[sizeof(V) / sizeof(unsigned long long)];
        };
        Words words = __builtin_bit_cast(Words, value);
        for (unsigned long long& word : words.word) word = __shfl_down_sync(0xFFFF'FFFFU, word, by);
        return __builtin_bit_cast(V, words);
    }
}

/// The sum of `value` over the block, in thread 0: a tree over the threads of each warp, then over the warps. Called by
/// all `threads` threads of the block, a multiple of 32.
template <int threads, class V>
__device__ V block_sum(V value) {
    static_assert(threads % 32 == 0 && threads <= 1024);
    for (unsigned step = 16; step > 0; step /= 2) value += shuffled_down(value, step);
    if constexpr (threads == 32) return value;
    __shared__ V of_warp[threads / 32];
    __syncthreads();  // the values of the previous call have been read
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
    __syncthreads();
    if (threadIdx.x < 32) {
        value = threadIdx.x < threads / 32 ? of_warp[threadIdx.x] : V{};
        for (unsigned step = 16; step > 0; step /= 2) value += shuffled_down(value, step);
    }
    return value;
}

/// The number of elements per thread from which another block pays off.
inline constexpr std::int64_t elements_per_thread = 4;

/// The number of partial sums of a sum over `count` elements: the same on each GPU.
[[nodiscard]] constexpr std::int64_t partial_sums(std::int64_t count) {
    const std::int64_t blocks =
        (count + block_threads * elements_per_thread - 1) / (block_threads * elements_per_thread);
    return blocks < 1 ? 1 : blocks > max_partial_sums ? max_partial_sums : blocks;
}

/// Bytes of scratch memory that `reduce` of values `V` needs for `sums` sums of at most `count` elements each.
template <class V>
[[nodiscard]] constexpr std::size_t reduce_scratch(std::int64_t count, std::int64_t sums = 1) {
    return static_cast<std::size_t>(partial_sums(count) * sums) * sizeof(V);
}

template <class V, class Functor>
__global__ void __launch_bounds__(block_threads) partial_sums_kernel(std::int64_t count, Functor functor, V* partial) {
    begin_kernel();
    const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
    V sum{};
    for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
        sum += functor(i, static_cast<std::int64_t>(blockIdx.y));
    }
    sum = block_sum<block_threads>(sum);
    if (threadIdx.x == 0) partial[static_cast<std::int64_t>(blockIdx.y) * gridDim.x + blockIdx.x] = sum;
}

template <class V, class Finish>
__global__ void __launch_bounds__(block_threads)
    add_partial_sums_kernel(std::int64_t partials, const V* partial, Finish finish) {
    begin_kernel();
    const V* const of_sum = partial + static_cast<std::int64_t>(blockIdx.x) * partials;
    V sum{};
    for (std::int64_t i = threadIdx.x; i < partials; i += blockDim.x) sum += of_sum[i];
    sum = block_sum<block_threads>(sum);
    if (threadIdx.x == 0) finish(static_cast<std::int64_t>(blockIdx.x), sum);
}

/// Queues finish(s, sum of functor(i, s) over i in [0, count)) for each s in [0, sums), each in one thread. `V` is an
/// arithmetic type, or a trivial struct with +=; `scratch` has reduce_scratch<V>(count, sums) bytes, aligned for V.
/// `sums` is at most 65,535, the largest second extent of a grid.
template <class V, class Functor, class Finish>
void reduce(const CudaContext& context, std::int64_t count, std::int64_t sums, Functor functor, Finish finish,
            std::byte* scratch) {
    if (sums <= 0) return;
    auto* const partial = reinterpret_cast<V*>(scratch);
    const std::int64_t blocks = partial_sums(count);
    launch_kernel(partial_sums_kernel<V, Functor>, dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(sums)),
                  block_threads, context, count, functor, partial);
    launch_kernel(add_partial_sums_kernel<V, Finish>, static_cast<unsigned>(sums), block_threads, context, blocks,
                  partial, finish);
}

/// The same for one sum, with its partial sums in the context's own memory.
template <class V, class Functor, class Finish>
void reduce(const CudaContext& context, std::int64_t count, Functor functor, Finish finish) {
    static_assert(SumsMemory::capacity<V>() >= max_partial_sums);
    reduce<V>(context, count, 1, functor, finish, sums_memory(context).partial);
}

/// The address of a result in the context's own memory, for kernels that are queued next.
template <class V>
[[nodiscard]] V* result_of_sum(const CudaContext& context) {
    static_assert(sizeof(V) <= sizeof(SumsMemory::result));
    return reinterpret_cast<V*>(sums_memory(context).result);
}

/// Waits for the stream and reads the result.
template <class V>
[[nodiscard]] V read_result(const CudaContext& context) {
    V result{};
    check_cuda(cudaMemcpyAsync(&result, result_of_sum<V>(context), sizeof(V), cudaMemcpyDeviceToHost, context.stream()),
               "cudaMemcpyAsync");
    context.synchronize();
    return result;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
