// SPDX-License-Identifier: Apache-2.0
//
// The layers of a block of branches (Residual, Concat, Add, Multiply) in a network's table, and the first error of the
// block. See walk.hpp, which visits the other modules.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <cupola/core/compile_time_message.hpp>
#include <cupola/core/type_name.hpp>
#include <cupola/net/impl/add_layer.hpp>
#include <cupola/net/impl/inner_name.hpp>
#include <cupola/net/modules.hpp>
#include <cupola/net/residual.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

// Both are defined in walk.hpp: a branch has modules of every kind.
template <class Prefix, class Module, std::size_t layer_count>
constexpr void visit(Walk<layer_count>& walk);
template <class Prefix, class... Modules, std::size_t layer_count>
constexpr void visit_all(Walk<layer_count>& walk, ModuleList<Modules...>);

/// Whether two values can be inputs of the layer `Joint`: a sum, and in net/named_values.hpp a product or a
/// concatenation.
template <class Joint>
[[nodiscard]] constexpr bool fits(const Shape& a, const Shape& b) {
    if constexpr (requires { Joint::fits(a, b); })
        return Joint::fits(a, b);
    else
        return a == b;
}

/// Completes the last layer, which is a `Joint`: its second input is `value`.
template <class Joint, std::size_t layer_count>
constexpr void also_read(Walk<layer_count>& walk, std::size_t value, const Shape& shape, bool aside) {
    LayerInfo& layer = walk.layers[walk.count - 1];
    layer.also_reads = value;
    layer.also_reads_aside = aside;
    if constexpr (requires { Joint::joined(shape, shape); }) {
        walk.shape = layer.output = Joint::joined(layer.output, shape);
        if (!walk.shape.is_at_most(max_elements)) {
            describe(walk.diagnostic, walk.count, layer);
            walk.diagnostic << " has an output of more than 2^40 elements per sample";
        }
    }
}

/// The output of a branch.
struct BranchEnd {
    std::size_t value = 0;
    Shape shape{};
    /// Whether it is the block's input.
    bool aside = false;
};

/// Adds the layers of branch `place` of a block, which reads the value of the layer `forked`.
template <class Prefix, class Branch, std::size_t layer_count>
constexpr void visit_branch(Walk<layer_count>& walk, std::size_t forked, std::span<BranchEnd> ends, std::size_t place,
                            bool has_start) {
    if (!walk.diagnostic.empty()) return;
    walk.value = forked;
    walk.shape = walk.layers[forked - 1].output;
    if constexpr (!std::same_as<Branch, Identity>) {
        const std::size_t first = walk.count;
        if (has_start) add_layer<BranchStart>(walk, {});
        if constexpr (requires { typename Branch::BranchModules; }) {
            visit_all<typename PrefixInside<Prefix, Branch>::Type>(walk, BranchModulesOf<Branch>{});
        } else {
            visit<Prefix, Branch>(walk);
        }
        if (place > 0 && walk.count > first) walk.layers[first].reads_aside = true;
    }
    ends[place] = {walk.value, walk.shape, place > 0 && walk.value == forked};
}

/// The name of the branch in messages.
template <bool residual>
constexpr void describe_branch(CompileTimeMessage& message, std::size_t place) {
    if constexpr (residual) {
        message << (place == 0 ? "the block's output" : "its shortcut's");
    } else {
        message << "branch " << static_cast<std::int64_t>(place + 1);
    }
}

/// A block of branches in messages: its type, its name, and the layer that its branches read.
struct BlockInfo {
    std::string_view type, name;
    std::size_t forked;
};

/// Begins the message about a block. `layers_to_come` is the number of its layers that are not in the table yet, 0 if
/// it is not known.
template <std::size_t layer_count>
constexpr void begin_block_diagnostic(Walk<layer_count>& walk, const BlockInfo& block, std::size_t layers_to_come) {
    walk.diagnostic << "the " << block.type << (layers_to_come != 0 ? " of layers " : " that begins at layer ")
                    << static_cast<std::int64_t>(block.forked);
    if (layers_to_come != 0) walk.diagnostic << " to " << static_cast<std::int64_t>(walk.count + layers_to_come);
    if (!block.name.empty()) walk.diagnostic << " (" << block.name << ")";
}

/// Joins the ends of the branches by layers `Joint`, the last of which has the block's name.
template <class Joint, bool residual, std::size_t layer_count>
constexpr void join_branches(Walk<layer_count>& walk, const BlockInfo& block, std::span<const BranchEnd> ends) {
    const std::size_t count = ends.size();
    walk.value = ends[0].value;
    walk.shape = ends[0].shape;
    for (std::size_t k = 1; k < count; ++k) {
        const BranchEnd& end = ends[k];
        if (!fits<Joint>(walk.shape, end.shape)) {
            begin_block_diagnostic(walk, block, count - k);
            // A product has the extents of a branch that is repeated for no other.
            std::size_t other = 0;
            while (other < k && ends[other].shape != walk.shape) ++other;
            if (other == k) other = 0;
            walk.diagnostic << " " << Joint::conflict << ": ";
            describe_branch<residual>(walk.diagnostic, other);
            walk.diagnostic << " is " << ends[other].shape << " from ";
            describe_source(walk.diagnostic, walk.layers, ends[other].value);
            describe_branch<residual>(walk.diagnostic << ", and ", k);
            walk.diagnostic << " is " << end.shape << " from ";
            describe_source(walk.diagnostic, walk.layers, end.value);
            return;
        }
        add_layer<Joint>(walk, k + 1 == count ? block.name : std::string_view{});
        also_read<Joint>(walk, end.value, end.shape, end.aside);
        if (!walk.diagnostic.empty()) return;
        if constexpr (!std::same_as<Joint, Add>) {
            LayerInfo& joint = walk.layers[walk.count - 1];
            joint.type = joint.description = block.type;
        }
    }
}

/// The layers of a block of branches, of which the last has the block's name: net/branches.hpp.
template <class Prefix, class Module, class... Branches, std::size_t layer_count>
constexpr void visit_block(Walk<layer_count>& walk, ModuleList<Branches...>) {
    using Inside = typename PrefixInside<Prefix, Module>::Type;
    using Joint = typename Module::BlockJoint;
    constexpr bool residual = IsResidual<Module>;
    constexpr std::size_t count = sizeof...(Branches);
    constexpr std::string_view type = residual ? "Residual" : Joint::block;

    add_layer<Fork>(walk, {});
    const std::size_t forked = walk.value;
    const BlockInfo block{type, name_of<Prefix, Module>(), forked};
    if constexpr (residual) {
        using Shortcut = typename Module::ResidualShortcut;
        if constexpr (!IsShortcut<Shortcut>) {
            const std::string_view first = short_type_name<typename Unnamed<Shortcut>::Type>();
            begin_block_diagnostic(walk, block, 0);
            walk.diagnostic << " has " << first << " in place of its shortcut: write Identity before it, or Projection<"
                            << first << "> if it is the shortcut";
            return;
        }
    }
    if (count < 2) {
        begin_block_diagnostic(walk, block, 0);
        walk.diagnostic << " has " << (count == 0 ? "no branch" : "one branch") << ": it needs two or more";
        return;
    }
    std::array<BranchEnd, count> ends{};
    std::size_t place = 0;
    [[maybe_unused]] const int visited[] = {
        0, (visit_branch<Inside, Branches>(walk, forked, ends, place, has_branch_start<Branches>(place, count)),
            ++place, 0)...};
    if (!walk.diagnostic.empty()) return;
    constexpr bool identities[] = {false, std::same_as<Branches, Identity>...};
    for (std::size_t k = 0; k < count; ++k) {
        if (ends[k].value != forked || (identities[k + 1] && !(residual && k == 0))) continue;
        begin_block_diagnostic(walk, block, count - 1);
        if (!residual) {
            walk.diagnostic << " has no layers in branch " << static_cast<std::int64_t>(k + 1) << ": use Identity";
        } else {
            walk.diagnostic << (k == 0 ? " has no layers besides its shortcut"
                                       : " has a Projection without layers: use Identity");
        }
        return;
    }
    join_branches<Joint, residual>(walk, block, ends);
}

}}}  // namespace cupola::CUPOLA_ABI::impl
