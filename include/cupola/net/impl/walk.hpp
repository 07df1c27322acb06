// SPDX-License-Identifier: Apache-2.0
//
// Walks over a network's list of types, in order and into its blocks, and finds the first error of the whole: in the Input, a
// Residual, or a name. The table's entries and the errors of single layers are those of add_layer.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <utility>

#include <cupola/core/compile_time_message.hpp>
#include <cupola/core/type_name.hpp>
#include <cupola/net/impl/add_layer.hpp>
#include <cupola/net/impl/inner_name.hpp>
#include <cupola/net/impl/kept_values.hpp>
#include <cupola/net/impl/tied_parameters.hpp>
#include <cupola/net/modules.hpp>
#include <cupola/net/named_values.hpp>
#include <cupola/net/residual.hpp>
#include <cupola/net/table.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

template <class Prefix, class Module, std::size_t layer_count>
constexpr void visit(Walk<layer_count>& walk);

template <class Prefix, class... Modules, std::size_t layer_count>
constexpr void visit_all(Walk<layer_count>& walk, ModuleList<Modules...>) {
    // An initialiser list is evaluated in order and without nesting, whereas a fold would nest once per layer.
    [[maybe_unused]] const int visited[] = {0, (visit<Prefix, Modules>(walk), 0)...};
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

/// The layers of a block of branches, of which the last has the block's name: net/branches.hpp.
template <class Prefix, class Module, class... Branches, std::size_t layer_count>
constexpr void visit_block(Walk<layer_count>& walk, ModuleList<Branches...>) {
    using Inside = typename PrefixInside<Prefix, Module>::Type;
    using Joint = typename Module::BlockJoint;
    constexpr bool residual = IsResidual<Module>, concatenates = std::same_as<Joint, Concatenation>;
    constexpr std::size_t count = sizeof...(Branches);
    constexpr const char* type = residual ? "Residual" : concatenates ? "Concat" : "Add";
    const std::string_view name = name_of<Prefix, Module>();

    add_layer<Fork>(walk, {});
    const std::size_t forked = walk.value;
    const auto begin_diagnostic = [&](std::size_t layers_to_come) {
        walk.diagnostic << "the " << type << (layers_to_come != 0 ? " of layers " : " that begins at layer ")
                        << static_cast<std::int64_t>(forked);
        if (layers_to_come != 0) walk.diagnostic << " to " << static_cast<std::int64_t>(walk.count + layers_to_come);
        if (!name.empty()) walk.diagnostic << " (" << name << ")";
    };
    if constexpr (residual) {
        using Shortcut = typename Module::ResidualShortcut;
        if constexpr (!IsShortcut<Shortcut>) {
            const std::string_view first = short_type_name<typename Unnamed<Shortcut>::Type>();
            begin_diagnostic(0);
            walk.diagnostic << " has " << first << " in place of its shortcut: write Identity before it, or Projection<"
                            << first << "> if it is the shortcut";
            return;
        }
    }
    if (count < 2) {
        begin_diagnostic(0);
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
        begin_diagnostic(count - 1);
        if (!residual) {
            walk.diagnostic << " has no layers in branch " << static_cast<std::int64_t>(k + 1) << ": use Identity";
        } else {
            walk.diagnostic << (k == 0 ? " has no layers besides its shortcut"
                                       : " has a Projection without layers: use Identity");
        }
        return;
    }
    walk.value = ends[0].value;
    walk.shape = ends[0].shape;
    for (std::size_t k = 1; k < count; ++k) {
        const BranchEnd& end = ends[k];
        if (!fits<Joint>(walk.shape, end.shape)) {
            begin_diagnostic(count - k);
            walk.diagnostic << (concatenates ? " cannot concatenate along channels: " : " cannot add: ");
            describe_branch<residual>(walk.diagnostic, 0);
            walk.diagnostic << " is " << ends[0].shape << " from ";
            describe_source(walk.diagnostic, walk.layers, ends[0].value);
            describe_branch<residual>(walk.diagnostic << ", and ", k);
            walk.diagnostic << " is " << end.shape << " from ";
            describe_source(walk.diagnostic, walk.layers, end.value);
            return;
        }
        add_layer<Joint>(walk, k + 1 == count ? name : std::string_view{});
        also_read<Joint>(walk, end.value, end.shape, end.aside);
        if constexpr (concatenates) walk.layers[walk.count - 1].type = walk.layers[walk.count - 1].description = type;
    }
}

template <class Prefix, class Kept>
inline constexpr ValueName value_name{name_of<Prefix, Kept>(), name_hash(name_of<Prefix, Kept>())};

template <class Prefix, class Module, std::size_t layer_count>
constexpr void visit_named_value(Walk<layer_count>& walk) {
    using Use = typename Unnamed<Module>::Type;
    constexpr std::string_view type{Use::module_type.data(), Use::module_type.size()};
    if constexpr (std::same_as<typename Use::NamedValueLayer, ColumnInput>) {
        if (walk.diagnostic.empty()) read_column(walk, Use::column, Use::shape, name_of<Prefix, Module>(), type);
    } else if constexpr (!KeepsValue<Use>) {
        if (!walk.diagnostic.empty()) return;
        read_value<typename Use::NamedValueLayer>(walk, value_name<Prefix, typename Use::Kept>,
                                                  value_name<NoPrefix, typename Use::Kept>, name_of<Prefix, Module>(),
                                                  type);
    } else if constexpr (!std::same_as<Use, Module>) {
        if (walk.diagnostic.empty()) walk.diagnostic << type << " is a name: Named gives it no other one";
    } else {
        keep_value(
            walk, value_name<Prefix, Use>, type, requires { Use::is_output; });
    }
}

/// Adds `L`, the layer of `Module` or that of an OnDevice around it.
template <class Module, class L, std::size_t layer_count>
constexpr void visit_tied(Walk<layer_count>& walk) {
    using Inside = typename Module::TiedLayer;
    if constexpr (is_named<Module>) {
        walk.diagnostic << "the Tied at layer " << static_cast<std::int64_t>(walk.count + 1)
                        << " gives its layers their name: Named gives it no other one, " << Module::name;
    } else if constexpr (IsBlock<Inside> || IsOffloaded<Inside> || UsesNamedValue<Inside> || IsTied<Inside> ||
                         is_named<Inside> || requires { typename Inside::BranchModules; }) {
        walk.diagnostic << "the Tied at layer " << static_cast<std::int64_t>(walk.count + 1) << " (" << Module::name
                        << ") takes a single layer without a name: tie the layers inside a block one by one";
    } else {
        const std::int64_t begin = walk.parameter_elements;
        add_layer<L>(walk, {});
        if (walk.diagnostic.empty()) tie_last_layer(walk, Module::name, begin);
    }
}

template <class Prefix, class Device, class Module, std::size_t layer_count>
constexpr void visit_offloaded(Walk<layer_count>& walk) {
    if (!walk.diagnostic.empty()) return;
    if constexpr (UsesNamedValue<Module>) {
        walk.diagnostic << "OnDevice takes single layers: put Keep and the modules that read a named value outside it";
    } else if constexpr (IsBlock<Module> || IsOffloaded<Module>) {
        walk.diagnostic << "OnDevice takes a single layer: put it inside the block, not around it";
    } else if constexpr (IsTied<Module>) {
        visit_tied<Module, OffloadedLayerOf<Device, Module>>(walk);
    } else {
        add_layer<OffloadedLayerOf<Device, Module>>(walk, name_of<Prefix, Module>());
    }
}
template <class Prefix, class Device, class... Modules, std::size_t layer_count>
constexpr void visit_all_offloaded(Walk<layer_count>& walk, ModuleList<Modules...>) {
    [[maybe_unused]] const int visited[] = {0, (visit_offloaded<Prefix, Device, Modules>(walk), 0)...};
}

template <class Prefix, class Module, std::size_t layer_count>
constexpr void visit(Walk<layer_count>& walk) {
    if constexpr (is_input<Module>) {
        ++walk.inputs;
        if (walk.inputs == 1 && walk.count == 0) {
            walk.shape = Module::shape;
            if (walk.shape.rank == 0 || walk.shape.size() < 1) walk.diagnostic << "the Input has a size of zero";
        }
    } else if constexpr (UsesNamedValue<Module>) {
        visit_named_value<Prefix, Module>(walk);
    } else {
        if (walk.count == layer_count || !walk.diagnostic.empty()) return;
        if constexpr (IsBlock<Module>) {
            visit_block<Prefix, Module>(walk, typename Module::BlockBranches{});
        } else if constexpr (IsTied<Module>) {
            visit_tied<Module, typename Module::TiedLayer>(walk);
        } else if constexpr (requires { typename Module::BranchModules; }) {
            walk.diagnostic << "layer " << static_cast<std::int64_t>(walk.count + 1)
                            << " is a Branch or a Projection, which has no meaning outside Concat, Add and Residual";
        } else if constexpr (IsOffloaded<Module>) {
            visit_all_offloaded<typename PrefixInside<Prefix, Module>::Type, typename Module::OffloadDevice>(
                walk, OffloadedModules<Module>{});
        } else {
            using L = typename Unnamed<Module>::Type;
            if constexpr (kind_of<L>() == LayerKind::fork || kind_of<L>() == LayerKind::sum) {
                walk.diagnostic << short_type_name<L>() << " has the kind " << to_string(kind_of<L>())
                                << ", which only the ends of a Residual have";
            } else {
                add_layer<L>(walk, name_of<Prefix, Module>());
            }
        }
    }
}

/// The hashes are sorted: n log n comparisons of integers.
template <std::size_t layer_count>
constexpr void check_names(Walk<layer_count>& walk) {
    std::array<std::uint64_t, layer_count> hashes{};
    std::size_t named = 0;
    for (const LayerInfo& layer : walk.layers) {
        if (layer.name.empty()) continue;
        if (has_space(layer.name)) {
            walk.diagnostic << "the name " << layer.name
                            << " contains a space, but lists of losses separate their names by spaces";
            return;
        }
        hashes[named++] = name_hash(layer.name);
    }
    std::sort(hashes.begin(), hashes.begin() + named);
    if (std::adjacent_find(hashes.begin(), hashes.begin() + named) == hashes.begin() + named) return;
    for (std::size_t i = 0; i < walk.count; ++i) {
        if (walk.layers[i].name.empty()) continue;
        for (std::size_t k = 0; k < i; ++k) {
            if (walk.layers[i].name != walk.layers[k].name) continue;
            walk.diagnostic << "layers " << static_cast<std::int64_t>(k + 1) << " and "
                            << static_cast<std::int64_t>(i + 1) << " have the same name, " << walk.layers[i].name;
            return;
        }
    }
}

template <class... Modules>
inline constexpr bool begins_with_input = false;
template <class First, class... Others>
inline constexpr bool begins_with_input<First, Others...> = is_input<First>;

[[nodiscard]] consteval std::size_t sum_of(std::initializer_list<std::size_t> counts) {
    std::size_t sum = 0;
    for (const std::size_t count : counts) sum += count;
    return sum;
}

template <class Module>
[[nodiscard]] consteval std::size_t layers_of();

template <class... Modules>
[[nodiscard]] consteval std::size_t layers_of(ModuleList<Modules...>) {
    return sum_of({layers_of<Modules>()...});
}

/// The number of layers in a block of branches: those of the branches and their beginnings, the Fork, and one less than
/// there are branches that joins them.
template <class... Branches>
[[nodiscard]] consteval std::size_t layers_of_block(ModuleList<Branches...>) {
    constexpr std::size_t count = sizeof...(Branches);
    const std::size_t starts = []<std::size_t... places>(std::index_sequence<places...>) {
        return (std::size_t{0} + ... + (has_branch_start<Branches>(places, count) ? 1U : 0U));
    }(std::make_index_sequence<count>{});
    return sum_of({layers_of(BranchModulesOf<Branches>{})...}) + starts + (count == 0 ? 1 : count);
}

/// The number of layers in a module.
template <class Module>
[[nodiscard]] consteval std::size_t layers_of() {
    if constexpr (is_input<Module>) {
        return 0;
    } else if constexpr (IsBlock<Module>) {
        return layers_of_block(typename Module::BlockBranches{});
    } else if constexpr (IsOffloaded<Module>) {
        return []<class... Layers>(ModuleList<Layers...>) { return sizeof...(Layers); }(OffloadedModules<Module>{});
    } else {
        return 1;
    }
}

template <class... Modules>
[[nodiscard]] consteval auto walk_modules() {
    constexpr std::size_t layer_count = sum_of({layers_of<Modules>()...});
    Walk<layer_count> walk;
    visit_all<NoPrefix>(walk, ModuleList<Modules...>{});
    if (walk.inputs != 1) {
        walk.diagnostic = {};
        walk.diagnostic << "a Sequential must have exactly one Input; this one has " << walk.inputs;
    } else if (!begins_with_input<Modules...>) {
        walk.diagnostic = {};
        walk.diagnostic << "the Input must be the first module of a Sequential";
    } else if (walk.diagnostic.empty() && layer_count == 0) {
        walk.diagnostic << "a Sequential must have at least one layer after its Input";
    } else {
        // Nothing follows an Output at the end of the list.
        if (walk.value > 0) {
            LayerInfo& last = walk.layers[walk.value - 1];
            last.only_read_aside = last.only_read_aside || last.is_output;
        }
        check_kept_values(walk);
        check_tied_sets(walk);
        if (walk.diagnostic.empty()) check_names(walk);
    }
    return walk;
}

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
