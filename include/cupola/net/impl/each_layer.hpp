// SPDX-License-Identifier: Apache-2.0
//
// Visits the layers of a network's list in order, including those in residual blocks, for work that needs each layer's
// type.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>

#include <cupola/core/compile_time_message.hpp>
#include <cupola/core/type_name.hpp>
#include <cupola/layers/layer.hpp>
#include <cupola/net/fusion.hpp>
#include <cupola/net/impl/walk.hpp>
#include <cupola/net/modules.hpp>
#include <cupola/net/residual.hpp>
#include <cupola/net/table.hpp>
#include <cupola/ops/plan_node.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

// The nodes whose operation is made from two layers (net/fusion.hpp). They are instantiated once per device and element
// type, in networks that have layers of both kinds.

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

/// Calls visitor.template layer<L>() for each layer of a module, in the order of the layers.
template <class Module, class Visitor>
constexpr void for_each_layer(Visitor& visitor);

template <class... Modules, class Visitor>
constexpr void for_each_layer_of(ModuleList<Modules...>, Visitor& visitor) {
    [[maybe_unused]] const int visited[] = {0, (for_each_layer<Modules>(visitor), 0)...};
}

template <class Branch, class Visitor>
constexpr void for_each_layer_of_branch(Visitor& visitor, bool has_start) {
    if (has_start) visitor.template layer<BranchStart>();
    for_each_layer_of(BranchModulesOf<Branch>{}, visitor);
}

template <class Joint, class... Branches, class Visitor>
constexpr void for_each_layer_of_block(ModuleList<Branches...>, Visitor& visitor) {
    constexpr std::size_t count = sizeof...(Branches);
    std::size_t place = 0;
    visitor.template layer<Fork>();
    [[maybe_unused]] const int visited[] = {
        0, (for_each_layer_of_branch<Branches>(visitor, has_branch_start<Branches>(place, count)), ++place, 0)...};
    for (std::size_t k = 1; k < count; ++k) visitor.template layer<Joint>();
}

template <class Module, class Visitor>
constexpr void for_each_layer(Visitor& visitor) {
    if constexpr (IsBlock<Module>) {
        for_each_layer_of_block<typename Module::BlockJoint>(typename Module::BlockBranches{}, visitor);
    } else if constexpr (IsOffloaded<Module>) {
        [&]<class... Layers>(ModuleList<Layers...>) {
            [[maybe_unused]] const int visited[] = {
                0, (visitor.template layer<OffloadedLayerOf<typename Module::OffloadDevice, Layers>>(), 0)...};
        }(OffloadedModules<Module>{});
    } else if constexpr (UsesNamedValue<Module>) {
        visitor.template layer<typename Module::NamedValueLayer>();
    } else if constexpr (!is_input<Module>) {
        visitor.template layer<typename Unnamed<Module>::Type>();
    }
}

/// Collects the function that makes each layer's node on a device, and the kinds of the layers that have an operation
/// there.
template <class Device, class T, std::size_t layer_count>
struct CollectMakers {
    std::array<NodeMaker<Device, T>, layer_count> makers{};
    LayerKindSet kinds = 0;
    std::size_t count = 0;

    template <class L>
    constexpr void layer() {
        if constexpr (HasOperation<L, Device, T>) {
            kinds |= kind_bit(kind_of<L>());
            makers[count] = &make_node<L, Device, T>;
        }
        ++count;
    }
};

/// `operation` returns a class that is declared only, by value: a separately compiled program has to include its
/// header. A factory needs none.
template <class L, class Device, class T>
concept HasUndefinedOperation = requires {
    requires std::is_class_v<ReturnedBy<L, Device, T>>;
    requires !requires { sizeof(ReturnedBy<L, Device, T>); };
};

/// Finds the first layer that cannot be trained on a device in a precision or, without `backward`, cannot be run.
template <class Device, class Precision, bool backward = true>
struct RequireTrainable {
    using T = typename Precision::Activation;
    std::span<const LayerInfo> layers;
    std::size_t place = 0;
    CompileTimeMessage message{};

    template <class L>
    constexpr void layer() {
        ++place;
        if (!message.empty()) return;
        if constexpr (HasUndefinedOperation<L, Device, T>) {
            describe(message, place, layers[place - 1]);
            constexpr std::string_view name = type_name<OperationOf<L, Device, T>>();
            message << " computes with " << name.substr(0, name.find('<'))
                    << ", whose header is not included: cupola/host_operations.hpp has the operations of Host";
        } else if constexpr (!HasOperation<L, Device, T>) {
            describe(message, place, layers[place - 1]);
            message << " has no `static auto operation(const BuildContext&)` for " << Device::name;
            if constexpr (!std::same_as<T, float>) message << " in " << Precision::name;
        } else if constexpr (!HasForward<OperationOf<L, Device, T>, Device, T>) {
            describe(message, place, layers[place - 1]);
            message << " has no forward on " << Device::name
                    << ": its operation lacks `void forward(const ForwardArgs&)`";
        } else if constexpr (backward && !HasBackward<OperationOf<L, Device, T>, Device, T>) {
            describe(message, place, layers[place - 1]);
            message << " has no backward on " << Device::name
                    << ": its operation lacks `void backward(const BackwardArgs&)`";
        }
    }
};

}}}  // namespace cupola::CUPOLA_ABI::impl
