// SPDX-License-Identifier: Apache-2.0
//
// The last pieces of work on gradients of parameters as one kernel, or as the first part of the one at the end of a
// step: gradients that cuDNN has computed in another type are widened, partial sums of slabs of rows are added, and the
// gradient of a loss that is not finite becomes a NaN. See the joined work of CudaContext.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>

#include <cupola/core/element_type.hpp>
#include <cupola/device/cuda.hpp>
#include <cupola/ops/cuda/impl/launch.cuh>
#include <cupola/ops/impl/kernel_parts/pack.hpp>
#include <cupola/ops/impl/kernel_parts/step_elements.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// A piece of such work: to = or += `from`, widened, or the sum of `slabs` rows of `from` in a fixed order.
struct GradientPart {
    enum class Kind : std::uint8_t { widen_bfloat16, widen_half, add_floats, add_slabs };

    const void* from;
    float* to;
    std::int64_t count;
    std::int64_t slabs;
    Kind kind;
    bool accumulate, packs;
    /// The first block of the next part.
    unsigned end;
};

struct GradientParts {
    static constexpr int max_parts = 32;
    /// The elements that a thread widens together.
    static constexpr int n = 8;
    /// The number of channels whose slabs a block adds, and the number of threads for each.
    static constexpr int slab_channels = 8, slab_lanes = block_threads / slab_channels;

    int parts;
    GradientPart part[max_parts];
    /// Where *loss is not finite or *failed is not 0, *poisoned becomes a NaN, after the parts. Null where there is no
    /// loss; `failed` may be null.
    const double* loss;
    const std::int32_t* failed;
    float* poisoned;

    [[nodiscard]] CUPOLA_HOST_DEVICE bool poisons(const float* at) const {
        return at == poisoned && (!is_finite_number(*loss) || (failed != nullptr && *failed != 0));
    }

    /// n consecutive elements of a part.
    template <class T>
    struct Widen {
        const GradientParts& all;
        const GradientPart& part;

        template <int m>
        CUPOLA_HOST_DEVICE void at(std::int64_t i) const {
            float value[m], before[m] = {};
            load_floats<m>(static_cast<const T*>(part.from) + i, value);
            if (part.accumulate) load_floats<m>(part.to + i, before);
            CUPOLA_UNROLL
            for (int k = 0; k < m; ++k) {
                if (part.accumulate) value[k] = before[k] + value[k];
                if (all.poisons(part.to + i + k)) value[k] = __builtin_nanf("");
            }
            store_floats<m>(part.to + i, value);
        }
    };
    template <class T>
    CUPOLA_HOST_DEVICE void widen(const GradientPart& of, std::int64_t i) const {
        const Widen<T> each{*this, of};
        if (of.packs) {
            InPacks<n, Widen<T>>{of.count, each}(i);
        } else {
            each.template at<1>(i);
        }
    }
};

/// The work of one block of the parts; called by all threads of the block.
__device__ __forceinline__ void run_gradient_block(const GradientParts& parts, unsigned block_of_parts) {
    constexpr int channels = GradientParts::slab_channels, lanes = GradientParts::slab_lanes;
    __shared__ float sums[lanes][channels];
    int p = 0;
    while (p < parts.parts && block_of_parts >= parts.part[p].end) ++p;
    if (p == parts.parts) {  // the block after those of the parts
        if (threadIdx.x == 0 && parts.poisons(parts.poisoned)) *parts.poisoned = __builtin_nanf("");
        return;
    }
    const GradientPart part = parts.part[p];
    const unsigned first = p == 0 ? 0 : parts.part[p - 1].end;
    const std::int64_t block = block_of_parts - first;
    if (part.kind != GradientPart::Kind::add_slabs) {
        const std::int64_t size = part.packs ? (part.count + GradientParts::n - 1) / GradientParts::n : part.count;
        const std::int64_t stride = static_cast<std::int64_t>(part.end - first) * blockDim.x;
        for (std::int64_t i = block * blockDim.x + threadIdx.x; i < size; i += stride) {
            if (part.kind == GradientPart::Kind::widen_bfloat16) {
                parts.widen<BFloat16>(part, i);
            } else if (part.kind == GradientPart::Kind::widen_half) {
                parts.widen<Float16>(part, i);
            } else {
                parts.widen<float>(part, i);
            }
        }
        return;
    }
    const int column = static_cast<int>(threadIdx.x) % channels, lane = static_cast<int>(threadIdx.x) / channels;
    const std::int64_t channel = block * channels + column;
    const auto* const partial = static_cast<const float*>(part.from);
    float mine = 0;
    if (channel < part.count) {
        for (std::int64_t slab = lane; slab < part.slabs; slab += lanes) mine += partial[slab * part.count + channel];
    }
    sums[lane][column] = mine;
    for (int step = lanes / 2; step > 0; step /= 2) {
        __syncthreads();
        if (lane < step) sums[lane][column] += sums[lane + step][column];
    }
    if (lane != 0 || channel >= part.count) return;
    float sum = sums[0][column];
    if (part.accumulate) sum = part.to[channel] + sum;
    part.to[channel] = parts.poisons(part.to + channel) ? __builtin_nanf("") : sum;
}

/// A template, because nvcc ignores `inline` for a kernel, and warns of it.
template <int threads>
__global__ void __launch_bounds__(threads) gradient_parts_kernel(const GradientParts __grid_constant__ parts) {
    begin_kernel();
    run_gradient_block(parts, blockIdx.x);
}

/// The pieces that wait to be launched together. None reads or writes what another writes.
struct JoinedGradients {
    using Base = JoinedGradients;

    /// Whether `count` elements at `to` can be written by the same kernel as the others: layers with tied parameters
    /// add to the same.
    [[nodiscard]] bool takes_part(const float* to, std::int64_t count) const {
        for (int p = 0; p < all.parts; ++p) {
            const GradientPart& each = all.part[p];
            if (to < each.to + each.count && each.to < to + count) return false;
        }
        return all.parts < GradientParts::max_parts && all.loss == nullptr;
    }
    template <class T>
    void add_widened(const T* from, float* to, std::int64_t count, bool accumulate) {
        using Kind = GradientPart::Kind;
        constexpr Kind kind = std::same_as<T, BFloat16>  ? Kind::widen_bfloat16
                              : std::same_as<T, Float16> ? Kind::widen_half
                                                         : Kind::add_floats;
        add({from, to, count, 0, kind, accumulate, aligned_for_packs(from, to), 0});
    }
    void add_slabs(const float* partial, std::int64_t slabs, std::int64_t channels, bool accumulate, float* sum) {
        add({partial, sum, channels, slabs, GradientPart::Kind::add_slabs, accumulate, false, 0});
    }
    [[nodiscard]] bool takes_loss() const { return all.loss == nullptr; }
    void set_loss(const double* loss, const std::int32_t* failed, float* poisoned) {
        all.loss = loss;
        all.failed = failed;
        all.poisoned = poisoned;
    }

    [[nodiscard]] bool empty() const { return all.parts == 0 && all.loss == nullptr; }
    /// The number of blocks: those of the parts, and one more if no part contains the element that may become a NaN.
    [[nodiscard]] unsigned blocks() const {
        bool in_part = all.loss == nullptr;
        for (int p = 0; p < all.parts; ++p) {
            const GradientPart& each = all.part[p];
            in_part = in_part || (all.poisoned >= each.to && all.poisoned < each.to + each.count);
        }
        return (all.parts == 0 ? 0 : all.part[all.parts - 1].end) + (in_part ? 0 : 1);
    }
    void launch(const CudaContext& context) const {
        launch_kernel(gradient_parts_kernel<block_threads>, blocks(), block_threads, context, all);
    }

    GradientParts all{};

private:
    void add(GradientPart part) {
        constexpr std::int64_t max_blocks = 1024;
        const std::int64_t size = part.packs ? (part.count + GradientParts::n - 1) / GradientParts::n : part.count;
        const std::int64_t per_block =
            part.kind == GradientPart::Kind::add_slabs ? GradientParts::slab_channels : block_threads;
        std::int64_t blocks = (size + per_block - 1) / per_block;
        if (part.kind != GradientPart::Kind::add_slabs) blocks = std::min(blocks, max_blocks);
        part.end = (all.parts == 0 ? 0 : all.part[all.parts - 1].end) + static_cast<unsigned>(blocks);
        all.part[all.parts++] = part;
    }
};

/// The collected pieces, where takes(pieces) is true, or new ones. With `lasts` they are deferred where the context
/// defers work.
template <class Takes>
[[nodiscard]] JoinedGradients& collected_gradients(const CudaContext& context, bool lasts, Takes takes) {
    if (lasts && context.defers()) {
        if (!takes(context.deferred<JoinedGradients>())) context.launch_deferred();
        return context.deferred<JoinedGradients>();
    }
    if (!takes(context.joined<JoinedGradients>())) context.launch_joined();
    return context.joined<JoinedGradients>();
}

/// Queues to = or += from, widened, joined with other such work. `lasts`: whether `from` keeps its values until the end
/// of the pass.
template <class T>
void queue_widened_gradient(const CudaContext& context, const T* from, float* to, std::int64_t count, bool accumulate,
                            bool lasts) {
    const auto takes = [&](const JoinedGradients& each) { return each.takes_part(to, count); };
    collected_gradients(context, lasts, takes).add_widened(from, to, count, accumulate);
}

/// Queues sum[channel] = or += the sum of partial[slab, channel] over the slabs, in the same way.
inline void queue_slab_sums(const CudaContext& context, const float* partial, std::int64_t slabs, std::int64_t channels,
                            bool accumulate, float* sum, bool lasts) {
    if (slabs == 1) return queue_widened_gradient(context, partial, sum, channels, accumulate, lasts);
    const auto takes = [&](const JoinedGradients& each) { return each.takes_part(sum, channels); };
    collected_gradients(context, lasts, takes).add_slabs(partial, slabs, channels, accumulate, sum);
}

}}}  // namespace cupola::CUPOLA_ABI::impl
