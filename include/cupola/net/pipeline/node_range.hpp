// SPDX-License-Identifier: Apache-2.0
//
// The nodes of a part of a network (net/pipeline/split.hpp). They are those of the whole network, so that a part
// computes what the whole does; the values are numbered anew, with value 0 the one that enters the part. Layers keep
// their numbers in the network, and with them their random numbers, parameters and buffers their places.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>

#include <cupola/core/compile_time_message.hpp>
#include <cupola/core/error.hpp>
#include <cupola/core/fixed_array.hpp>
#include <cupola/net/memory_plan.hpp>
#include <cupola/net/node_info.hpp>
#include <cupola/net/pipeline/cuts.hpp>
#include <cupola/net/table.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

/// Numbers the values of a node in a part whose first node is `begin`.
constexpr void number_in_part(NodeInfo& node, std::size_t begin) {
    for (std::size_t* const number : {&node.reads, &node.also_reads, &node.second_reader}) {
        if (*number != no_value) *number -= begin;
    }
}

/// Throws InvalidArgument for a range of layers that does not begin and end where the network may be cut.
[[gnu::cold]] inline void require_cuts(std::span<const LayerInfo> layers, bool fusion, const LayerRange& range) {
    const std::size_t end = std::min(range.end, layers.size());
    require(range.begin < end, "a plan needs at least one layer, not the layers [", range.begin, ", ", end, ")");
    const FixedArray<CutPlace> places = find_cuts(layers, fusion);
    for (const std::size_t begin : {range.begin, end}) {
        if (begin == 0 || begin == layers.size() || places[begin].obstacle == CutObstacle::none) continue;
        CompileTimeMessage message;
        message << "a part cannot begin at ";
        describe(message, begin + 1, layers[begin]);
        message << ": ";
        describe_obstacle(message, layers, places[begin]);
        throw InvalidArgument(std::string(message.characters, message.size));
    }
}

}  // namespace impl

/// Keeps the nodes of `range` at the beginning of `nodes`, those of the whole network, and returns their number. Sets
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

/// What a plan of a part does with the nodes of the whole network (PlanOptions::keep_layers): keep_range(), for a range
/// that begins and ends where the network may be cut. Throws InvalidArgument for another one.
[[nodiscard, gnu::cold]] inline std::size_t keep_layers(std::span<const LayerInfo> layers, bool fusion,
                                                        std::span<NodeInfo> nodes, const LayerRange& range,
                                                        bool& input_gradient) {
    impl::require_cuts(layers, fusion, range);
    return keep_range(nodes, range, input_gradient);
}

}}  // namespace cupola::CUPOLA_ABI
