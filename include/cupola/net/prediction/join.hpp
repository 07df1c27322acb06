// SPDX-License-Identifier: Apache-2.0
//
// Outside training an operation can do more as it writes its output than the fusion pass (net/fusion.hpp) lets it do in
// training, because nothing is kept for backward. This pass joins to the node of a convolution or a matrix product
//
//   the sum that ends a block      y += the node's result, in the memory of the other summand, and then the sum's ReLU;
//                                  for Residual, Add<...> and AddFrom
//   an activation                  OutputFormula, after the node or after the sum
//
// so that neither has a pass over memory of its own. Which operations do so, and for which formulas, a device says in
// specialisations of `joined_layer`; on a device without any, nothing is joined.
//
// A sum is joined only if the other summand is in the plan's memory, is not what the operation itself reads, and is
// read by nothing after the sum; a value that has a name (Keep, Output) between the two is not skipped, since these are
// layers of their own.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include <cupola/net/node_info.hpp>
#include <cupola/net/pass_list.hpp>
#include <cupola/net/table.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// What can be joined to a layer's operation, and to what precedes the layer.
struct JoinedLayer {
    /// Whether its operation adds to its output and applies a formula (BuildContext::adds_to_output and formula).
    bool joins = false;
    /// What the layer computes; without a number of the library if that is no formula of it.
    OutputFormula formula{};
};

/// Of layer type `L` on a device and in an element type.
template <class Device, class T, class L>
inline constexpr JoinedLayer joined_layer{};

namespace impl {

/// Whether node `k` may add to `value` in its memory for the sum that is the next node.
[[nodiscard, gnu::cold]] constexpr bool may_add_to(std::span<const NodeInfo> nodes, std::size_t k, std::size_t value) {
    const std::size_t storage = storage_of(nodes, value);
    const auto is_there = [&](std::size_t v) { return v != no_value && storage_of(nodes, v) == storage; };
    if (storage == 0 || is_there(nodes[k].reads)) return false;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
        const bool read_later = i > k + 1 && (is_there(nodes[i].reads) || is_there(nodes[i].also_reads));
        if (read_later || (nodes[i].is_output && is_there(i + 1))) return false;
    }
    return true;
}

/// Joins node k + 1 to node `k`; false if that is not possible.
[[nodiscard, gnu::cold]] constexpr bool join_next(std::span<const LayerInfo> layers,
                                                  std::span<const JoinedLayer> joined, std::span<const NodeInfo> nodes,
                                                  std::size_t k, NodeInfo& node) {
    const NodeInfo& next = nodes[k + 1];
    const LayerInfo& layer = layers[next.layer];
    const bool full = node.activation != Activation::none || node.formula != nullptr;
    if (node.pattern != no_pattern || full || !joined[node.layer].joins) return false;
    if (layer.kind == LayerKind::sum && !node.adds_to_second_input) {
        if (next.reads != k + 1 && next.also_reads != k + 1) return false;
        const std::size_t other = next.reads == k + 1 ? next.also_reads : next.reads;
        if (!may_add_to(nodes, k, other)) return false;
        node.adds_to_second_input = true;
        node.also_reads = other;
        node.activation = next.activation;
    } else if (layer.kind == LayerKind::activation && next.reads == k + 1) {
        const OutputFormula& formula = joined[next.layer].formula;
        if (formula.algorithm == 0) return false;
        node.formula = &formula;
    } else {
        return false;
    }
    node.layers += next.layers;
    return true;
}

}  // namespace impl

/// Joins nodes of the fusion pass as the head of this file says; `joined` has an entry per layer, which must live as
/// long as the nodes. Returns the number of nodes that remain, at the beginning of `nodes`.
[[nodiscard, gnu::cold]] constexpr std::size_t join_nodes(std::span<const LayerInfo> layers,
                                                          std::span<const JoinedLayer> joined,
                                                          std::span<NodeInfo> nodes) {
    for (std::size_t k = 0; k + 1 < nodes.size();) {
        NodeInfo node = nodes[k];
        if (!impl::join_next(layers, joined, nodes, k, node)) {
            ++k;
            continue;
        }
        nodes[k] = node;
        // The values from that of the next node on are numbered anew.
        for (std::size_t i = k + 1; i + 1 < nodes.size(); ++i) {
            nodes[i] = nodes[i + 1];
            for (std::size_t* const value : {&nodes[i].reads, &nodes[i].also_reads}) {
                if (*value != no_value && *value > k + 1) --*value;
            }
        }
        nodes = nodes.first(nodes.size() - 1);
    }
    return nodes.size();
}

namespace impl {

template <class Device, class T, std::size_t layer_count>
struct CollectJoinedLayers {
    std::array<JoinedLayer, layer_count> layers{};
    std::size_t count = 0;

    template <class L>
    constexpr void layer() {
        layers[count++] = joined_layer<Device, T, L>;
    }
};

}  // namespace impl

/// Whether the options of a device leave what is joined to the device; an overload for its options may say no.
template <class Options>
[[nodiscard]] constexpr bool joins_with(const Options&) {
    return true;
}

/// The pass of join_of.
template <class Net, class Device>
[[nodiscard, gnu::cold]] std::size_t join_nodes_on(std::span<const LayerInfo> layers, std::span<NodeInfo> nodes) {
    static constexpr auto collected = [] {
        impl::CollectJoinedLayers<Device, typename Net::Precision::Activation, Net::layer_count> result;
        Net::visit_layer_types(result);
        return result;
    }();
    return join_nodes(layers, collected.layers, nodes);
}

/// PlanOptions::join of a network on a device; null if nothing is joined.
template <class Net, class Device>
[[nodiscard]] auto join_of(const typename Device::Options& options) -> decltype(&join_nodes_on<Net, Device>) {
    return joins_with(options) ? &join_nodes_on<Net, Device> : nullptr;
}

}}  // namespace cupola::CUPOLA_ABI
