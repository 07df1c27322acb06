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
#include <string_view>

#include <cupola/core/compile_time_message.hpp>
#include <cupola/core/type_name.hpp>
#include <cupola/net/impl/add_layer.hpp>
#include <cupola/net/impl/inner_name.hpp>
#include <cupola/net/impl/kept_values.hpp>
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

/// The layers of a residual block: Fork, those of the block, those of the shortcut, and Add, which has the block's
/// name.
template <class Prefix, class Module, std::size_t layer_count>
constexpr void visit_residual(Walk<layer_count>& walk) {
    using Inside = typename PrefixInside<Prefix, Module>::Type;
    using Shortcut = typename Module::ResidualShortcut;
    using ShortcutModules = typename ShortcutModules<Shortcut>::Type;
    constexpr bool identity = std::same_as<ShortcutModules, ModuleList<>>;
    const std::string_view name = name_of<Prefix, Module>();
    const auto begin_diagnostic = [&](std::size_t first, std::size_t last) {
        walk.diagnostic << "the Residual of layers " << static_cast<std::int64_t>(first) << " to "
                        << static_cast<std::int64_t>(last);
        if (!name.empty()) walk.diagnostic << " (" << name << ")";
    };

    add_layer<Fork>(walk, {});
    const std::size_t forked = walk.value;
    const Shape input = walk.shape;
    if constexpr (!IsShortcut<Shortcut>) {
        const std::string_view first = short_type_name<typename Unnamed<Shortcut>::Type>();
        walk.diagnostic << "the Residual that begins at layer " << static_cast<std::int64_t>(forked);
        if (!name.empty()) walk.diagnostic << " (" << name << ")";
        walk.diagnostic << " has " << first << " in place of its shortcut: write Identity before it, or Projection<"
                        << first << "> if it is the shortcut";
        return;
    }
    visit_all<Inside>(walk, typename Module::ResidualModules{});
    if (!walk.diagnostic.empty()) return;
    const std::size_t block = walk.value;
    const Shape block_output = walk.shape;
    walk.value = forked;
    walk.shape = input;
    if constexpr (!identity) {
        const std::size_t first = walk.count;
        visit_all<Inside>(walk, ShortcutModules{});
        if (!walk.diagnostic.empty()) return;
        if (walk.count > first) walk.layers[first].reads_aside = true;
    }
    const std::size_t shortcut = walk.value;
    if (block == forked || (!std::same_as<Shortcut, Identity> && shortcut == forked)) {
        begin_diagnostic(forked, walk.count + 1);
        walk.diagnostic << (block == forked ? " has no layers besides its shortcut"
                                            : " has a Projection without layers: use Identity");
        return;
    }
    if (block_output != walk.shape) {
        begin_diagnostic(forked, walk.count + 1);
        walk.diagnostic << " cannot add: the block's output is " << block_output << " from ";
        describe_source(walk.diagnostic, walk.layers, block);
        walk.diagnostic << ", and its shortcut's is " << walk.shape << " from ";
        describe_source(walk.diagnostic, walk.layers, shortcut);
        return;
    }
    walk.value = block;
    add_layer<Add>(walk, name);
    walk.layers[walk.count - 1].also_reads = shortcut;
    walk.layers[walk.count - 1].also_reads_aside = identity;
}

template <class Prefix, class Kept>
inline constexpr ValueName value_name{name_of<Prefix, Kept>(), name_hash(name_of<Prefix, Kept>())};

template <class Prefix, class Module, std::size_t layer_count>
constexpr void visit_named_value(Walk<layer_count>& walk) {
    using Use = typename Unnamed<Module>::Type;
    constexpr std::string_view type{Use::module_type.data(), Use::module_type.size()};
    if constexpr (!KeepsValue<Use>) {
        if (!walk.diagnostic.empty()) return;
        read_value<typename Use::NamedValueLayer>(walk, value_name<Prefix, typename Use::Kept>,
                                                  value_name<NoPrefix, typename Use::Kept>, name_of<Prefix, Module>(),
                                                  type);
    } else if constexpr (!std::same_as<Use, Module>) {
        if (walk.diagnostic.empty()) walk.diagnostic << type << " is a name: Named gives it no other one";
    } else {
        keep_value(walk, value_name<Prefix, Use>, type);
    }
}

template <class Prefix, class Device, class Module, std::size_t layer_count>
constexpr void visit_offloaded(Walk<layer_count>& walk) {
    if (!walk.diagnostic.empty()) return;
    if constexpr (UsesNamedValue<Module>) {
        walk.diagnostic << "OnDevice takes single layers: put Keep and the modules that read a named value outside it";
    } else if constexpr (IsResidual<Module> || IsOffloaded<Module>) {
        walk.diagnostic << "OnDevice takes a single layer: put it inside the Residual, not around it";
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
        if constexpr (IsResidual<Module>) {
            visit_residual<Prefix, Module>(walk);
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

/// The number of layers in a module.
template <class Module>
[[nodiscard]] consteval std::size_t layers_of() {
    if constexpr (is_input<Module>) {
        return 0;
    } else if constexpr (IsResidual<Module>) {
        return 2 + layers_of(typename Module::ResidualModules{}) +
               layers_of(typename ShortcutModules<typename Module::ResidualShortcut>::Type{});
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
        check_kept_values(walk);
        if (walk.diagnostic.empty()) check_names(walk);
    }
    return walk;
}

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
