// SPDX-License-Identifier: Apache-2.0
//
// The nodes of a part of a network (net/pipeline/split.hpp). They are those of the whole network, so that a part
// computes what the whole does; the values are numbered anew, with value 0 the one that enters the part. Layers keep
// their numbers in the network, and with them their random numbers, parameters and buffers their places.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include <cupola/net/memory_plan.hpp>
#include <cupola/net/node_info.hpp>
#include <cupola/net/table.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// The layers of a range: the end of the default is that of the network.
[[nodiscard]] constexpr std::span<const LayerInfo> layers_of_range(std::span<const LayerInfo> layers,
                                                                   const LayerRange& range) {
    const std::size_t end = std::min(range.end, layers.size()), begin = std::min(range.begin, end);
    return layers.subspan(begin, end - begin);
}

namespace impl {

/// Numbers the values of a node in a part whose first node is `begin`.
constexpr void number_in_part(NodeInfo& node, std::size_t begin) {
    for (std::size_t* const number : {&node.reads, &node.also_reads, &node.second_reader}) {
        if (*number != no_value) *number -= begin;
    }
}

}  // namespace impl

/// Keeps the nodes of `range` at the begin of `nodes`, those of the whole network, and returns their number. Sets
/// `input_gradient`, which says whether the gradient of the network's batch is computed, to whether that of the value
/// which enters the part is. The range must begin and end where the network may be cut (net/pipeline/cuts.hpp).
[[gnu::cold]] constexpr std::size_t keep_range(std::span<NodeInfo> nodes, const LayerRange& range,
                                               bool& input_gradient) {
    std::size_t begin = 0, end = 0;
    for (const NodeInfo& node : nodes) {
        begin += node.layer < range.begin ? 1 : 0;
        end += node.layer < range.end ? 1 : 0;
    }
    if (begin > 0) input_gradient = needs_gradient(nodes, begin, lowest_node(nodes, input_gradient), input_gradient);
    for (std::size_t i = begin; i < end; ++i) {
        nodes[i - begin] = nodes[i];
        impl::number_in_part(nodes[i - begin], begin);
    }
    return end - begin;
}

/// The first element of the arena's trained parameters that a layer from `layer` on has: where the gradients of a part
/// that begins there begin. Parameters lie in the order of the layers.
[[nodiscard, gnu::cold]] constexpr std::int64_t trained_begin(std::span<const LayerInfo> layers, std::size_t layer) {
    return layer < layers.size() ? trained_elements(layers.first(layer)) : trained_elements(layers);
}

}}  // namespace cupola::CUPOLA_ABI
