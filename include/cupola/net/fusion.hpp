// SPDX-License-Identifier: Apache-2.0
//
// The fusion pass converts the layers of a network to the nodes of a plan. The table in net/fusion_patterns.hpp says
// which layers become one node: `Conv2d, ReLU` and `Linear, ReLU` become one node whose operation applies the
// activation as it writes, so the tensor between them does not exist. MaxPool2d and LocalResponseNorm, in either order,
// become one node too.
//
// Where MaxPool2d or such a pair follows a ReLU, the ReLU's mask is applied to the pooled gradient, which is a quarter
// of the size: a maximum that is not positive had no positive input, and the gradient of a positive maximum goes to a
// positive input. The convolution's output is then not kept for backward. Users write plain layers.
#pragma once

#include <cstddef>
#include <span>

#include <cupola/core/element_type.hpp>
#include <cupola/core/fixed_array.hpp>
#include <cupola/net/fusion_patterns.hpp>
#include <cupola/net/node_info.hpp>
#include <cupola/net/table.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

/// Applies the table to a node that so far consists of layer `node.layer` only.
constexpr void apply_patterns(std::span<const LayerInfo> layers, NodeInfo& node, bool training) {
    const LayerInfo& first = layers[node.layer];
    for (std::size_t row = 0; row < fusion_patterns.size(); ++row) {
        const std::size_t next = node.layer + node.layers;
        if (next == layers.size() || layers[next].reads != next) return;
        const FusionPattern& pattern = fusion_patterns[row];
        if (!pattern.kinds.match(first.kind, layers[next].kind) || (pattern.one_operation && node.layers > 1)) continue;
        const FusionCandidate candidate{node, first, layers[next], next, training};
        if (!pattern.applies(candidate)) continue;
        pattern.fuse(node, candidate);
        ++node.layers;
        if (pattern.one_operation) node.pattern = row;
    }
}

/// Makes `reader` the last reader aside (LayerInfo) of a Fork's value; the previous one then adds its gradient.
constexpr void read_aside(std::span<NodeInfo> nodes, std::size_t value, std::size_t reader, bool sum) {
    NodeInfo& fork = nodes[value - 1];
    if (fork.second_reader != no_value) nodes[fork.second_reader].adds_gradient = true;
    fork.second_reader = reader;
    fork.second_reader_adds = sum;
}

/// Whether a node has no parameters to train, and reads values that come from inputs alone, at least one without a
/// gradient.
[[nodiscard]] constexpr bool reads_untrained(std::span<const NodeInfo> nodes, const NodeInfo& node) {
    const auto untrained = [&](std::size_t value) {
        return value > 0 && value != no_value && nodes[value - 1].untrained;
    };
    const auto trained = [&](std::size_t value) {
        return value > 0 && value != no_value && !nodes[value - 1].untrained;
    };
    return !node.has_parameters && (untrained(node.reads) || untrained(node.also_reads)) && !trained(node.reads) &&
           !trained(node.also_reads);
}

/// Moves the mask of a ReLU to the next node, where that node can apply it.
constexpr void move_relu_masks(std::span<const LayerInfo> layers, std::span<NodeInfo> nodes) {
    for (std::size_t k = 0; k + 1 < nodes.size(); ++k) {
        NodeInfo &node = nodes[k], &next = nodes[k + 1];
        if (node.activation != Activation::relu || next.reads != k + 1 || !next.can_apply_relu_mask) continue;
        node.relu_mask_applied_by_next = next.applies_relu_mask_of_previous = true;
        node.backward_reads_output = layers[node.layer].traits.backward_reads_output;
        // The operation of a single layer reads the mask from its output; an operation of two layers has saved it.
        if (next.pattern == no_pattern) next.backward_reads_output = true;
    }
}

}  // namespace impl

/// Writes the nodes of `layers` to `nodes` (as long as `layers`) and returns their number. `training` says whether the
/// plan is for training.
[[gnu::cold]] constexpr std::size_t fuse(std::span<const LayerInfo> layers, bool fusion, std::span<NodeInfo> nodes,
                                         bool training = true) {
    std::size_t count = 0;
    bool columns = false;                                       // whether an input without a gradient was found
    FixedArray<std::size_t> value_of_layer(layers.size() + 1);  // the number of each value among those of the nodes
    for (std::size_t i = 0; i < layers.size(); i += nodes[count - 1].layers) {
        const LayerInfo& layer = layers[i];
        NodeInfo& node = nodes[count++];
        node = {.layer = i,
                .layers = 1,
                .input = layer.input,
                .output = layer.output,
                .backward_reads_input = layer.traits.backward_reads_input && !(omits_parameter_gradients(layers, i) &&
                                                                               layer.traits.reads_input_for_parameters),
                .backward_reads_output = layer.traits.backward_reads_output,
                .view = layer.is_view(),
                .has_parameters = parameters_of_layer(layers, i).trained_parameters() > 0,
                .can_apply_relu_mask = layer.traits.can_apply_relu_mask,
                .reads = value_of_layer[layer.reads],
                .also_reads = layer.also_reads == no_value ? no_value : value_of_layer[layer.also_reads],
                .reads_aside = layer.reads_aside,
                .also_reads_aside = layer.also_reads_aside,
                .only_read_aside = layer.only_read_aside,
                .is_output = layer.is_output};
        if (!layer.column.empty()) {
            node.is_column = layer.column_type != ElementType::float32;
        } else if (node.view) {
            node.is_column =
                node.reads == 0 ? layers.front().column_type != ElementType::float32 : nodes[node.reads - 1].is_column;
        }
        const bool from_column =
            !layer.column.empty() || node.is_column || (!layer.reads_column.empty() && !node.has_parameters);
        columns = columns || from_column;
        node.untrained = columns && (from_column || impl::reads_untrained(nodes, node));
        if (layer.reads_aside) impl::read_aside(nodes, node.reads, count - 1, false);
        if (layer.also_reads_aside) {
            impl::read_aside(nodes, node.also_reads, count - 1, layer.kind == LayerKind::sum);
        }
        if (fusion) impl::apply_patterns(layers, node, training);
        value_of_layer[i + node.layers] = count;
    }
    for (std::size_t k = 0; k < count; ++k) {
        if (!nodes[k].is_output) continue;
        if (nodes[k].second_reader != no_value) nodes[nodes[k].second_reader].adds_gradient = true;
        nodes[k].second_reader = count;
        nodes[k].second_reader_adds = false;
    }
    impl::move_relu_masks(layers, nodes.first(count));
    return count;
}

}}  // namespace cupola::CUPOLA_ABI
