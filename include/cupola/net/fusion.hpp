// SPDX-License-Identifier: Apache-2.0
//
// The fusion pass converts the layers of a network to the nodes of a plan. The table FusionPatterns says which layers
// become one node: `Conv2d, ReLU`, `Conv2d, ReLU6` and `Linear, ReLU` become one node whose operation applies the
// activation as it writes, so the tensor between them does not exist. MaxPool2d and LocalResponseNorm, in either order,
// become one node too.
//
// Where MaxPool2d or such a pair follows a ReLU, the ReLU's mask is applied to the pooled gradient, which is a quarter
// of the size: a maximum that is not positive had no positive input, and the gradient of a positive maximum goes to a
// positive input. The convolution's output is then not kept for backward. Users write plain layers.
//
// The table says which two neighbouring layers become one node, by their kinds, and under which conditions.
// There are two sorts. `InFirstOperation`: the operation of the first layer also does the work of the second, as given
// by BuildContext. `OneOperation<Op>`: the node runs an operation made from the shapes of both layers, `Op<Device,
// T>(build, first, second)`, which every device with the operations of both kinds has.
//
// To add a fusion, write its row here, a struct with
//
//   static constexpr FusedKinds kinds                          of the first and of the second layer
//   static constexpr bool applies(const FusionCandidate&)      the conditions in addition to the kinds
//
// and add it to `FusionPatterns`. A row of the first sort also has `fuse`, which marks in the node the work that its
// operation takes over. A row of the second sort states which tensors backward reads in addition to those that forward
// saved, and whether the operation can mask its gradient for a ReLU in the preceding node.
// The second layer is always the next in the list, and reads the output of the node. The rows are tried in their order,
// each once per node; a row of the second sort applies only to a node of one layer.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include <cupola/core/element_type.hpp>
#include <cupola/core/fixed_array.hpp>
#include <cupola/net/node_info.hpp>
#include <cupola/net/table.hpp>
#include <cupola/ops/pool_with_lrn.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// The kinds of the two layers; the constructor with one argument accepts any kind of first layer.
struct FusedKinds {
    LayerKind first, second;
    bool any_first = false;

    constexpr FusedKinds(LayerKind a, LayerKind b) : first(a), second(b) {}
    explicit constexpr FusedKinds(LayerKind b) : first(LayerKind::plain), second(b), any_first(true) {}
    [[nodiscard]] constexpr bool match(LayerKind a, LayerKind b) const {
        return b == second && (any_first || a == first);
    }
};

/// The arguments of a row's conditions.
struct FusionCandidate {
    /// The node so far, and the layer whose operation it runs.
    const NodeInfo& node;
    const LayerInfo& first;
    const LayerInfo& second;
    /// The number of the second layer in the network.
    std::size_t second_layer = 0;
    /// Whether the plan is for training, and whether backward leaves out the gradients of the first layer's parameters.
    bool training = true, omits_parameter_gradients = false;
};

/// The shape from which the operation of a layer of this kind is made.
template <LayerKind kind>
[[nodiscard]] constexpr auto kind_shape(const LayerInfo& layer) {
    static_assert(kind == LayerKind::pooling || kind == LayerKind::local_response_norm,
                  "no operation of two layers is made from this kind yet: add its shape to LayerKindParts");
    if constexpr (kind == LayerKind::pooling) {
        return layer.kind_parts.pooling(layer.input);
    } else {
        return layer.kind_parts.local_response_norm(layer.input);
    }
}

namespace impl {

/// The rows.
namespace fusions {

struct InFirstOperation {
    static constexpr bool one_operation = false;
};

template <template <class, class> class Op>
struct OneOperation {
    static constexpr bool one_operation = true;
    template <class Device, class T>
    using Operation = Op<Device, T>;
};

/// A convolution's weight and bias contain the following batch normalisation (net/impl/folded_norm.hpp): outside
/// training, and in training where neither is trained nor reads the statistics of a batch, if the convolution's
/// operation can leave out their gradients.
struct FoldedBatchNorm : InFirstOperation {
    static constexpr FusedKinds kinds{LayerKind::convolution, LayerKind::batch_norm};
    static constexpr bool applies(const FusionCandidate& c) {
        return !c.training || (c.omits_parameter_gradients && c.second.uses_running_statistics);
    }
    static constexpr void fuse(NodeInfo& node, const FusionCandidate& c) { node.folded_norm = c.second_layer; }
};

/// The operation applies the activation as it writes its output.
struct ActivationInside : InFirstOperation {
    static constexpr FusedKinds kinds{LayerKind::activation};
    static constexpr bool applies(const FusionCandidate& c) {
        const Activation activation = c.second.kind_parts.activation;
        return (activation == Activation::relu && c.first.traits.absorbs_relu) ||
               (activation == Activation::relu6 && c.first.traits.absorbs_relu6);
    }
    static constexpr void fuse(NodeInfo& node, const FusionCandidate& c) {
        node.activation = c.second.kind_parts.activation;
        node.backward_reads_output = true;  // the mask is made of it
    }
};

/// MaxPool2d, LocalResponseNorm: the pooled values, which the normalisation reads in backward, are saved.
struct PoolThenLrn : OneOperation<ops::PoolThenLrn> {
    static constexpr FusedKinds kinds{LayerKind::pooling, LayerKind::local_response_norm};
    static constexpr bool applies(const FusionCandidate& c) {
        return place_is_a_byte(kind_shape<LayerKind::pooling>(c.first));
    }
    static constexpr bool backward_reads_input = false, backward_reads_output = false, can_apply_relu_mask = true;
};

/// LocalResponseNorm, MaxPool2d.
struct LrnThenPool : OneOperation<ops::LrnThenPool> {
    static constexpr FusedKinds kinds{LayerKind::local_response_norm, LayerKind::pooling};
    static constexpr bool applies(const FusionCandidate& c) {
        return place_is_a_byte(kind_shape<LayerKind::pooling>(c.second));
    }
    static constexpr bool backward_reads_input = true, backward_reads_output = false, can_apply_relu_mask = true;
};

}  // namespace fusions

template <class... Rows>
struct PatternList {};

/// The table.
using FusionPatterns =
    PatternList<fusions::FoldedBatchNorm, fusions::ActivationInside, fusions::PoolThenLrn, fusions::LrnThenPool>;

}  // namespace impl

/// A row of the table in the form that the pass reads.
struct FusionPattern {
    FusedKinds kinds;
    bool one_operation;
    bool (*applies)(const FusionCandidate&);
    void (*fuse)(NodeInfo&, const FusionCandidate&);
};

namespace impl {

template <class Row>
constexpr void fuse_into_one_operation(NodeInfo& node, const FusionCandidate& c) {
    node.output = c.second.output;
    node.backward_reads_input = Row::backward_reads_input;
    node.backward_reads_output = Row::backward_reads_output;
    node.can_apply_relu_mask = Row::can_apply_relu_mask;
    node.input_gradient_in_place = false;
}

template <class Row>
[[nodiscard]] consteval FusionPattern pattern_of() {
    if constexpr (Row::one_operation) {
        return {Row::kinds, true, &Row::applies, &fuse_into_one_operation<Row>};
    } else {
        return {Row::kinds, false, &Row::applies, &Row::fuse};
    }
}

template <class... Rows>
[[nodiscard]] consteval std::array<FusionPattern, sizeof...(Rows)> patterns_of(PatternList<Rows...>) {
    return {pattern_of<Rows>()...};
}

}  // namespace impl

/// The table as data; NodeInfo::pattern is an index into it.
inline constexpr auto fusion_patterns = impl::patterns_of(impl::FusionPatterns{});

namespace impl {

/// Applies the table to a node that so far consists of layer `node.layer` only.
constexpr void apply_patterns(std::span<const LayerInfo> layers, NodeInfo& node, bool training) {
    const LayerInfo& first = layers[node.layer];
    for (std::size_t row = 0; row < fusion_patterns.size(); ++row) {
        const std::size_t next = node.layer + node.layers;
        if (next == layers.size() || layers[next].reads != next) return;
        const FusionPattern& pattern = fusion_patterns[row];
        if (!pattern.kinds.match(first.kind, layers[next].kind) || (pattern.one_operation && node.layers > 1)) continue;
        const FusionCandidate candidate{node, first,    layers[next],
                                        next, training, omits_parameter_gradients(layers, node.layer)};
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
                .backward_reads_second_input = layer.traits.backward_reads_second_input && layer.also_reads != no_value,
                .backward_reads_output = layer.traits.backward_reads_output,
                .view = layer.is_view(),
                .has_parameters = parameters_of_layer(layers, i).trained_parameters() > 0,
                .can_apply_relu_mask = layer.traits.can_apply_relu_mask,
                .input_gradient_in_place =
                    layer.traits.input_gradient_in_place && !layer.reads_aside && layer.input == layer.output,
                .reads = value_of_layer[layer.reads],
                .also_reads = layer.also_reads == no_value ? no_value : value_of_layer[layer.also_reads],
                .reads_aside = layer.reads_aside,
                .also_reads_aside = layer.also_reads_aside,
                .only_read_aside = layer.only_read_aside,
                .is_output = layer.is_output,
                .recompute_block = layer.recompute_block};
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
