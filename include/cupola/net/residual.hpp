// SPDX-License-Identifier: Apache-2.0
//
// Residual<Shortcut, Layers...>: the sum of a block of layers and a shortcut around it (He et al. 2015), a module of a
// `Sequential` like a layer. A module after the sum, such as a ReLU, follows it in the list.
//
//   Residual<Identity, Conv2d<16, 3, no_bias>, BatchNorm2d<>, ReLU, Conv2d<16, 3, no_bias>, BatchNorm2d<>>, ReLU
//
// The shortcut is `Identity`, `Projection<Layers...>`, or a layer that is designed as one and declares `static
// constexpr bool is_shortcut = true`, as `OptionAShortcut<32, 2>` does. Any other first module does not compile,
// because it would be a layer of the block for which Identity was forgotten. A residual block is not a network inside a
// network: it adds its layers to the flat list: Fork, those of the block, those of the shortcut, and Add. A name is
// prepended to the names inside: `Named<"layer1.0", Residual<..., Named<"conv1", ...>>>` has "layer1.0.conv1.weight".
#pragma once

#include <concepts>
#include <cstddef>
#include <string_view>

#include <cupola/layers/graph_operator.hpp>
#include <cupola/layers/layer.hpp>
#include <cupola/ops/residual.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

template <class... Modules>
struct ModuleList {};

/// Passes its input to the block and to the shortcut.
struct Fork {
    static constexpr LayerKind kind = LayerKind::fork;
    static constexpr LayerTraits traits{.backward_reads_input = false, .backward_reads_output = false};

    static constexpr ShapeResult output(const Shape& input) { return input; }

    template <class BuildContext>
    static FactoryOf<ops::Fork, BuildContext> operation(const BuildContext&) {
        return {};
    }
};

/// The sum of the block's output and the shortcut's.
struct Add {
    static constexpr std::string_view block = "Add", conflict = "cannot add";
    static constexpr LayerKind kind = LayerKind::sum;
    static constexpr LayerTraits traits{.backward_reads_input = false,
                                        .backward_reads_second_input = false,
                                        .backward_reads_output = false,
                                        .absorbs_relu = true};

    static constexpr ShapeResult output(const Shape& input) { return input; }
    static constexpr GraphOperators onnx(const Shape&) { return GraphOperator("Add").input().second_input(); }

    template <class BuildContext>
    static FactoryOf<ops::Add, BuildContext> operation(const BuildContext&) {
        return {};
    }
};

}  // namespace impl

/// The branch, or the shortcut, that passes the block's input on unchanged.
struct Identity {};

/// A branch of a block: a list of modules (net/branches.hpp).
template <class... Modules>
struct Branch {
    using BranchModules = impl::ModuleList<Modules...>;
};

/// A shortcut of layers: `Projection<Conv2d<32, 1, stride(2), no_bias>, BatchNorm2d<>>`.
template <class... Layers>
struct Projection {
    using BranchModules = impl::ModuleList<Layers...>;
};

/// See the head of this file.
template <class Shortcut, class... Layers>
struct Residual {
    using ResidualShortcut = Shortcut;
    using BlockBranches = impl::ModuleList<Branch<Layers...>, Shortcut>;
    using BlockJoint = impl::Add;
};

namespace impl {

/// A Residual, a Concat, an Add or a Multiply.
template <class Module>
concept IsBlock = requires { typename Module::BlockBranches; };

template <class Module>
concept IsResidual = IsBlock<Module> && requires { typename Module::ResidualShortcut; };

/// A module of net/named_values.hpp.
template <class Module>
concept UsesNamedValue = requires { typename Module::NamedValueLayer; };

/// The types that are accepted as the first module of a Residual.
template <class Module>
concept IsShortcut = std::same_as<Module, Identity> || requires { typename Module::BranchModules; } ||
                     requires { requires Module::is_shortcut; };

/// The modules of a branch.
template <class Branch>
struct BranchModules {
    using Type = ModuleList<Branch>;
};
template <>
struct BranchModules<Identity> {
    using Type = ModuleList<>;
};
template <class Branch>
    requires requires { typename Branch::BranchModules; }
struct BranchModules<Branch> {
    using Type = typename Branch::BranchModules;
};
template <class Branch>
using BranchModulesOf = typename BranchModules<Branch>::Type;

/// Begins a branch whose first module cannot add its gradient to that of another branch.
struct BranchStart : Fork {
    static constexpr std::string_view description = "Branch";
};

/// Whether branch `place` of a block of `branches` begins with a BranchStart: two readers aside add their gradients.
template <class Branch>
[[nodiscard]] constexpr bool has_branch_start(std::size_t place, std::size_t branches) {
    return place > 0 && branches > 2 && !std::same_as<Branch, Identity>;
}

}  // namespace impl

}}  // namespace cupola::CUPOLA_ABI
