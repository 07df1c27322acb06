// SPDX-License-Identifier: Apache-2.0
//
// The fusion pass: rows of a network to stages of a plan. `Conv2d, ReLU` and `Linear, ReLU` become one stage whose
// operation applies the activation as it writes; the tensor between them never exists. Where MaxPool2d follows, the
// mask that ReLU puts on the gradient is put on the pooled gradient, which is a quarter of the size: a maximum that is
// not positive had no positive input, and a positive one has its gradient go to a positive input. The convolution's
// output is then not kept for backward. MaxPool2d and LocalResponseNorm, in either order, are one stage too, which does
// the same for a ReLU before it. A user writes plain layers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <cupola/net/table.hpp>

namespace cupola::inline CUPOLA_ABI {

/// No row: a stage that has nothing folded in.
inline constexpr std::size_t no_row = static_cast<std::size_t>(-1);

/// Two rows of these kinds in one stage.
enum class FusedPair : std::uint8_t { none, pooled_norm, normed_pool };

/// One operation of a plan: rows [row, row + rows) of the network. It writes value k + 1 if it is stage k; value 0 is
/// the batch.
struct StageInfo {
    std::size_t row = 0, rows = 1;
    Shape input, output;
    Activation activation = Activation::none;
    FusedPair pair = FusedPair::none;
    bool backward_reads_input = true, backward_reads_output = true, view = false, has_parameters = false;
    /// Outside training: the row of a batch normalisation whose scale and shift are folded into this stage's weights.
    std::size_t folded_norm = no_row;
    /// See Site.
    bool masked_by_next = false, masks_for_previous = false;
    /// The values that it reads.
    std::size_t reads = 0, also_reads = no_value;
    /// Of a Fork, which is a view with two readers: the stage that is the second, and whether it reads it as its second
    /// input.
    std::size_t second_reader = no_value;
    bool second_reader_adds = false;
};

/// What rows i and i + 1 are together.
[[nodiscard]] constexpr FusedPair fused_pair(std::span<const Row> rows, std::size_t i) {
    const LayerTraits &first = rows[i].traits, &second = rows[i + 1].traits;
    const auto pools = [&](std::size_t k) {
        return rows[k].traits.pools && place_is_a_byte(rows[k].traits.pooling(rows[k].input));
    };
    if (second.normalizes_locally && pools(i)) return FusedPair::pooled_norm;
    if (first.normalizes_locally && pools(i + 1)) return FusedPair::normed_pool;
    return FusedPair::none;
}

/// Writes the stages of `rows` to `stages` (as long as `rows`) and returns how many there are. `training` says what
/// they are for.
[[gnu::cold]] constexpr std::size_t fuse(std::span<const Row> rows, bool fusion, std::span<StageInfo> stages,
                                         bool training = true) {
    std::size_t count = 0;
    std::vector<std::size_t> value_of_row(rows.size() + 1, 0);  // the stages' number of each value
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const Row& row = rows[i];
        StageInfo& stage = stages[count++];
        stage = {.row = i,
                 .rows = 1,
                 .input = row.input,
                 .output = row.output,
                 .activation = Activation::none,
                 .backward_reads_input = row.traits.backward_reads_input,
                 .backward_reads_output = row.traits.backward_reads_output,
                 .view = row.traits.view,
                 .has_parameters = row.parameters.count > 0,
                 .reads = value_of_row[row.reads],
                 .also_reads = row.also_reads == no_value ? no_value : value_of_row[row.also_reads]};
        // A Fork's second reader is the one that is not the stage after it.
        if (stage.reads > 0 && stage.reads != count - 1 && rows[stages[stage.reads - 1].row].traits.two_readers) {
            stages[stage.reads - 1].second_reader = count - 1;
        }
        if (row.also_reads != no_value && rows[row.also_reads - 1].traits.two_readers) {
            stages[stage.also_reads - 1].second_reader = count - 1;
            stages[stage.also_reads - 1].second_reader_adds = true;
        }
        const auto next_reads_this = [&] { return i + 1 < rows.size() && rows[i + 1].reads == i + 1; };
        if (fusion && !training && row.traits.absorbs_norm && next_reads_this() &&
            rows[i + 1].traits.statistics_epsilon > 0) {
            stage.folded_norm = ++i;
            ++stage.rows;
        }
        const bool relu_follows = next_reads_this() && rows[i + 1].traits.activation == Activation::relu;
        if (fusion && row.traits.absorbs_relu && relu_follows) {
            ++stage.rows;
            stage.activation = Activation::relu;
            stage.backward_reads_output = true;  // the mask is where the output is positive
            ++i;
        }
        if (fusion && next_reads_this()) stage.pair = fused_pair(rows, i);
        if (stage.pair != FusedPair::none) {
            ++stage.rows;
            stage.output = rows[++i].output;
            // What the second reads of the first in backward is the stage's own.
            stage.backward_reads_input = stage.pair == FusedPair::normed_pool;
            stage.backward_reads_output = false;
        }
        value_of_row[i + 1] = count;
    }
    for (std::size_t k = 0; k + 1 < count; ++k) {
        StageInfo &stage = stages[k], &next = stages[k + 1];
        if (stage.activation != Activation::relu || next.reads != k + 1) continue;
        if (!rows[next.row].traits.masks_for_relu && next.pair == FusedPair::none) continue;
        stage.masked_by_next = next.masks_for_previous = true;
        stage.backward_reads_output = rows[stage.row].traits.backward_reads_output;
        if (next.pair == FusedPair::none) next.backward_reads_output = true;
    }
    return count;
}

}  // namespace cupola::inline CUPOLA_ABI
