// SPDX-License-Identifier: Apache-2.0
//
// Adds one layer to a network's table: calls its type's functions, places its parameters in the arenas, and writes the error
// of a layer that is none, or that cannot take its input.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <cupola/core/compile_time_message.hpp>
#include <cupola/core/type_name.hpp>
#include <cupola/layers/layer.hpp>
#include <cupola/net/impl/inner_name.hpp>
#include <cupola/net/modules.hpp>
#include <cupola/net/table.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

/// The state of the walk over the modules.
template <std::size_t layer_count>
struct Walk {
    std::array<LayerInfo, layer_count> layers{};
    std::size_t count = 0;
    std::int64_t parameter_elements = 0, buffer_elements = 0;
    /// The value that the next layer reads, and its extents.
    std::size_t value = 0;
    Shape shape{};
    int inputs = 0;
    CompileTimeMessage diagnostic{};
    /// The values that have names (net/named_values.hpp).
    struct KeptValue {
        std::uint64_t hash = 0;
        std::size_t value = 0;
        bool read = false;
    };
    std::array<KeptValue, layer_count> kept{};
    std::size_t kept_count = 0;
    /// The sets of parameters that have names (net/tied.hpp): the first and the last layer of each.
    struct TiedSet {
        std::uint64_t hash = 0;
        std::size_t first = 0, last = 0;
    };
    std::array<TiedSet, layer_count> tied{};
    std::size_t tied_count = 0;
    /// Whether a value is read that has not been found, its names, and whether it is kept further down.
    bool missing = false;
    ValueName unknown{}, unknown_outside{};
    bool kept_below = false;
};

constexpr void describe(CompileTimeMessage& message, std::size_t place, const LayerInfo& layer) {
    message << "layer " << static_cast<std::int64_t>(place) << " (";
    if (!layer.name.empty()) message << layer.name << ", ";
    message << layer.type << ")";
}

/// The layer that computed a value.
constexpr void describe_source(CompileTimeMessage& message, std::span<const LayerInfo> layers, std::size_t value) {
    while (value > 0 && layers[value - 1].kind == LayerKind::fork) value = layers[value - 1].reads;
    if (value == 0) {
        message << "the Input";
    } else {
        describe(message, value, layers[value - 1]);
    }
}

/// Completes "layer 3 (MyLayer) ...": lists the members that `L` lacks as a layer, or as a layer of its kind.
template <class L>
constexpr void describe_missing(CompileTimeMessage& message) {
    if constexpr (!InfersOutput<L>) {
        message << "is not a layer: it lacks `static constexpr ShapeResult output(const Shape&)`";
    } else {
        describe_missing_members<L>(message);
    }
}

/// A separate function per layer type, so that layers that differ only in their names share it. Returns the error in
/// the layer's input, or null.
template <class L>
constexpr const char* fill_layer(LayerInfo& layer) {
    layer.type = short_type_name<L>();
    layer.description = description_of<L>();
    if constexpr (Layer<L>) {
        const ShapeResult result = L::output(layer.input);
        if (result.error != nullptr) return result.error;
        layer.output = result.shape;
        layer.parameters = parameters_of<L>(layer.input);
        layer.buffers = buffers_of<L>(layer.input);
        layer.kind = kind_of<L>();
        layer.kind_parts = kind_parts_of<L>();
        layer.traits = traits_of<L>();
        layer.multiply_adds = multiply_adds_of<L>(layer.input);
    }
    return nullptr;
}

/// Adds layer `L`, which reads `walk.value`.
template <class L, std::size_t layer_count>
constexpr void add_layer(Walk<layer_count>& walk, std::string_view name) {
    LayerInfo& layer = walk.layers[walk.count];
    layer.name = name;
    layer.input = walk.shape;
    layer.reads = walk.value;
    const char* const wrong_input = fill_layer<L>(layer);
    if constexpr (!Layer<L>) {
        describe(walk.diagnostic, walk.count + 1, layer);
        describe_missing<L>(walk.diagnostic << " ");
        return;
    }
    const char* const wrong_kind = wrong_input != nullptr ? nullptr : kind_conflict(layer);
    if (wrong_input != nullptr || wrong_kind != nullptr) {
        describe(walk.diagnostic, walk.count + 1, layer);
        if (wrong_input != nullptr) {
            walk.diagnostic << " " << wrong_input;
        } else {
            walk.diagnostic << " has the kind " << to_string(layer.kind) << " and " << wrong_kind << "; its output is "
                            << layer.output;
        }
        walk.diagnostic << "; its input is " << walk.shape << " from ";
        describe_source(walk.diagnostic, walk.layers, walk.value);
        return;
    }
    for (std::size_t p = 0; p < layer.parameters.count; ++p) {
        layer.offsets[p] = walk.parameter_elements;
        walk.parameter_elements += arena_extent(layer.parameters.list[p].shape.size());
    }
    for (std::size_t b = 0; b < layer.buffers.count; ++b) {
        layer.buffer_offsets[b] = walk.buffer_elements;
        walk.buffer_elements += arena_extent(layer.buffers.list[b].shape.size());
    }
    walk.value = ++walk.count;
    walk.shape = layer.output;
}

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
