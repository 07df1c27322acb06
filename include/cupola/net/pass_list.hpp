// SPDX-License-Identifier: Apache-2.0
//
// The passes of a plan in their order: forward of each node, what the caller does with the outputs, and backward of
// each node from the last to the first; before the backward passes of a block of Recompute (net/recompute.hpp), the
// forward passes of its nodes that are computed again. The memory plan derives from this list how long each tensor
// lives, and the plan runs it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <cupola/core/fixed_array.hpp>
#include <cupola/net/node_info.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// The tensor whose memory value `v` (0 the batch, k + 1 the output of node k) uses: its own, or the one that a chain
/// of views, and of nodes that add to their second input, refers to.
[[nodiscard]] constexpr std::size_t storage_of(std::span<const NodeInfo> nodes, std::size_t v) {
    while (v > 0 && (nodes[v - 1].view || nodes[v - 1].adds_to_second_input))
        v = nodes[v - 1].view ? nodes[v - 1].reads : nodes[v - 1].also_reads;
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

/// Per node, whether it is computed again before backward of its block: its output is then not kept from forward to
/// backward. It is so for outputs that backward of the block reads, directly or through other nodes that are computed
/// again, and that nothing outside the block reads in backward. `input_gradient` as in PlanOptions.
[[nodiscard, gnu::cold]] constexpr FixedArray<bool> find_recomputed(std::span<const NodeInfo> nodes,
                                                                    bool input_gradient) {
    FixedArray<bool> result(nodes.size()), read_inside(nodes.size() + 1), kept(nodes.size() + 1);
    const std::size_t lowest = lowest_node(nodes, input_gradient);
    const auto read = [&](std::size_t reader, std::size_t value) {
        const std::size_t storage = storage_of(nodes, value);
        if (storage == 0) return;
        const std::size_t block = nodes[storage - 1].recompute_block;
        const bool inside = block != no_layer && block == nodes[reader].recompute_block;
        (inside ? read_inside : kept)[storage] = true;
    };
    // From the last node: the readers of a value come after the node that computes it.
    for (std::size_t i = nodes.size(); i-- > 0;) {
        const NodeInfo& node = nodes[i];
        if (has_backward(nodes, i, lowest, input_gradient)) {
            if (node.backward_reads_output) read(i, i + 1);
            if (node.backward_reads_input) read(i, node.reads);
            if (node.backward_reads_second_input) read(i, node.also_reads);
        }
        // The caller reads the outputs just before backward.
        if (node.is_output || i + 1 == nodes.size()) kept[storage_of(nodes, i + 1)] = true;
        result[i] = !node.view && read_inside[i + 1] && !kept[i + 1];
        if (!result[i]) continue;
        read(i, node.reads);
        if (node.also_reads != no_value) read(i, node.also_reads);
    }
    return result;
}

/// What happens in a pass. In `outputs`, the caller reads the network's outputs and writes their gradients.
/// `recompute` is a forward pass again.
enum class PassKind : std::uint8_t { forward, outputs, recompute, backward };

/// One pass over a node; over none in `outputs`.
struct NodePass {
    PassKind kind = PassKind::forward;
    std::size_t node = 0;
};

/// The passes of a plan of these nodes, with or without backward. A view and a node without a backward pass are in the
/// list too. `input_gradient` as in PlanOptions.
[[nodiscard, gnu::cold]] constexpr FixedArray<NodePass> list_passes(std::span<const NodeInfo> nodes, bool backward,
                                                                    bool input_gradient = false) {
    const std::size_t count = nodes.size();
    bool any = false;  // most networks have no block, and compilers limit the steps of a constant
    for (std::size_t i = 0; backward && i < count; ++i) any = any || nodes[i].recompute_block != no_layer;
    FixedArray<bool> recomputed;
    if (any) recomputed = find_recomputed(nodes, input_gradient);
    FixedArray<NodePass> passes(count + 1 + (any ? 2 : backward ? 1 : 0) * count);
    std::size_t size = 0;
    for (std::size_t i = 0; i < count; ++i) passes[size++] = {PassKind::forward, i};
    passes[size++] = {PassKind::outputs, count};
    for (std::size_t i = backward ? count : 0; i-- > 0;) {
        const std::size_t block = nodes[i].recompute_block;
        if (any && block != no_layer && (i + 1 == count || nodes[i + 1].recompute_block != block)) {
            std::size_t first = i;
            while (first > 0 && nodes[first - 1].recompute_block == block) --first;
            for (std::size_t k = first; k <= i; ++k) {
                if (recomputed[k]) passes[size++] = {PassKind::recompute, k};
            }
        }
        passes[size++] = {PassKind::backward, i};
    }
    passes.keep_first(size);
    return passes;
}

}}  // namespace cupola::CUPOLA_ABI
