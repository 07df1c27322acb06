// SPDX-License-Identifier: Apache-2.0
//
// The passes of a plan in their order: forward of each node, what the caller does with the outputs, and backward of
// each node from the last to the first. The memory plan derives from this list how long each tensor lives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <cupola/core/fixed_array.hpp>
#include <cupola/net/node_info.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// The tensor whose memory value `v` (0 the batch, k + 1 the output of node k) uses: its own, or the one that a chain
/// of views refers to.
[[nodiscard]] constexpr std::size_t storage_of(std::span<const NodeInfo> nodes, std::size_t v) {
    while (v > 0 && nodes[v - 1].view) v = nodes[v - 1].reads;
    return v;
}

/// The first node that backward reaches: the first with parameters that are trained, or 0 if the gradient of the batch
/// is requested. The gradients of the values after it are computed.
[[nodiscard]] constexpr std::size_t lowest_node(std::span<const NodeInfo> nodes, bool input_gradient) {
    std::size_t lowest = 0;
    while (!input_gradient && lowest < nodes.size() && !nodes[lowest].has_parameters) ++lowest;
    return lowest;
}

/// Whether the gradient of value `v` is computed; `lowest` is the first node that backward reaches.
[[nodiscard]] constexpr bool needs_gradient(std::span<const NodeInfo> nodes, std::size_t v, std::size_t lowest,
                                            bool input_gradient) {
    if (v > 0 && nodes[v - 1].is_column) return false;
    return input_gradient || (v > lowest && !nodes[v - 1].untrained);
}

/// Whether backward runs node `i`: it has parameters that are trained, or the gradient of an input is computed.
/// `lowest` is the first node that backward reaches.
[[nodiscard]] constexpr bool has_backward(std::span<const NodeInfo> nodes, std::size_t i, std::size_t lowest,
                                          bool input_gradient) {
    const auto wanted = [&](std::size_t value) { return needs_gradient(nodes, value, lowest, input_gradient); };
    const NodeInfo& node = nodes[i];
    return i >= lowest &&
           (node.has_parameters || wanted(node.reads) || (node.also_reads != no_value && wanted(node.also_reads)));
}

/// What happens in a pass. In `outputs`, the caller reads the network's outputs and writes their gradients.
enum class PassKind : std::uint8_t { forward, outputs, backward };

/// One pass over a node; over none in `outputs`.
struct NodePass {
    PassKind kind = PassKind::forward;
    std::size_t node = 0;
};

/// The passes of a plan of this many nodes, with or without backward. A view and a node without a backward pass are in
/// the list too.
[[nodiscard, gnu::cold]] constexpr FixedArray<NodePass> list_passes(std::size_t nodes, bool backward) {
    FixedArray<NodePass> passes(nodes + 1 + (backward ? nodes : 0));
    for (std::size_t i = 0; i < nodes; ++i) passes[i] = {PassKind::forward, i};
    passes[nodes] = {PassKind::outputs, nodes};
    for (std::size_t k = nodes + 1; k < passes.size(); ++k) passes[k] = {PassKind::backward, 2 * nodes - k};
    return passes;
}

}}  // namespace cupola::CUPOLA_ABI
