// SPDX-License-Identifier: Apache-2.0
//
// A node of a plan as data: what the fusion pass (net/fusion.hpp) makes of a network's layers, and what the memory plan and the
// plan itself go by.
#pragma once

#include <cstddef>

#include <cupola/net/table.hpp>

namespace cupola::inline CUPOLA_ABI {

/// No layer: a node that has nothing folded in.
inline constexpr std::size_t no_layer = static_cast<std::size_t>(-1);
/// No pattern: a node that runs the operation of its first layer.
inline constexpr std::size_t no_pattern = static_cast<std::size_t>(-1);

/// One operation of a plan: layers [layer, layer + layers) of the network. It writes value k + 1 if it is node k; value 0 is
/// the batch.
struct NodeInfo {
    std::size_t layer = 0, layers = 1;
    Shape input, output;
    /// The row of `fusion_patterns` whose operation it runs in place of its layers'.
    std::size_t pattern = no_pattern;
    Activation activation = Activation::none;
    bool backward_reads_input = true, backward_reads_output = true, view = false, has_parameters = false;
    /// Outside training: the layer of a batch normalisation whose scale and shift are folded into this node's weights.
    std::size_t folded_norm = no_layer;
    /// Whether its operation can mask its gradient for a ReLU in the node before it, and whether that is done: see
    /// BuildContext.
    bool can_apply_relu_mask = false, relu_mask_applied_by_next = false, applies_relu_mask_of_previous = false;
    /// The values that it reads.
    std::size_t reads = 0, also_reads = no_value;
    /// Of a Fork, which is a view with two readers: the node that is the second, and whether it reads it as its second
    /// input.
    std::size_t second_reader = no_value;
    bool second_reader_adds = false;
};

}  // namespace cupola::inline CUPOLA_ABI
