// SPDX-License-Identifier: Apache-2.0
//
// The mean of the gradients and sums of squares of parameters in one kernel: see the joined work of CudaContext. The
// sums have the bits of queue_sum_of_squares: the block that arrives last adds the partial sums of a sum in their
// order. What can be launched with an update is collected here too: see joined_updates.cuh.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cupola/device/cuda.hpp>
#include <cupola/ops/cuda/impl/joined_gradients.cuh>
#include <cupola/ops/cuda/impl/launch.cuh>
#include <cupola/ops/cuda/impl/sums_memory.hpp>
#include <cupola/ops/impl/kernel_parts/pack.hpp>
#include <cupola/ops/impl/kernel_parts/step_elements.hpp>
#include <cupola/ops/impl/kernel_parts/sums.hpp>
#include <cupola/ops/impl/kernel_parts/update_elements.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

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

/// The squares of a gradient that is clipped: its spans, each of which `blocks` blocks add, and then the scale.
struct ClippedSpan {
    GradientSquare square;
    std::int64_t count, blocks;
};

struct ClippingTable {
    static constexpr int max_spans = 16;

    int spans;
    ClippedSpan span[max_spans];
    /// The partial sums of all spans, one after another, and the number of blocks that have written theirs: 0 between
    /// two kernels.
    double* partial;
    unsigned* arrived;
    std::int64_t blocks;
    double* squares;
    /// Without a scale, `to` is null.
    ClipScaleTo scale;
};

/// The mean, by the threads `first`, `first` + `stride`, and so on.
__device__ __forceinline__ void run_mean(const StepSumsTable& table, std::int64_t first, std::int64_t stride) {
    constexpr int n = pack_size<float>;
    const std::int64_t count = table.packs ? (table.mean_count + n - 1) / n : table.mean_count;
    for (std::int64_t i = first; i < count; i += stride) {
        if (table.packs) {
            InPacks<n, MeanAt>{table.mean_count, table.mean}(i);
        } else {
            table.mean.template at<1>(i);
        }
    }
}

/// The work of one block of the sums.
template <int threads>
__device__ __forceinline__ void run_squares(const StepSumsTable& table, std::int64_t block) {
    int s = 0;
    for (; block >= table.sum[s].blocks; ++s) block -= table.sum[s].blocks;
    const SquaresPart part = table.sum[s];
    const SquareOf square{part.values};
    double sum = 0;
    for (std::int64_t i = block * blockDim.x + threadIdx.x; i < part.count; i += part.blocks * blockDim.x)
        sum += square(i, 0);
    sum = block_sum<threads>(sum);
    if (threadIdx.x == 0) part.partial[block] = sum;
    if (!arrives_last(table.arrived + s, 1, static_cast<unsigned>(part.blocks))) return;
    // Written by other blocks of this kernel.
    const volatile double* const partial = part.partial;
    sum = 0;
    for (std::int64_t i = threadIdx.x; i < part.blocks; i += blockDim.x) sum += partial[i];
    sum = block_sum<threads>(sum);
    if (threadIdx.x == 0) *part.to = sum;
}

/// The squares of all spans and the scale, with the bits of a sum per span: the block that arrives last adds the
/// partial sums of each span in their order, and the spans in theirs. Called by all blocks of a grid.
template <int threads>
__device__ __forceinline__ void run_clipping(const ClippingTable& table) {
    unsigned done = 0;
    for (std::int64_t b = blockIdx.x; b < table.blocks; b += gridDim.x) {
        std::int64_t block = b;
        int s = 0;
        for (; block >= table.span[s].blocks; ++s) block -= table.span[s].blocks;
        const ClippedSpan span = table.span[s];
        double sum = 0;
        for (std::int64_t i = block * blockDim.x + threadIdx.x; i < span.count; i += span.blocks * blockDim.x)
            sum += span.square(i, 0);
        sum = block_sum<threads>(sum);
        if (threadIdx.x == 0) table.partial[b] = sum;
        ++done;
    }
    if (done == 0 || !arrives_last(table.arrived, done, static_cast<unsigned>(table.blocks))) return;
    const volatile double* partial = table.partial;
    double all = 0;
    for (int s = 0; s < table.spans; ++s) {
        const std::int64_t blocks = table.span[s].blocks;
        double sum = 0;
        for (std::int64_t i = threadIdx.x; i < blocks; i += blockDim.x) sum += partial[i];
        sum = block_sum<threads>(sum);
        all += sum;
        partial += blocks;
    }
    if (threadIdx.x != 0) return;
    *table.squares = all;
    table.scale(0);
}

/// A template, because nvcc ignores `inline` for a kernel, and warns of it.
template <int threads>
__global__ void __launch_bounds__(threads) step_sums_kernel(const StepSumsTable __grid_constant__ table) {
    begin_kernel();
    if (blockIdx.x < table.mean_blocks) {
        run_mean(table, static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x,
                 static_cast<std::int64_t>(table.mean_blocks) * blockDim.x);
    } else {
        run_squares<threads>(table, blockIdx.x - table.mean_blocks);
    }
}

/// The work to be launched before an update, in this order: the last pieces of gradients, the mean with the sums of
/// squares of parameters, and the squares of the mean that clip it. If it is launched without an update, the first two
/// are one kernel each, and the squares are computed like other sums.
struct JoinedStepSums {
    using Base = JoinedStepSums;

    /// Whether the mean can be computed together with the sums collected so far.
    [[nodiscard]] bool takes_mean() const { return table.mean_count == 0 && clipping.spans == 0; }
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
    /// Whether the next span of a gradient that is clipped, or its first, can be added.
    [[nodiscard]] bool takes_span(std::int64_t count, bool first) const {
        return clipping.scale.to == nullptr && first == (clipping.spans == 0) &&
               clipping.spans < ClippingTable::max_spans &&
               clipping.blocks + partial_sums(count) <= SumsMemory::capacity<double>();
    }
    void add_span(const GradientSquare& square, std::int64_t count) {
        clipping.span[clipping.spans++] = {square, count, partial_sums(count)};
        clipping.blocks += partial_sums(count);
    }
    [[nodiscard]] bool takes_scale() const { return clipping.spans > 0 && clipping.scale.to == nullptr; }
    void set_scale(const ClipScaleTo& scale) { clipping.scale = scale; }

    [[nodiscard]] bool empty() const {
        return gradients.empty() && table.mean_count == 0 && table.sums == 0 && clipping.spans == 0;
    }
    /// Whether it can be launched with an update: not if the spans have no scale yet, because other kernels add to
    /// their sum.
    [[nodiscard]] bool joins_update() const { return (clipping.spans > 0) == (clipping.scale.to != nullptr); }
    /// The tables with the addresses in the context's memory.
    [[nodiscard]] StepSumsTable filled(const CudaContext& context) const {
        StepSumsTable result = table;
        result.arrived = sums_memory(context).arrived;
        return result;
    }
    /// Uses the partial sums and counters of the squares of parameters, which have been read and are 0 again by then.
    [[nodiscard]] ClippingTable filled_clipping(const CudaContext& context) const {
        SumsMemory& sums = sums_memory(context);
        ClippingTable result = clipping;
        result.partial = reinterpret_cast<double*>(sums.partial);
        result.arrived = sums.arrived;
        result.squares = &sums.clipping;
        return result;
    }
    /// The indices of the mean.
    [[nodiscard]] std::int64_t mean_size() const {
        constexpr int n = pack_size<float>;
        return table.packs ? (table.mean_count + n - 1) / n : table.mean_count;
    }

    int launch(const CudaContext& context) const {
        int launches = 0;
        if (!gradients.empty()) {
            gradients.launch(context);
            ++launches;
        }
        if (table.mean_count > 0 || table.sums > 0) {
            StepSumsTable all = filled(context);
            if (table.mean_count > 0) {
                static const int resident = resident_blocks(step_sums_kernel<block_threads>, block_threads);
                all.mean_blocks = grid_of(context, mean_size(), resident);
            }
            launch_kernel(step_sums_kernel<block_threads>, all.mean_blocks + static_cast<unsigned>(partials),
                          block_threads, context, all);
            ++launches;
        }
        for (int s = 0; s < clipping.spans; ++s) {
            reduce<double>(context, clipping.span[s].count, clipping.span[s].square,
                           AddSumTo{&sums_memory(context).clipping, s == 0});
            launches += 2;
        }
        if (clipping.scale.to != nullptr) {
            impl::launch(context, 1, clipping.scale);
            ++launches;
        }
        return launches;
    }

    JoinedGradients gradients{};
    StepSumsTable table{};
    std::int64_t partials = 0;
    ClippingTable clipping{};
};

/// The collected work of this type; gradients that were collected before it are a part of it.
[[nodiscard]] inline JoinedStepSums& joined_step_sums(const CudaContext& context) {
    auto* const collected = context.joined_as<JoinedGradients>();
    if (collected == nullptr) return context.joined<JoinedStepSums>();
    const JoinedGradients gradients = *collected;
    context.discard_joined();
    JoinedStepSums& result = context.joined<JoinedStepSums>();
    result.gradients = gradients;
    return result;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
