// SPDX-License-Identifier: Apache-2.0
//
// The nodes whose operation is made from two layers (net/fusion_patterns.hpp). They are instantiated once per device
// and element type, in networks that have layers of both kinds.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include <cupola/net/fusion_patterns.hpp>
#include <cupola/net/table.hpp>
#include <cupola/ops/plan_node.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// A set of LayerKinds, one bit per kind.
using LayerKindSet = std::uint32_t;
[[nodiscard]] constexpr LayerKindSet kind_bit(LayerKind kind) { return LayerKindSet{1} << static_cast<unsigned>(kind); }

template <class Device, class T>
using FusedNodeMaker = std::unique_ptr<PlanNode<Device, T>> (*)(std::span<const LayerInfo>, const NodeInfo&,
                                                                const BuildContext<Device, T>&);

template <class Row, class Device, class T>
[[nodiscard]] std::unique_ptr<PlanNode<Device, T>> make_fused_node(std::span<const LayerInfo> layers,
                                                                   const NodeInfo& info,
                                                                   const BuildContext<Device, T>& build) {
    return node_of<typename Row::template Operation<Device, T>>(build, kind_shape<Row::kinds.first>(layers[info.layer]),
                                                                kind_shape<Row::kinds.second>(layers[info.layer + 1]));
}

template <class Row, class Device, class T, LayerKindSet kinds>
[[nodiscard]] constexpr FusedNodeMaker<Device, T> fused_node_maker() {
    if constexpr (Row::one_operation) {
        constexpr LayerKindSet needed = kind_bit(Row::kinds.first) | kind_bit(Row::kinds.second);
        if constexpr ((kinds & needed) == needed) return &make_fused_node<Row, Device, T>;
    }
    return nullptr;
}

template <class Device, class T, LayerKindSet kinds, class... Rows>
[[nodiscard]] constexpr std::array<FusedNodeMaker<Device, T>, sizeof...(Rows)> fused_node_makers_of(
    PatternList<Rows...>) {
    return {fused_node_maker<Rows, Device, T, kinds>()...};
}

/// Indexed by the row of `fusion_patterns`, for a network that has layers of `kinds` with operations on the device;
/// null for rows that such a network cannot use.
template <class Device, class T, LayerKindSet kinds>
inline constexpr auto fused_node_makers = fused_node_makers_of<Device, T, kinds>(FusionPatterns{});

}}}  // namespace cupola::CUPOLA_ABI::impl
