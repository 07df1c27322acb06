// SPDX-License-Identifier: Apache-2.0
//
// A chain of linear layers as one kernel: the products of layers that follow each other, forward and backward, with
// bias, ReLU, the masks of ReLUs, the sums for biases, and a softmax cross-entropy between both directions. It is
// joined work (CudaContext::joined): each operation adds its part, and what is collected is launched as soon as other
// work is queued. So a chain is whatever was queued without other work in between: the end of a classifier's network
// and its loss, or a single layer.
//
// An operation's work is a phase, and what it computes side by side are parts of that phase. The blocks of a grid wait
// for each other between two phases; on a device that cannot run all blocks at the same time, each phase is a launch. A
// phase consists of units, one for a block at a time. Their number and the order of each sum depend on the shapes
// alone, so the bits are the same in either case and on each GPU.
//
// The products of layers that are large enough to fill a GPU belong to cuBLASLt: see LinearChainLimits.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <cupola/device/cuda.hpp>
#include <cupola/ops/cuda/impl/launch.cuh>
#include <cupola/ops/cuda/impl/row_lanes.cuh>
#include <cupola/ops/cuda/impl/sums_memory.hpp>
#include <cupola/ops/cuda/impl/warp_tile.cuh>
#include <cupola/ops/impl/kernel_parts/pack.hpp>
#include <cupola/ops/linear.hpp>
#include <cupola/ops/softmax_cross_entropy.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Which layers belong to a chain.
struct LinearChainLimits {
    /// The maximum number of samples, which also limits the memory for the losses of rows; of weights, so that those of
    /// a few layers stay in a GPU's L2 cache; and of multiply-adds of a product, whose time should be that of a few
    /// launches. No tensor then has 2^31 elements.
    static constexpr std::int64_t samples = 1024, weights = std::int64_t{1} << 21, products = std::int64_t{1} << 28;
    /// The maximum number of classes of the cross-entropy.
    static constexpr std::int64_t classes = 1024;

    [[nodiscard]] static constexpr bool fits(std::int64_t batch, const LinearShape& shape) {
        const std::int64_t inputs = shape.in_features, outputs = shape.out_features;
        return batch >= 1 && batch <= samples && inputs >= 1 && outputs >= 1 && inputs <= weights &&
               outputs <= weights / inputs && batch <= products / (inputs * outputs);
    }
};

/// What a part of a phase computes, with n samples, i inputs and o outputs of a layer.
enum class ChainStep : std::uint8_t {
    output,           ///< [n, o]: relu(X W^T + b)
    input_gradient,   ///< [n, i]: G W, masked where X is not positive; and its sums over 32 samples
    weight_gradient,  ///< [o, i]: G^T X
    bias_gradient,    ///< [o]: the sums over the samples of G, which is `to`, and is first masked there
};

template <class T>
struct ChainPart {
    ChainStep step = ChainStep::output;
    bool relu = false, accumulate = false, left_packs = false, right_packs = false;
    /// The warps that share a square of sums, each of which adds a part of the terms: a power of two, at most 8.
    std::uint8_t split = 1;
    /// The extents of the result, and the number of terms of each sum.
    int rows = 0, columns = 0, depth = 0;
    const T *left = nullptr, *right = nullptr;
    /// Elements of T; floats for a gradient of weights.
    void* to = nullptr;
    const float* bias = nullptr;
    /// Has the shape of `to`; null without a mask.
    const T* mask = nullptr;
    /// For an input gradient, a row of `columns` sums per 32 rows; for a bias gradient, one row. May be null.
    float* sums = nullptr;
    /// The first unit of the phase's next part.
    int end = 0;
};

template <class T>
struct ChainParts {
    static constexpr int max_parts = 24, max_phases = 24;

    int phases, parts;
    ChainPart<T> part[max_parts];
    /// The first part of the next phase, and the units of the phase.
    int part_end[max_phases], units[max_phases];
};

struct NoChainLoss {};
/// The rows of the cross-entropy are units of a phase of their own; the next phase has a unit that sums them.
template <class T, class Targets>
struct ChainLoss {
    CrossEntropyRow<T, Targets> of;
    LossReport* report;
    RowLoss* of_rows;
    int phase;
};

inline constexpr int chain_warps = block_threads / 32;

/// A unit of a product: a warp per square of sums, or several that share one. Called per sum: before(row, column),
/// whose result, which may be in memory, is read for several rows at once, and then finish(row, column, sum, result of
/// before), which returns what is stored.
template <class Tile, bool left_along, bool right_along, class T, class Before, class Finish>
__device__ void chain_product(const ChainPart<T>& part, int unit, std::byte (&shared)[chain_warps][warp_tile_bytes],
                              Before before, Finish finish) {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const int split = part.split, first_warp = warp / split * split, piece = warp - first_warp;
    const int across = (part.columns + tile_side - 1) / tile_side,
              tiles = (part.rows + tile_side - 1) / tile_side * across;
    const int tile = unit * (chain_warps / split) + warp / split;
    const int row = tile / across * tile_side, column = tile % across * tile_side;
    if (tile < tiles) {
        const int length = (part.depth + tile_side * split - 1) / (tile_side * split) * tile_side;
        const int begin = piece * length, end = begin + length < part.depth ? begin + length : part.depth;
        sum_tile<Tile, left_along, right_along>(TileFactor<T>{part.left, part.rows, part.depth, part.left_packs},
                                                TileFactor<T>{part.right, part.columns, part.depth, part.right_packs},
                                                row, column, begin, end, shared[warp]);
    }
    __syncthreads();
    auto* const sums = reinterpret_cast<float*>(shared[first_warp]) + lane;
    if (tile < tiles) {
        constexpr int at_once = 4;
        CUPOLA_NO_UNROLL
        for (int first = piece; first < tile_side; first += at_once * split) {
            decltype(before(row, column)) read[at_once]{};
            CUPOLA_UNROLL
            for (int k = 0; k < at_once; ++k) {
                const int r = row + first + k * split;
                if (r < part.rows && column + lane < part.columns) read[k] = before(r, column + lane);
            }
            CUPOLA_UNROLL
            for (int k = 0; k < at_once; ++k) {
                const int r = first + k * split;
                if (r >= tile_side) break;
                float* const at = sums + r * tile_row;
                float sum = *at;
                for (int w = 1; w < split; ++w)
                    sum +=
                        *reinterpret_cast<const float*>(reinterpret_cast<const std::byte*>(at) + w * warp_tile_bytes);
                const bool exists = row + r < part.rows && column + lane < part.columns;
                *at = exists ? finish(row + r, column + lane, sum, read[k]) : 0.0F;
            }
        }
    }
    if (part.sums == nullptr) return;
    __syncthreads();
    if (tile >= tiles || piece != 0 || column + lane >= part.columns) return;
    float sum = 0;
    for (int r = 0; r < tile_side; ++r) sum += sums[r * tile_row];
    part.sums[row / tile_side * part.columns + column + lane] = sum;
}

/// A unit of the sums for a bias: 32 columns.
template <class T>
__device__ void chain_bias_gradient(const ChainPart<T>& part, int unit, float* sums) {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const int column = unit * 32 + lane;
    auto* const gradient = static_cast<T*>(part.to) + column;
    float sum = 0;
    if (column < part.columns) {
        for (int r = warp; r < part.rows; r += chain_warps) {
            T value = gradient[r * part.columns];
            if (part.mask != nullptr && !(static_cast<float>(part.mask[r * part.columns + column]) > 0.0F))
                gradient[r * part.columns] = value = T{};
            sum += static_cast<float>(value);
        }
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    if (warp != 0 || column >= part.columns || part.sums == nullptr) return;
    for (int k = 1; k < chain_warps; ++k) sum += sums[32 * k + lane];
    part.sums[column] = part.accumulate ? part.sums[column] + sum : sum;
}

template <class Tile, class T>
__device__ void run_chain_part(const ChainPart<T>& part, int unit, std::byte (&shared)[chain_warps][warp_tile_bytes]) {
    const auto place = [&](int row, int column) { return row * part.columns + column; };
    if (part.step == ChainStep::output) {
        chain_product<Tile, true, true>(
            part, unit, shared, [&](int, int column) { return part.bias != nullptr ? part.bias[column] : 0.0F; },
            [&](int row, int column, float sum, float bias) {
                if (part.bias != nullptr) sum += bias;
                const T value(part.relu && sum < 0.0F ? 0.0F : sum);  // a NaN is kept
                static_cast<T*>(part.to)[place(row, column)] = value;
                return static_cast<float>(value);
            });
    } else if (part.step == ChainStep::input_gradient) {
        chain_product<Tile, true, false>(
            part, unit, shared,
            [&](int row, int column) {
                return part.mask == nullptr || static_cast<float>(part.mask[place(row, column)]) > 0.0F;
            },
            [&](int row, int column, float sum, bool passes) {
                const T value(passes ? sum : 0.0F);
                static_cast<T*>(part.to)[place(row, column)] = value;
                return static_cast<float>(value);
            });
    } else if (part.step == ChainStep::weight_gradient) {
        auto* const to = static_cast<float*>(part.to);
        chain_product<Tile, false, false>(
            part, unit, shared, [&](int row, int column) { return part.accumulate ? to[place(row, column)] : 0.0F; },
            [&](int row, int column, float sum, float old) {
                if (part.accumulate) sum = old + sum;
                to[place(row, column)] = sum;
                return sum;
            });
    } else {
        chain_bias_gradient(part, unit, reinterpret_cast<float*>(shared));
    }
}

/// A unit of the rows of the loss, a warp per row; and the sum of all rows.
template <class T, class Targets>
__device__ void run_chain_loss(const ChainLoss<T, Targets>& loss, int unit) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const std::int64_t row = static_cast<std::int64_t>(unit) * chain_warps + threadIdx.x / 32;
    const RowLoss of_row = loss.of(RowLanes<32>(lane, row < loss.of.rows), row);
    if (lane == 0 && row < loss.of.rows) loss.of_rows[row] = of_row;
}
template <class T, class Targets>
__device__ void run_chain_report(const ChainLoss<T, Targets>& loss) {
    if (threadIdx.x >= 32) return;
    const LossReport report =
        report_of_rows(loss.of, loss.of.rows, report_of_lane(loss.of, loss.of.rows, loss.of_rows));
    if (threadIdx.x == 0) *loss.report = report;
}

/// Runs the phases [begin, end). With more than one, the grid must be cooperative.
template <class T, bool tf32, class Loss>
__global__ void __launch_bounds__(block_threads, 2)
    linear_chain_kernel(const ChainParts<T> __grid_constant__ chain, const Loss __grid_constant__ loss, int begin,
                        int end, [[maybe_unused]] unsigned* arrived) {
    begin_kernel();
    alignas(32) __shared__ std::byte shared[chain_warps][warp_tile_bytes];
    for (int phase = begin; phase < end; ++phase) {
        if (phase > begin) grid_barrier(arrived);
        const int first_part = phase == 0 ? 0 : chain.part_end[phase - 1];
        for (int unit = static_cast<int>(blockIdx.x); unit < chain.units[phase]; unit += static_cast<int>(gridDim.x)) {
            int p = first_part;
            while (p < chain.part_end[phase] && unit >= chain.part[p].end) ++p;
            if (p < chain.part_end[phase]) {
                const int first_unit = p == first_part ? 0 : chain.part[p - 1].end;
                run_chain_part<WarpTile<T, tf32>>(chain.part[p], unit - first_unit, shared);
            } else if constexpr (!std::same_as<Loss, NoChainLoss>) {
                if (phase == loss.phase) {
                    run_chain_loss(loss, unit);
                } else {
                    run_chain_report(loss);
                }
            }
            __syncthreads();  // the shared memory has been read
        }
    }
}

/// The collected operations.
template <class T>
class LinearChain {
public:
    using Base = LinearChain;

    /// Whether an operation with `parts` parts can be added.
    [[nodiscard]] bool takes(int parts) const {
        return all_.parts + parts <= ChainParts<T>::max_parts && all_.phases < ChainParts<T>::max_phases - 1;
    }
    /// Begins the phase of an operation.
    void begin_phase() {
        all_.part_end[all_.phases] = all_.parts;
        all_.units[all_.phases] = 0;
        ++all_.phases;
    }
    /// Adds a part to the last phase. `split` and `end` are set here.
    void add(ChainPart<T> part) {
        const bool product = part.step != ChainStep::bias_gradient;
        std::int64_t units = (part.columns + tile_side - 1) / tile_side;
        part.split = 1;
        if (product) {
            const std::int64_t tiles = units * ((part.rows + tile_side - 1) / tile_side);
            // Until there are as many warps as a large GPU takes, each with the terms of at least two steps.
            while (part.split < chain_warps && tiles * part.split < enough_warps &&
                   part.depth >= 4 * tile_side * part.split)
                part.split = static_cast<std::uint8_t>(2 * part.split);
            units = (tiles * part.split + chain_warps - 1) / chain_warps;
        }
        const int phase = all_.phases - 1;
        part.end = all_.units[phase] += static_cast<int>(units);
        all_.part[all_.parts++] = part;
        all_.part_end[phase] = all_.parts;
    }

    /// Whether a loss of these logits can be added: they are what the last phase computes.
    [[nodiscard]] bool takes_loss(const T* logits, std::int64_t rows, std::int64_t classes) const {
        if (launch_ != nullptr || all_.phases == 0 || !takes(0) || classes > LinearChainLimits::classes) return false;
        const ChainPart<T>& last = all_.part[all_.parts - 1];
        return last.step == ChainStep::output && last.to == logits && last.rows == rows && last.columns == classes;
    }
    template <class Targets>
    static constexpr bool has_room_for = sizeof(ChainLoss<T, Targets>) <= 512 && alignof(ChainLoss<T, Targets>) <= 8 &&
                                         std::is_trivially_copyable_v<ChainLoss<T, Targets>>;
    /// The losses of rows are in the context's memory for sums.
    template <class Targets>
    void set_loss(const CudaContext& context, const CrossEntropyRow<T, Targets>& of, LossReport* report) {
        static_assert(LinearChainLimits::samples <= max_row_results);
        begin_phase();
        const ChainLoss<T, Targets> loss{of, report, row_results<CrossEntropyRow<T, Targets>>(sums_memory(context)),
                                         all_.phases - 1};
        std::memcpy(loss_, &loss, sizeof loss);
        loss_phase_ = loss.phase;
        all_.units[loss.phase] = static_cast<int>((of.rows + chain_warps - 1) / chain_warps);
        launch_ = &launch_with_loss<Targets>;
    }

    void launch(const CudaContext& context) const {
        if (launch_ != nullptr) return launch_(context, *this);
        launch_with_all(context, all_, NoChainLoss{});
    }

private:
    /// Warps of a grid that occupy a large GPU. The same on each, so that the sums are too.
    static constexpr std::int64_t enough_warps = 1024;

    template <class Targets>
    static void launch_with_loss(const CudaContext& context, const LinearChain& chain) {
        ChainParts<T> all = chain.all_;
        const int report_phase = chain.loss_phase_ + 1;
        if (all.phases == report_phase) {
            all.part_end[report_phase] = all.parts;
            all.units[report_phase] = 0;
            ++all.phases;
        }
        ++all.units[report_phase];
        alignas(ChainLoss<T, Targets>) std::byte bytes[sizeof(ChainLoss<T, Targets>)];
        std::memcpy(bytes, chain.loss_, sizeof bytes);
        launch_with_all(context, all, *reinterpret_cast<const ChainLoss<T, Targets>*>(bytes));
    }
    template <class Loss>
    static void launch_with_all(const CudaContext& context, const ChainParts<T>& all, const Loss& loss) {
        if constexpr (std::same_as<T, float>) {
            if (context.options().tf32) return launch_phases<true>(context, all, loss);
        }
        return launch_phases<false>(context, all, loss);
    }
    template <bool tf32, class Loss>
    static void launch_phases(const CudaContext& context, const ChainParts<T>& all, const Loss& loss) {
        constexpr auto kernel = linear_chain_kernel<T, tf32, Loss>;
        if (all.phases > 1) {
            const std::int64_t most = *std::max_element(all.units, all.units + all.phases);
            const unsigned grid = cooperative_grid(context, "linear layers", kernel, block_threads, most);
            if (grid > 0) {
                launch_cooperative(kernel, grid, block_threads, context, all, loss, 0, all.phases,
                                   context.grid_counter());
                return;
            }
        }
        for (int phase = 0; phase < all.phases; ++phase) {
            if (all.units[phase] == 0) continue;
            launch_kernel(kernel, static_cast<unsigned>(all.units[phase]), block_threads, context, all, loss, phase,
                          phase + 1, nullptr);
        }
    }

    ChainParts<T> all_{};
    int loss_phase_ = 0;
    void (*launch_)(const CudaContext&, const LinearChain&) = nullptr;
    alignas(8) std::byte loss_[512]{};
};

/// The chain that is being collected, with room for an operation of `parts` parts.
template <class T>
[[nodiscard]] LinearChain<T>& linear_chain(const CudaContext& context, int parts) {
    if (!context.joined<LinearChain<T>>().takes(parts)) context.launch_joined();
    auto& chain = context.joined<LinearChain<T>>();
    chain.begin_phase();
    return chain;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
