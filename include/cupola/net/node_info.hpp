// SPDX-License-Identifier: Apache-2.0
//
// A node of a plan as data: the output of the fusion pass (net/fusion.hpp), and the input of the memory plan and of the
// plan.
#pragma once

#include <cstddef>

#include <cupola/net/table.hpp>

namespace cupola::inline CUPOLA_ABI {

/// No layer: nothing is folded into the node.
inline constexpr std::size_t no_layer = static_cast<std::size_t>(-1);
/// No pattern: the node runs the operation of its first layer.
inline constexpr std::size_t no_pattern = static_cast<std::size_t>(-1);

/// One operation of a plan: layers [layer, layer + layers) of the network. Node k writes value k + 1; value 0 is the
/// batch.
struct NodeInfo {
    std::size_t layer = 0, layers = 1;
    Shape input, output;
    /// The row of `fusion_patterns` whose operation the node runs instead of that of its first layer.
    std::size_t pattern = no_pattern;
    Activation activation = Activation::none;
    bool backward_reads_input = true, backward_reads_output = true, view = false, has_parameters = false;
    /// Outside training: the batch normalisation layer whose scale and shift are folded into this node's weights.
    std::size_t folded_norm = no_layer;
    /// Whether its operation can mask its gradient for a ReLU in the node before it, and whether it does: see
    /// BuildContext.
    bool can_apply_relu_mask = false, relu_mask_applied_by_next = false, applies_relu_mask_of_previous = false;
    /// The values that it reads.
    std::size_t reads = 0, also_reads = no_value;
    /// For a Fork, which is a view with two readers: the node that is the second reader, and whether that node reads it
    /// as its second input.
    std::size_t second_reader = no_value;
    bool second_reader_adds = false;
};

}  // namespace cupola::inline CUPOLA_ABI
