// SPDX-License-Identifier: Apache-2.0
//
// A node of a plan as data: the output of the fusion pass (net/fusion.hpp), and the input of the memory plan and of the
// plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <cupola/net/table.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

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
    /// `has_parameters`: whether it has parameters that are trained.
    bool backward_reads_input = true, backward_reads_second_input = false, backward_reads_output = true, view = false,
         has_parameters = false;
    /// The batch normalisation layer whose scale and shift are folded into this node's weights.
    std::size_t folded_norm = no_layer;
    /// Outside training: whether it adds to its second input, in its memory, and its formula (net/prediction/join.hpp).
    bool adds_to_second_input = false;
    const OutputFormula* formula = nullptr;
    /// Whether its operation can mask its gradient for a ReLU in the node before it, and whether it does: see
    /// BuildContext.
    bool can_apply_relu_mask = false, relu_mask_applied_by_next = false, applies_relu_mask_of_previous = false;
    /// Whether backward writes the gradient of its input over that of its output.
    bool input_gradient_in_place = false;
    /// The values that it reads.
    std::size_t reads = 0, also_reads = no_value;
    /// As in LayerInfo. The readers aside of a Fork share one gradient: the last of them writes it, and the others add
    /// to it (`adds_gradient`).
    bool reads_aside = false, also_reads_aside = false, only_read_aside = false, adds_gradient = false;
    /// Whether it is an Output: the loss, or the caller, is then the last reader aside of its value.
    bool is_output = false;
    /// For a Fork, which is a view: the last node that reads it aside (for an Output the number of nodes), and whether
    /// that node is a sum of which it is the second input.
    std::size_t second_reader = no_value;
    bool second_reader_adds = false;
    /// Whether its output is computed from a FromInput, or from ids or bytes, and from nothing that has parameters to
    /// train.
    bool untrained = false;
    /// Whether its output is an input of ids or bytes as it is in the batch: a view without a gradient, which no pass
    /// of the activations reads.
    bool is_column = false;
    /// As in LayerInfo, that of its first layer.
    std::size_t recompute_block = no_layer;

    /// Whether it is a Fork that adds two gradients in backward: that of its readers aside to that of the next reader.
    [[nodiscard]] constexpr bool adds_two_gradients() const { return second_reader != no_value && !only_read_aside; }
    /// Whether backward runs it: a view passes its gradient on without work, unless it adds.
    [[nodiscard]] constexpr bool runs_backward() const { return !view || adds_two_gradients() || adds_gradient; }
};

/// The extents of the second input of node `i`; without any if it has none.
[[nodiscard]] constexpr Shape second_input_of(std::span<const NodeInfo> nodes, std::size_t i) {
    const std::size_t value = nodes[i].also_reads;
    if (value == no_value) return {};
    return value == 0 ? nodes[0].input : nodes[value - 1].output;
}

namespace impl {

/// The bytes of the gradients of a layer's frozen parameters, if backward computes them nevertheless.
[[nodiscard, gnu::cold]] inline std::size_t discarded_bytes(std::span<const LayerInfo> layers, std::size_t layer) {
    if (omits_parameter_gradients(layers, layer)) return 0;
    const LayerInfo& owner = parameters_of_layer(layers, layer);
    std::int64_t elements = 0;
    for (std::size_t p = 0; p < owner.parameters.count; ++p) {
        if (owner.frozen[p]) elements += arena_extent(owner.parameters.list[p].shape.size());
    }
    return static_cast<std::size_t>(elements) * sizeof(float);
}

}  // namespace impl

}}  // namespace cupola::CUPOLA_ABI
