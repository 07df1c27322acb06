// SPDX-License-Identifier: Apache-2.0
//
// The fusion pass: layers of a network to nodes of a plan. `Conv2d, ReLU` and `Linear, ReLU` become one node whose
// operation applies the activation as it writes; the tensor between them never exists. Where MaxPool2d follows, the
// mask that ReLU puts on the gradient is put on the pooled gradient, which is a quarter of the size: a maximum that is
// not positive had no positive input, and a positive one has its gradient go to a positive input. The convolution's
// output is then not kept for backward. MaxPool2d and LocalResponseNorm, in either order, are one node too, which does
// the same for a ReLU before it. A user writes plain layers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <cupola/net/table.hpp>

namespace cupola::inline CUPOLA_ABI {

/// No layer: a node that has nothing folded in.
inline constexpr std::size_t no_layer = static_cast<std::size_t>(-1);

/// Two layers of these kinds in one node.
enum class FusedPair : std::uint8_t { none, pool_then_lrn, lrn_then_pool };

/// One operation of a plan: layers [layer, layer + layers) of the network. It writes value k + 1 if it is node k; value 0 is
/// the batch.
struct NodeInfo {
    std::size_t layer = 0, layers = 1;
    Shape input, output;
    Activation activation = Activation::none;
    FusedPair pair = FusedPair::none;
    bool backward_reads_input = true, backward_reads_output = true, view = false, has_parameters = false;
    /// Outside training: the layer of a batch normalisation whose scale and shift are folded into this node's weights.
    std::size_t folded_norm = no_layer;
    /// See BuildContext.
    bool relu_mask_applied_by_next = false, applies_relu_mask_of_previous = false;
    /// The values that it reads.
    std::size_t reads = 0, also_reads = no_value;
    /// Of a Fork, which is a view with two readers: the node that is the second, and whether it reads it as its second
    /// input.
    std::size_t second_reader = no_value;
    bool second_reader_adds = false;
};

/// What layers i and i + 1 are together.
[[nodiscard]] constexpr FusedPair fused_pair(std::span<const LayerInfo> layers, std::size_t i) {
    const LayerTraits &first = layers[i].traits, &second = layers[i + 1].traits;
    const auto pools = [&](std::size_t k) {
        return layers[k].traits.pools && place_is_a_byte(layers[k].traits.pooling(layers[k].input));
    };
    if (second.normalizes_locally && pools(i)) return FusedPair::pool_then_lrn;
    if (first.normalizes_locally && pools(i + 1)) return FusedPair::lrn_then_pool;
    return FusedPair::none;
}

/// Writes the nodes of `layers` to `nodes` (as long as `layers`) and returns how many there are. `training` says what
/// they are for.
[[gnu::cold]] constexpr std::size_t fuse(std::span<const LayerInfo> layers, bool fusion, std::span<NodeInfo> nodes,
                                         bool training = true) {
    std::size_t count = 0;
    std::vector<std::size_t> value_of_layer(layers.size() + 1, 0);  // the nodes' number of each value
    for (std::size_t i = 0; i < layers.size(); ++i) {
        const LayerInfo& layer = layers[i];
        NodeInfo& node = nodes[count++];
        node = {.layer = i,
                .layers = 1,
                .input = layer.input,
                .output = layer.output,
                .activation = Activation::none,
                .backward_reads_input = layer.traits.backward_reads_input,
                .backward_reads_output = layer.traits.backward_reads_output,
                .view = layer.traits.view,
                .has_parameters = layer.parameters.count > 0,
                .reads = value_of_layer[layer.reads],
                .also_reads = layer.also_reads == no_value ? no_value : value_of_layer[layer.also_reads]};
        // A Fork's second reader is the one that is not the node after it.
        if (node.reads > 0 && node.reads != count - 1 && layers[nodes[node.reads - 1].layer].traits.two_readers) {
            nodes[node.reads - 1].second_reader = count - 1;
        }
        if (layer.also_reads != no_value && layers[layer.also_reads - 1].traits.two_readers) {
            nodes[node.also_reads - 1].second_reader = count - 1;
            nodes[node.also_reads - 1].second_reader_adds = true;
        }
        const auto next_reads_this = [&] { return i + 1 < layers.size() && layers[i + 1].reads == i + 1; };
        if (fusion && !training && layer.traits.absorbs_norm && next_reads_this() &&
            layers[i + 1].traits.statistics_epsilon > 0) {
            node.folded_norm = ++i;
            ++node.layers;
        }
        const bool relu_follows = next_reads_this() && layers[i + 1].traits.activation == Activation::relu;
        if (fusion && layer.traits.absorbs_relu && relu_follows) {
            ++node.layers;
            node.activation = Activation::relu;
            node.backward_reads_output = true;  // the mask is where the output is positive
            ++i;
        }
        if (fusion && next_reads_this()) node.pair = fused_pair(layers, i);
        if (node.pair != FusedPair::none) {
            ++node.layers;
            node.output = layers[++i].output;
            // What the second reads of the first in backward is the node's own.
            node.backward_reads_input = node.pair == FusedPair::lrn_then_pool;
            node.backward_reads_output = false;
        }
        value_of_layer[i + 1] = count;
    }
    for (std::size_t k = 0; k + 1 < count; ++k) {
        NodeInfo &node = nodes[k], &next = nodes[k + 1];
        if (node.activation != Activation::relu || next.reads != k + 1) continue;
        if (!layers[next.layer].traits.can_apply_relu_mask && next.pair == FusedPair::none) continue;
        node.relu_mask_applied_by_next = next.applies_relu_mask_of_previous = true;
        node.backward_reads_output = layers[node.layer].traits.backward_reads_output;
        if (next.pair == FusedPair::none) next.backward_reads_output = true;
    }
    return count;
}

}  // namespace cupola::inline CUPOLA_ABI
