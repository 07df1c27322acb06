// SPDX-License-Identifier: Apache-2.0
//
// Where a network may be cut into parts that run on several devices. A part is a list of neighbouring layers; after a
// cut nothing but the value before it is read, so that one tensor crosses in forward and its gradient in backward.
//
// A cut must not change what is computed. It lies only between two nodes of the fused plan, in training and outside it,
// and not where the next node applies the ReLU's mask of the node before (net/fusion.hpp), or may sum the gradient of
// that node's bias, as Linear layers do on some devices. Where a cut may lie depends on the network's type alone, not
// on the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <cupola/core/compile_time_message.hpp>
#include <cupola/core/fixed_array.hpp>
#include <cupola/net/fusion.hpp>
#include <cupola/net/impl/add_layer.hpp>
#include <cupola/net/node_info.hpp>
#include <cupola/net/table.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// Why no part may begin at a layer.
enum class CutObstacle : std::uint8_t {
    none,
    /// Before it there is no layer that computes.
    beginning,
    /// An Output lies before it, whose loss the last part would not have.
    output,
    /// A later layer reads a column of the batch, which only the first part has.
    column,
    /// A later layer shares parameters with an earlier one.
    tied,
    /// A later layer reads an older value: the cut is in a block, or between a named value and its reader.
    value,
    /// The layer before is a Fork, which belongs to the part of its readers.
    fork,
    /// The operation of an earlier layer does its work too.
    fused,
    /// Its operation applies the mask of the ReLU before it.
    mask,
    /// Its operation may sum the gradient for the bias of the layer before it.
    gradient_sum,
    /// Its output is the memory of the value before: it belongs to the part of the layer before it.
    view
};

/// Whether a part may begin at a layer; otherwise the layer after the cut and the one before it that need each other.
struct CutPlace {
    CutObstacle obstacle = CutObstacle::none;
    std::size_t behind = 0, before = 0;
};

namespace impl {

/// Writes an obstacle, unless one has been found.
constexpr void obstruct(CutPlace& place, CutObstacle obstacle, std::size_t behind, std::size_t before) {
    if (place.obstacle == CutObstacle::none) place = {obstacle, behind, before};
}

/// The obstacles between the layers themselves.
constexpr void find_layer_obstacles(std::span<const LayerInfo> layers, std::span<CutPlace> places) {
    bool computes = false;
    std::size_t output = no_layer;
    for (std::size_t i = 0; i < layers.size(); ++i) {
        if (!computes) obstruct(places[i], CutObstacle::beginning, i, i);
        if (output != no_layer) obstruct(places[i], CutObstacle::output, i, output);
        computes = computes || !layers[i].is_view();
        if (layers[i].is_output && output == no_layer) output = i;
    }
    // From the end: the lowest value and the lowest owner of parameters that the layers from i on need.
    std::size_t value = no_value, reader = 0, owner = no_layer, tied = 0, column = no_layer;
    const auto read = [&](std::size_t number, std::size_t i) {
        if (number < value) value = number, reader = i;
    };
    for (std::size_t i = layers.size(); i-- > 0;) {
        const LayerInfo& layer = layers[i];
        if (!layer.column.empty() || !layer.reads_column.empty()) column = i;
        if (layer.column.empty()) read(layer.reads, i);
        if (layer.also_reads != no_value) read(layer.also_reads, i);
        if (layer.tied_to < owner) owner = layer.tied_to, tied = i;
        if (column != no_layer) obstruct(places[i], CutObstacle::column, column, 0);
        if (owner < i) obstruct(places[i], CutObstacle::tied, tied, owner);
        if (value < i) obstruct(places[i], CutObstacle::value, reader, value);
        if (i > 0 && layers[i - 1].kind == LayerKind::fork) obstruct(places[i], CutObstacle::fork, i, i - 1);
        if (layer.kind == LayerKind::view) obstruct(places[i], CutObstacle::view, i, i);
    }
}

/// Whether some device sums the gradient for the bias of node `i - 1` in the operation of node `i`: see
/// Plan::find_gradient_sums. A convolution's is summed only where its mask has moved too.
[[nodiscard]] constexpr bool may_sum_gradient(std::span<const LayerInfo> layers, std::span<const NodeInfo> nodes,
                                              std::size_t i) {
    const LayerKind before = layers[nodes[i - 1].layer].kind, kind = layers[nodes[i].layer].kind;
    return nodes[i].reads == i && nodes[i - 1].activation == Activation::relu && before == LayerKind::plain &&
           (kind == LayerKind::plain || kind == LayerKind::pooling || kind == LayerKind::local_response_norm);
}

/// The obstacles of the fused nodes.
constexpr void find_node_obstacles(std::span<const LayerInfo> layers, std::span<const NodeInfo> nodes,
                                   std::span<CutPlace> places) {
    for (std::size_t k = 0; k < nodes.size(); ++k) {
        const NodeInfo& node = nodes[k];
        for (std::size_t i = node.layer + 1; i < node.layer + node.layers; ++i)
            obstruct(places[i], CutObstacle::fused, i, node.layer);
        if (k == 0) continue;
        if (node.applies_relu_mask_of_previous)
            obstruct(places[node.layer], CutObstacle::mask, node.layer, nodes[k - 1].layer);
        if (may_sum_gradient(layers, nodes, k))
            obstruct(places[node.layer], CutObstacle::gradient_sum, node.layer, nodes[k - 1].layer);
    }
}

}  // namespace impl

/// For each layer, whether a part may begin there. `fusion` as in Net::fusion. Linear in the number of layers.
[[nodiscard, gnu::cold]] constexpr FixedArray<CutPlace> find_cuts(std::span<const LayerInfo> layers, bool fusion) {
    FixedArray<CutPlace> places(layers.size());
    impl::find_layer_obstacles(layers, places);
    FixedArray<NodeInfo> nodes(layers.size());
    for (const bool training : {true, false}) {
        const std::size_t count = fuse(layers, fusion, nodes, training);
        impl::find_node_obstacles(layers, std::span<const NodeInfo>(nodes).first(count), places);
    }
    return places;
}

namespace impl {

/// Completes "... cannot begin at layer 3 (a, Linear<4>): ".
[[gnu::cold]] constexpr void describe_obstacle(CompileTimeMessage& message, std::span<const LayerInfo> layers,
                                               const CutPlace& place) {
    const auto behind = [&] { describe(message, place.behind + 1, layers[place.behind]); };
    const auto before = [&] { describe(message, place.before + 1, layers[place.before]); };
    switch (place.obstacle) {
        case CutObstacle::none: break;
        case CutObstacle::beginning: message << "no layer before it computes"; break;
        case CutObstacle::output:
            before();
            message << " is an output before it, and the losses are in the last part";
            break;
        case CutObstacle::column:
            behind();
            message << " reads a column of the batch, which only the first part has";
            break;
        case CutObstacle::tied:
            behind();
            message << " shares its parameters with ";
            before();
            break;
        case CutObstacle::value:
            behind();
            message << " reads the output of ";
            describe_source(message, layers, place.before);
            message << " across the cut";
            break;
        case CutObstacle::fork:
            message << "the value before it has several readers, and ";
            before();
            message << " belongs to their part";
            break;
        case CutObstacle::fused:
            message << "the operation of ";
            before();
            message << " does its work too";
            break;
        case CutObstacle::mask:
            message << "its operation applies the ReLU's mask of ";
            before();
            break;
        case CutObstacle::gradient_sum:
            message << "its operation may sum the gradient for the bias of ";
            before();
            break;
        case CutObstacle::view: message << "its output is the memory of the value before it"; break;
    }
}

}  // namespace impl

}}  // namespace cupola::CUPOLA_ABI
