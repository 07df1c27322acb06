// SPDX-License-Identifier: Apache-2.0
//
// Walks over a network's list of types, in order, and finds the first error that concerns the network as a whole: in
// the Input, or in a name. visit_block.hpp handles blocks of branches; add_layer.hpp writes the table's entries and the
// errors of single layers.
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
#include <cupola/net/impl/visit_block.hpp>
#include <cupola/net/modules.hpp>
#include <cupola/net/residual.hpp>
#include <cupola/net/table.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

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

/// The number of layers in a block of branches: the Fork, those of the branches and their beginnings, and the layers
/// that join the branches, one fewer than there are branches.
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

template <class Prefix, class... Modules, std::size_t layer_count>
constexpr void visit_all(Walk<layer_count>& walk, ModuleList<Modules...>) {
    // An initialiser list is evaluated in order and without nesting, whereas a fold would nest once per layer.
    [[maybe_unused]] const int visited[] = {0, (visit<Prefix, Modules>(walk), 0)...};
}

/// Defined in kept_values.hpp, which net/named_values.hpp includes.
template <class Prefix, class Module, std::size_t layer_count>
constexpr void visit_named_value(Walk<layer_count>& walk);

/// Adds `L`, the layer of `Module` or that of an OnDevice around it. Defined in tied_parameters.hpp, which net/tied.hpp
/// includes.
template <class Module, class L, std::size_t layer_count>
constexpr void visit_tied(Walk<layer_count>& walk);

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
            if (walk.shape.rank == 0)
                walk.diagnostic << "the Input has no extents";
            else if (!walk.shape.has_elements())
                walk.diagnostic << "the Input, " << walk.shape << ", has an extent below 1";
            if (!walk.shape.is_at_most(max_elements))
                walk.diagnostic << "the Input, " << walk.shape << ", has more than 2^40 elements";
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
            walk.diagnostic
                << "layer " << static_cast<std::int64_t>(walk.count + 1)
                << " is a Branch or a Projection, which has no meaning outside Concat, Add, Multiply and Residual";
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

/// Whether a layer has a parameter or a buffer of this name.
[[nodiscard]] constexpr bool has_parameter(const LayerInfo& layer, std::string_view name) {
    for (const ParameterList* const each : {&layer.parameters, &layer.buffers}) {
        for (std::size_t p = 0; p < each->count; ++p) {
            if (each->list[p].name == name) return true;
        }
    }
    return false;
}

/// Writes the error if a parameter that has the name of its layer alone, block.scale, is also the scale of a layer
/// block. `hashes` are those of the layers' names, sorted.
template <std::size_t layer_count>
constexpr void check_unnamed_parameters(Walk<layer_count>& walk, std::span<const std::uint64_t> hashes) {
    for (std::size_t i = 0; i < walk.count; ++i) {
        const std::string_view name = walk.layers[i].name;
        if (!has_parameter(walk.layers[i], "")) continue;
        for (std::size_t dot = 0; dot < name.size(); ++dot) {
            if (name[dot] != '.') continue;
            const std::string_view outer = name.substr(0, dot);
            if (!std::binary_search(hashes.begin(), hashes.end(), name_hash(outer))) continue;
            for (std::size_t k = 0; k < walk.count; ++k) {
                if (walk.layers[k].name != outer || !has_parameter(walk.layers[k], name.substr(dot + 1))) continue;
                walk.diagnostic << "layers " << static_cast<std::int64_t>(k + 1) << " and "
                                << static_cast<std::int64_t>(i + 1) << " both have a parameter " << name;
                return;
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
    if (std::adjacent_find(hashes.begin(), hashes.begin() + named) == hashes.begin() + named)
        return check_unnamed_parameters(walk, std::span(hashes).first(named));
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

template <class... Modules, std::size_t layer_count>
constexpr void walk_modules(Walk<layer_count>& walk) {
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
        walk.check_kept(walk);
        check_input_types(walk);
        walk.check_tied(walk);
        if (walk.diagnostic.empty()) check_names(walk);
    }
}

/// The walk over all modules, for constant expressions alone.
template <class... Modules>
struct WholeWalk : Walk<sum_of({layers_of<Modules>()...})> {
    constexpr WholeWalk() { walk_modules<Modules...>(*this); }
};

/// What a program has of a walk: the layers, and in one array their parameters and buffers.
template <std::size_t layer_count, std::size_t list_count>
struct LayerTable {
    std::array<LayerInfo, layer_count> layers;
    std::array<Parameter, list_count> parameters{};

    constexpr explicit LayerTable(const std::array<LayerInfo, layer_count>& walked) : layers(walked) {
        Parameter* end = parameters.data();
        for (LayerInfo& layer : layers) {
            for (ParameterList* const each : {&layer.parameters, &layer.buffers}) {
                end = std::copy_n(each->list, each->count, end);
                each->list = end - each->count;
            }
        }
    }
};

}}}  // namespace cupola::CUPOLA_ABI::impl
