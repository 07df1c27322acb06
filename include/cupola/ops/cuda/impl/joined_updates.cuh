// SPDX-License-Identifier: Apache-2.0
//
// The updates by one formula of several segments of an arena as one kernel, and in the same kernel the moving averages
// of the arena, the rounded copies of its parameters, and the copy of the step's numbers for the host: see the joined
// work of CudaContext.
//
// Where the GPU launches cooperative grids, the work at the end of a step that precedes the update (step_sums.cuh) is
// in the same kernel, too: all blocks wait for each other between the last pieces of the gradients, their mean with the
// sums of squares, the scale that clips, and the update. The blocks of the grid share the work of the blocks that each
// part would have as a separate kernel, so the bits are the same.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>

#include <cupola/core/element_type.hpp>
#include <cupola/device/cuda.hpp>
#include <cupola/ops/cuda/impl/launch.cuh>
#include <cupola/ops/cuda/impl/step_sums.cuh>
#include <cupola/ops/element_update.hpp>
#include <cupola/ops/gradient_terms.hpp>
#include <cupola/ops/impl/kernel_parts/pack.hpp>
#include <cupola/ops/impl/kernel_parts/step_elements.hpp>
#include <cupola/ops/impl/kernel_parts/update_elements.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The elements that a thread updates.
inline constexpr int update_pack = pack_size<float>;

/// Elements of an arena that are rounded after their update, to BFloat16 or to Float16.
struct RoundedPart {
    const float* from;
    void* to;
    std::int64_t count;
    bool half;

    template <int n>
    CUPOLA_HOST_DEVICE void at(std::int64_t i) const {
        if (half) {
            write<n>(i, static_cast<Float16*>(to));
        } else {
            write<n>(i, static_cast<BFloat16*>(to));
        }
    }

private:
    /// With the bits of T's constructor.
    template <int n, class T>
    CUPOLA_HOST_DEVICE void write(std::int64_t i, T* rounded) const {
        float value[n];
        load_floats<n>(from + i, value);
        Pack<T, n> pack;
        CUPOLA_UNROLL
        for (int k = 0; k < n; ++k) pack.element[k] = T(value[k]);
        pack_at<n>(rounded + i) = pack;
    }
};

/// The part of joined updates that does not depend on their formula: what precedes them, and the moving averages, the
/// rounded copies and the copy for the host, which follow them.
struct JoinedUpdatesBase {
    static constexpr int max_parts = 16, max_rounded = 32;

    /// Adds the averages `to` of the arena of `size` elements that begins at `from`. Returns false if they cannot be
    /// computed in the same kernel.
    [[nodiscard]] bool add_averages(const ConstantsOf<UpdateConstants<MovingAverageFormula>>& constants, float* to,
                                    const float* from, std::int64_t size) {
        if (averages != nullptr || rounded_parts > 0 || !aligned_for_packs(to, from)) return false;
        for (int k = 0; k < parts; ++k) {
            const std::int64_t begin = part_begin[k] - from;
            if (!packs[k] || begin < 0 || begin + count[k] > size || begin % update_pack != 0) return false;
        }
        averages = to;
        parameters = from;
        elements = size;
        average_constants = constants;
        return true;
    }
    /// The same for a rounded copy of parameters; called after add_averages().
    template <class T>
    [[nodiscard]] bool add_rounded(const float* from, T* to, std::int64_t size) {
        if (rounded_parts == max_rounded || !aligned_for_packs(from, to)) return false;
        for (int k = 0; k < parts; ++k) {
            if (!packs[k]) return false;
        }
        const float* const first = parts > 0 ? part_begin[0] : from;
        if ((from - first) % update_pack != 0) return false;
        if (averages != nullptr && (from < parameters || from + size > parameters + elements)) return false;
        rounded[rounded_parts++] = {from, to, size, std::same_as<T, Float16>};
        return true;
    }

    /// Adds a copy of numbers that the updates do not change.
    void add_copy(const CopyToPlace& of_numbers) { copy = of_numbers; }

    JoinedStepSums before{};
    int parts = 0;
    /// The parameters of each part, in ascending order.
    float* part_begin[max_parts]{};
    std::int64_t count[max_parts]{};
    /// Whether the part's arrays are aligned to 16 bytes.
    bool packs[max_parts]{};
    float* averages = nullptr;
    /// The arena, if there are averages.
    const float* parameters = nullptr;
    std::int64_t elements = 0;
    ConstantsOf<UpdateConstants<MovingAverageFormula>> average_constants{};
    int rounded_parts = 0;
    RoundedPart rounded[max_rounded]{};
    CopyToPlace copy{};
};

/// The updates of several parts, one pack per thread: an index is that of a pack of all parts, one after another, or of
/// a unit of the copy after them.
template <class F>
struct UpdatePartsAt {
    UpdateAt<F> part[JoinedUpdatesBase::max_parts]{};
    std::int64_t count[JoinedUpdatesBase::max_parts]{};
    bool packs[JoinedUpdatesBase::max_parts]{};
    /// The index at which each part ends.
    std::int64_t end[JoinedUpdatesBase::max_parts]{};
    const std::int32_t* healthy = nullptr;
    std::int64_t packs_of_parts = 0;
    CopyToPlace copy{};

    CUPOLA_HOST_DEVICE void operator()(std::int64_t i) const {
        if (i >= packs_of_parts) return copy(i - packs_of_parts);
        if (healthy != nullptr && *healthy == 0) return;
        int k = 0;
        while (i >= end[k]) ++k;
        if (k > 0) i -= end[k - 1];
        const UpdateAt<F> body = part[k];
        if (packs[k]) {
            InPacks<update_pack, UpdateAt<F>>{count[k], body}(i);
        } else {
            body.template at<1>(i);
        }
    }
};

/// The updates of the parts of an arena, the averages of the whole arena, if there are any, and the rounded copies: an
/// index is that of a pack of the arena, or of a unit of the copy after it. Each reads what the same thread has
/// written.
template <class F>
struct UpdateArenaAt {
    UpdateAt<F> part[JoinedUpdatesBase::max_parts]{};
    std::int64_t count[JoinedUpdatesBase::max_parts]{};
    /// The elements of the arena at which each part begins.
    std::int64_t begin[JoinedUpdatesBase::max_parts]{};
    int parts = 0;
    bool averages = false;
    UpdateAt<MovingAverageFormula> average{};
    std::int64_t elements = 0;
    int rounded_parts = 0;
    RoundedPart rounded[JoinedUpdatesBase::max_rounded]{};
    std::int64_t rounded_begin[JoinedUpdatesBase::max_rounded]{};
    const std::int32_t* healthy = nullptr;
    CopyToPlace copy{};

    CUPOLA_HOST_DEVICE void operator()(std::int64_t i) const {
        if (i >= packs()) return copy(i - packs());
        if (healthy != nullptr && *healthy == 0) return;
        const std::int64_t first = i * update_pack;
        int k = 0;
        while (k < parts && first >= begin[k] + count[k]) ++k;
        if (k < parts && first >= begin[k]) {
            const UpdateAt<F> body = part[k];
            InPacks<update_pack, UpdateAt<F>>{count[k], body}((first - begin[k]) / update_pack);
        }
        if (averages) InPacks<update_pack, UpdateAt<MovingAverageFormula>>{elements, average}(i);
        for (int r = 0; r < rounded_parts; ++r) {
            const std::int64_t at = first - rounded_begin[r];
            if (at < 0 || at >= rounded[r].count) continue;
            const RoundedPart rounding = rounded[r];
            InPacks<update_pack, RoundedPart>{rounding.count, rounding}(at / update_pack);
        }
    }
    [[nodiscard]] CUPOLA_HOST_DEVICE std::int64_t packs() const { return (elements + update_pack - 1) / update_pack; }
};

/// The end of a step: the work that precedes an update, and the update as a functor of the indices [0, count).
template <class Update>
struct StepEnd {
    JoinedGradients gradients;
    unsigned gradient_blocks;
    StepSumsTable sums;
    std::int64_t sum_blocks;
    ClippingTable clipping;
    Update update;
    std::int64_t count;
    /// The counter of the grid's barriers: CudaContext::grid_counter().
    unsigned* counter;
};

/// A cooperative grid of any number of blocks. A template, because nvcc ignores `inline` for a kernel, and warns of it.
template <int threads, class Update>
__global__ void __launch_bounds__(threads, 1024 / threads)
    step_end_kernel(const StepEnd<Update> __grid_constant__ step) {
    begin_kernel();
    for (unsigned block = blockIdx.x; block < step.gradient_blocks; block += gridDim.x) {
        run_gradient_block(step.gradients.all, block);
        __syncthreads();  // its shared memory has been read
    }
    if (step.gradient_blocks > 0) grid_barrier(step.counter);
    run_mean(step.sums, static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x,
             static_cast<std::int64_t>(gridDim.x) * blockDim.x);
    for (std::int64_t block = blockIdx.x; block < step.sum_blocks; block += gridDim.x)
        run_squares<threads>(step.sums, block);
    if (step.sums.mean_count > 0 || step.sum_blocks > 0) grid_barrier(step.counter);
    if (step.clipping.spans > 0) {
        run_clipping<threads>(step.clipping);
        grid_barrier(step.counter);
    }
    run_strided(step.count, step.update);
}

/// Queues `update(i)` for i in [0, count) after `before`, as one kernel where the GPU can. Returns the number of
/// launches.
template <class Update>
int launch_step_end(const CudaContext& context, const JoinedStepSums& before, std::int64_t count,
                    const Update& update) {
    constexpr auto* kernel = &step_end_kernel<block_threads, Update>;
    const auto blocks_for = [](std::int64_t indices) { return (indices + block_threads - 1) / block_threads; };
    if (!before.empty() && before.joins_update()) {
        const unsigned gradient_blocks = before.gradients.empty() ? 0 : before.gradients.blocks();
        const std::int64_t most = std::max({blocks_for(count), static_cast<std::int64_t>(gradient_blocks),
                                            blocks_for(before.mean_size()), before.partials, before.clipping.blocks});
        const unsigned blocks = cooperative_grid(context, "the end of a step", kernel, block_threads, most);
        if (blocks > 0) {
            const StepEnd<Update> step{before.gradients,
                                       gradient_blocks,
                                       before.filled(context),
                                       before.partials,
                                       before.filled_clipping(context),
                                       update,
                                       count,
                                       context.grid_counter()};
            launch_cooperative(kernel, blocks, block_threads, context, step);
            return 1;
        }
    }
    const int launches = before.launch(context);
    impl::launch(context, count, update);
    return launches + (count > 0 ? 1 : 0);
}

/// The updates of parts by F that wait to be launched together.
template <class F>
struct JoinedUpdates : JoinedUpdatesBase {
    using Base = JoinedUpdatesBase;

    UpdateAt<F> part[max_parts]{};

    /// Whether the part can be updated in the same kernel as the others, which it has to follow in memory.
    [[nodiscard]] bool takes(const float* w) const {
        return parts < max_parts && averages == nullptr &&
               (parts == 0 || w >= part_begin[parts - 1] + count[parts - 1]);
    }
    void add(const UpdateAt<F>& body, std::int64_t size, bool in_packs) {
        part[parts] = body;
        part_begin[parts] = body.w;
        count[parts] = size;
        packs[parts++] = in_packs;
    }

    int launch(const CudaContext& context) const {
        const std::int32_t* const healthy = context.step_scalars().healthy;
        if (averages != nullptr || rounded_parts > 0) return launch_arena(context, healthy);
        UpdatePartsAt<F> each;
        each.healthy = healthy;
        each.copy = copy;
        std::int64_t end = 0;
        for (int k = 0; k < parts; ++k) {
            each.part[k] = part[k];
            each.count[k] = count[k];
            each.packs[k] = packs[k];
            each.end[k] = end += packs[k] ? (count[k] + update_pack - 1) / update_pack : count[k];
        }
        each.packs_of_parts = end;
        return launch_step_end(context, before, end + copy.units, each);
    }

private:
    int launch_arena(const CudaContext& context, const std::int32_t* healthy) const {
        const float* first = averages != nullptr ? parameters : part_begin[0];
        const float* end = averages != nullptr ? parameters + elements : first;
        for (int k = 0; k < parts && averages == nullptr; ++k)
            end = std::max<const float*>(end, part_begin[k] + count[k]);
        for (int r = 0; r < rounded_parts && averages == nullptr; ++r) {
            first = std::min(first, rounded[r].from);
            end = std::max(end, rounded[r].from + rounded[r].count);
        }
        UpdateArenaAt<F> each;
        each.parts = parts;
        each.averages = averages != nullptr;
        each.average = {average_constants, averages, parameters, {}, nullptr};
        each.elements = end - first;
        each.rounded_parts = rounded_parts;
        each.healthy = healthy;
        each.copy = copy;
        for (int k = 0; k < parts; ++k) {
            each.part[k] = part[k];
            each.count[k] = count[k];
            each.begin[k] = part_begin[k] - first;
        }
        for (int r = 0; r < rounded_parts; ++r) {
            each.rounded[r] = rounded[r];
            each.rounded_begin[r] = rounded[r].from - first;
        }
        return launch_step_end(context, before, each.packs() + copy.units, each);
    }
};

/// The collected updates by F; what was collected before them for the end of a step is a part of them.
template <class F>
[[nodiscard]] JoinedUpdates<F>& joined_updates(const CudaContext& context) {
    auto* const collected = context.joined_as<JoinedStepSums>();
    if (collected == nullptr) return context.joined<JoinedUpdates<F>>();
    const JoinedStepSums before = *collected;
    context.discard_joined();
    JoinedUpdates<F>& result = context.joined<JoinedUpdates<F>>();
    result.before = before;
    return result;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
