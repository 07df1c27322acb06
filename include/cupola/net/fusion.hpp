// SPDX-License-Identifier: Apache-2.0
//
// The fusion pass: rows of a network to stages of a plan. `Conv2d, ReLU` and `Linear, ReLU` become one stage whose
// operation applies the activation as it writes; the tensor between them never exists. Where MaxPool2d follows, the mask
// that ReLU puts on the gradient is put on the pooled gradient, which is a quarter of the size: a maximum that is not
// positive had no positive input, and a positive one has its gradient go to a positive input. The convolution's output is
// then not kept for backward. A user writes plain layers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <cupola/net/table.hpp>

namespace cupola::inline CUPOLA_ABI {

/// One operation of a plan: rows [row, row + rows) of the network.
struct StageInfo {
    std::size_t row = 0, rows = 1;
    Shape input, output;
    Activation activation = Activation::none;
    bool backward_reads_input = true, backward_reads_output = true, view = false, has_parameters = false;
    /// See Site.
    bool masked_by_next = false, masks_for_previous = false;
};

/// Writes the stages of `rows` to `stages` (as long as `rows`) and returns how many there are.
[[gnu::cold]] constexpr std::size_t fuse(std::span<const Row> rows, bool fusion, std::span<StageInfo> stages) {
    std::size_t count = 0;
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
                 .has_parameters = row.parameters.count > 0};
        const bool relu_follows = i + 1 < rows.size() && rows[i + 1].traits.activation == Activation::relu;
        if (fusion && row.traits.absorbs_relu && relu_follows) {
            stage.rows = 2;
            stage.activation = Activation::relu;
            stage.backward_reads_output = true;  // the mask is where the output is positive
            ++i;
        }
    }
    for (std::size_t k = 0; k + 1 < count; ++k) {
        StageInfo &stage = stages[k], &next = stages[k + 1];
        if (stage.activation != Activation::relu || !rows[next.row].traits.masks_for_relu) continue;
        stage.masked_by_next = next.masks_for_previous = true;
        stage.backward_reads_output = rows[stage.row].traits.backward_reads_output;
        next.backward_reads_output = true;
    }
    return count;
}

}  // namespace cupola::inline CUPOLA_ABI
