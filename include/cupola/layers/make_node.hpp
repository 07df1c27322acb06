// SPDX-License-Identifier: Apache-2.0
//
// The node of a layer's operation.
#pragma once

#include <concepts>
#include <memory>

#include <cupola/layers/layer.hpp>
#include <cupola/ops/plan_node.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// Makes the node of layer `L`. Layers with the same operation share the code behind it.
template <class L, class Device, class T = float>
[[nodiscard]] std::unique_ptr<PlanNode<Device, T>> make_node(const BuildContext<Device, T>& build) {
    using Op = OperationOf<L, Device, T>;
    using Returned = impl::ReturnedBy<L, Device, T>;
    if constexpr (std::same_as<Returned, Op>) {
        return impl::node_made_by<Op, Device, T>([](const BuildContext<Device, T>& b) -> Op { return L::operation(b); },
                                                 build);
    } else if constexpr (std::same_as<Returned, OperationFactory<Op>>) {
        return impl::node_of<Op>(build);
    } else {
        return impl::node_of<Op>(build, L::operation(build).shape);
    }
}

}}  // namespace cupola::CUPOLA_ABI
