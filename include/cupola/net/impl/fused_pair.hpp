// SPDX-License-Identifier: Apache-2.0
//
// The nodes of two layers: instantiated once for a device and an element type, in networks that have such layers. A
// backend that has ops::LocalResponseNorm has ops::PoolThenLrn and ops::LrnThenPool.
#pragma once

#include <memory>
#include <span>

#include <cupola/net/fusion.hpp>
#include <cupola/net/plan_node.hpp>
#include <cupola/net/table.hpp>
#include <cupola/ops/lrn_then_pool.hpp>
#include <cupola/ops/pool_then_lrn.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

/// `info.pair` is one.
template <class Device, class T>
[[nodiscard, gnu::cold]] std::unique_ptr<PlanNode<Device, T>> make_pair_node(std::span<const LayerInfo> layers,
                                                                             const NodeInfo& info,
                                                                             const BuildContext<Device, T>& build) {
    const LayerInfo &first = layers[info.layer], &second = layers[info.layer + 1];
    if (info.pair == FusedPair::pool_then_lrn) {
        return std::unique_ptr<PlanNode<Device, T>>(new OperationNode<Device, T, ops::PoolThenLrn<Device, T>>(
            build, first.traits.pooling(first.input), second.traits.local_norm(second.input)));
    }
    return std::unique_ptr<PlanNode<Device, T>>(new OperationNode<Device, T, ops::LrnThenPool<Device, T>>(
        build, first.traits.local_norm(first.input), second.traits.pooling(second.input)));
}

template <class Device, class T>
using PairNodeMaker = std::unique_ptr<PlanNode<Device, T>> (*)(std::span<const LayerInfo>, const NodeInfo&,
                                                               const BuildContext<Device, T>&);

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
