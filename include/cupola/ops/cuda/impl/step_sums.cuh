// SPDX-License-Identifier: Apache-2.0
//
// The mean of the gradients and sums of squares of parameters in one kernel: see the joined work of CudaContext. The sums have
// the bits of queue_sum_of_squares: the block that arrives last adds the partial sums of a sum in their order.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cupola/device/cuda.hpp>
#include <cupola/ops/cuda/impl/launch.cuh>
#include <cupola/ops/cuda/impl/pack.hpp>
#include <cupola/ops/cuda/impl/step_elements.hpp>
#include <cupola/ops/cuda/impl/sums.hpp>
#include <cupola/ops/cuda/impl/sums_memory.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

/// A sum of squares: `blocks` blocks add one partial sum each, from `partial` on.
struct SquaresPart {
    const float* values;
    std::int64_t count;
    double* to;
    std::int64_t blocks;
    double* partial;
};

struct StepSumsTable {
    static constexpr int max_sums = max_joined_sums;

    /// The mean, by the first `mean_blocks` blocks; in packs where its arrays are aligned.
    MeanAt mean;
    std::int64_t mean_count;
    unsigned mean_blocks;
    bool packs;
    int sums;
    SquaresPart sum[max_sums];
    /// The number of blocks that have written their partial sum, per sum; 0 between two kernels.
    unsigned* arrived;
};

/// A template, because nvcc ignores `inline` for a kernel, and warns of it.
template <int threads>
__global__ void __launch_bounds__(threads) step_sums_kernel(const __grid_constant__ StepSumsTable table) {
    begin_kernel();
    __shared__ bool last;
    if (blockIdx.x < table.mean_blocks) {
        constexpr int n = pack_size<float>;
        const std::int64_t count = table.packs ? (table.mean_count + n - 1) / n : table.mean_count,
                           stride = static_cast<std::int64_t>(table.mean_blocks) * blockDim.x;
        for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
             i += stride) {
            if (table.packs) {
                InPacks<n, MeanAt>{table.mean_count, table.mean}(i);
            } else {
                table.mean.template at<1>(i);
            }
        }
        return;
    }
    std::int64_t block = blockIdx.x - table.mean_blocks;
    int s = 0;
    for (; block >= table.sum[s].blocks; ++s) block -= table.sum[s].blocks;
    const SquaresPart part = table.sum[s];
    const SquareOf square{part.values};
    double sum = 0;
    for (std::int64_t i = block * blockDim.x + threadIdx.x; i < part.count; i += part.blocks * blockDim.x)
        sum += square(i, 0);
    sum = block_sum<threads>(sum);
    if (threadIdx.x == 0) {
        part.partial[block] = sum;
        __threadfence();
        last = atomicAdd(table.arrived + s, 1U) + 1 == part.blocks;
    }
    __syncthreads();
    if (!last) return;
    __threadfence();
    // Written by other blocks of this kernel.
    const volatile double* const partial = part.partial;
    sum = 0;
    for (std::int64_t i = threadIdx.x; i < part.blocks; i += blockDim.x) sum += partial[i];
    sum = block_sum<threads>(sum);
    if (threadIdx.x != 0) return;
    *part.to = sum;
    table.arrived[s] = 0;
}

/// The mean and the sums that wait to be launched together.
struct JoinedStepSums {
    /// Whether the mean can be computed with the sums that are here.
    [[nodiscard]] bool takes_mean() const { return table.mean_count == 0; }
    void set_mean(const MeanAt& mean, std::int64_t count, bool packs) {
        table.mean = mean;
        table.mean_count = count;
        table.packs = packs;
    }
    [[nodiscard]] bool takes_sum(std::int64_t count) const {
        return table.sums < StepSumsTable::max_sums && partials + partial_sums(count) <= SumsMemory::capacity<double>();
    }
    void add_sum(const CudaContext& context, const float* values, std::int64_t count, double* to) {
        const std::int64_t blocks = partial_sums(count);
        auto* const partial = reinterpret_cast<double*>(sums_memory(context).partial);
        table.sum[table.sums++] = {values, count, to, blocks, partial + partials};
        partials += blocks;
    }

    void launch(const CudaContext& context) const {
        StepSumsTable filled = table;
        filled.arrived = sums_memory(context).arrived;
        constexpr int n = pack_size<float>;
        if (table.mean_count > 0) {
            static const int resident = resident_blocks(step_sums_kernel<block_threads>, block_threads);
            filled.mean_blocks =
                grid_of(context, table.packs ? (table.mean_count + n - 1) / n : table.mean_count, resident);
        }
        launch_kernel(step_sums_kernel<block_threads>, filled.mean_blocks + static_cast<unsigned>(partials),
                      block_threads, context, filled);
    }

    StepSumsTable table{};
    std::int64_t partials = 0;
};

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
