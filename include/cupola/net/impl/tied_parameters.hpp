// SPDX-License-Identifier: Apache-2.0
//
// Lets layers of a network's table share parameters, and finds the errors in their use: what net/tied.hpp, which
// includes this header, adds to the walk over the modules.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <cupola/core/compile_time_message.hpp>
#include <cupola/net/impl/add_layer.hpp>
#include <cupola/net/impl/inner_name.hpp>
#include <cupola/net/modules.hpp>
#include <cupola/net/residual.hpp>
#include <cupola/net/table.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The error in a layer whose parameters are not those of the set's first layer; nothing if they are.
constexpr void describe_other_parameters(CompileTimeMessage& message, std::size_t place, const LayerInfo& layer,
                                         std::size_t first_place, const LayerInfo& first) {
    const auto begin = [&] {
        describe(message, place, layer);
        message << " cannot share the parameters of ";
        describe(message, first_place, first);
    };
    const ParameterList &own = layer.parameters, &shared = first.parameters;
    for (std::size_t p = 0; p < own.count && p < shared.count; ++p) {
        const Parameter &a = own.list[p], &b = shared.list[p];
        if (a.shape == b.shape && std::string_view(a.name) == b.name) continue;
        begin();
        message << ": its " << shown_name(a) << " is " << a.shape << ", and that one's " << shown_name(b) << " is "
                << b.shape;
        return;
    }
    if (own.count == shared.count) return;
    begin();
    message << ": it has " << static_cast<std::int64_t>(own.count) << " parameters, and that one has "
            << static_cast<std::int64_t>(shared.count);
}

/// Ties the layer that was added last, whose own parameters would begin at element `begin` of the arena.
template <std::size_t layer_count>
constexpr void tie_last_layer(Walk<layer_count>& walk, std::string_view name, std::int64_t begin) {
    LayerInfo& layer = walk.layers[walk.count - 1];
    if (name.empty() || layer.parameters.count == 0) {
        describe(walk.diagnostic, walk.count, layer);
        walk.diagnostic << (name.empty() ? " is tied by an empty name"
                                         : " has no parameters to share: Tied is for layers that have some");
        return;
    }
    const std::uint64_t hash = name_hash(name);
    for (std::size_t k = 0; k < walk.tied_count; ++k) {
        auto& set = walk.tied[k];
        if (set.hash != hash || walk.layers[set.first].name != name) continue;
        describe_other_parameters(walk.diagnostic, walk.count, layer, set.first + 1, walk.layers[set.first]);
        layer.parameters = {};
        layer.offsets = {};
        layer.tied_to = set.first;
        walk.parameter_elements = begin;
        walk.layers[set.last].adds_parameter_gradients = true;
        set.last = walk.count - 1;
        return;
    }
    layer.name = name;
    walk.tied[walk.tied_count++] = {hash, walk.count - 1, walk.count - 1};
}

/// Finds a set with a single layer.
template <std::size_t layer_count>
constexpr void check_tied_sets(Walk<layer_count>& walk) {
    for (std::size_t k = 0; k < walk.tied_count && walk.diagnostic.empty(); ++k) {
        const auto& set = walk.tied[k];
        if (set.first != set.last) continue;
        describe(walk.diagnostic, set.first + 1, walk.layers[set.first]);
        walk.diagnostic << " is tied to no other layer: a second one has the same name in its Tied";
    }
}

template <class Module, class L, std::size_t layer_count>
constexpr void visit_tied(Walk<layer_count>& walk) {
    using Inside = typename Module::TiedLayer;
    walk.check_tied = &check_tied_sets<layer_count>;
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

}}}  // namespace cupola::CUPOLA_ABI::impl
