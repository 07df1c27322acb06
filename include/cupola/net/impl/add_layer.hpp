// SPDX-License-Identifier: Apache-2.0
//
// Adds one layer to a network's table: calls its type's functions, places its parameters in the arenas, and writes the
// error if the type is not a layer, or cannot take its input.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <cupola/core/compile_time_message.hpp>
#include <cupola/core/element_type.hpp>
#include <cupola/core/type_name.hpp>
#include <cupola/layers/layer.hpp>
#include <cupola/net/impl/inner_name.hpp>
#include <cupola/net/modules.hpp>
#include <cupola/net/table.hpp>
#include <cupola/tensor/batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The state of the walk over the modules. Its layers point to its parameters: it is not copied.
template <std::size_t layer_count>
struct Walk {
    std::array<LayerInfo, layer_count> layers{};
    std::array<Parameters, layer_count> parameters{}, buffers{};
    std::size_t count = 0, list_count = 0;
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
    /// Whether a layer reads ids or bytes.
    bool reads_other_types = false;
    /// The sets of parameters that have names (net/tied.hpp): the first and the last layer of each.
    struct TiedSet {
        std::uint64_t hash = 0;
        std::size_t first = 0, last = 0;
    };
    std::array<TiedSet, layer_count> tied{};
    std::size_t tied_count = 0;
    static constexpr void check_nothing(Walk&) {}
    /// They check both at the end. None is null: under -fsanitize=undefined, g++ 12 does not take a comparison of a
    /// function with null as a constant.
    void (*check_kept)(Walk&) = check_nothing, (*check_tied)(Walk&) = check_nothing;
    /// Whether a value that is read by its name was not found, its name and that outside the block, and whether it is
    /// kept later in the list.
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

/// Whether two of a layer's parameters and buffers have the same name.
[[nodiscard]] constexpr bool has_equal_names(const Parameters& parameters, const Parameters& buffers) {
    const std::size_t count = parameters.count + buffers.count;
    const auto name = [&](std::size_t i) -> std::string_view {
        return i < parameters.count ? parameters.list[i].name : buffers.list[i - parameters.count].name;
    };
    for (std::size_t i = 1; i < count; ++i) {
        for (std::size_t k = 0; k < i; ++k) {
            if (name(i) == name(k)) return true;
        }
    }
    return false;
}

/// A separate function per layer type, so that layers that differ only in their names share it. Returns the error in
/// the layer's input, which is empty if there is none. The layer refers to `parameters` and `buffers`, into which its
/// own are written.
template <class L>
constexpr std::string_view fill_layer(LayerInfo& layer, Parameters& parameters, Parameters& buffers) {
    layer.type = short_type_name<L>();
    layer.description = description_of<L>();
    if constexpr (Layer<L>) {
        const ShapeResult result = L::output(layer.input);
        if (!result.error.empty()) return result.error;
        layer.output = result.shape;
        if (!layer.output.is_at_most(max_elements)) return "has an output of more than 2^40 elements per sample";
        if constexpr (HasParameters<L>) parameters = L::parameters(layer.input);
        if constexpr (HasBuffers<L>) buffers = L::buffers(layer.input);
        for (const Parameters* const each : {&parameters, &buffers}) {
            for (std::size_t p = 0; p < each->count; ++p) {
                if (!each->list[p].shape.is_at_most(max_elements)) return "has a parameter of more than 2^40 elements";
                if (const char* const problem = problem_of(each->list[p].initializer)) return problem;
                if (const char* const problem = problem_of_layout(each->list[p], layer.input)) return problem;
            }
        }
        if (has_equal_names(parameters, buffers)) return "has two parameters or buffers of the same name";
        layer.parameters = {parameters.list.data(), parameters.count};
        layer.buffers = {buffers.list.data(), buffers.count};
        layer.kind = kind_of<L>();
        layer.kind_parts = kind_parts_of<L>();
        layer.traits = traits_of<L>();
        layer.multiply_adds = multiply_adds_of<L>(layer.input);
    }
    return {};
}

/// If a value is an unchanged input of the network, the layer that has the input's type; otherwise null. `value`
/// becomes 0 for the Input, and the value of the FromInput for another one.
[[nodiscard]] constexpr const LayerInfo* input_of_value(std::span<const LayerInfo> layers, std::size_t& value) {
    while (value > 0 && layers[value - 1].is_view() && layers[value - 1].column.empty())
        value = layers[value - 1].reads;
    if (value == 0) return &layers[0];
    return layers[value - 1].column.empty() ? nullptr : &layers[value - 1];
}

/// Finds the input that a layer of ids or bytes reads, and gives it that type; writes the error if the layer reads no
/// input.
template <std::size_t layer_count>
[[nodiscard]] constexpr bool read_input_as_it_is(Walk<layer_count>& walk, LayerInfo& layer) {
    std::size_t value = walk.value;
    const LayerInfo* const found = input_of_value(walk.layers, value);
    if (found == nullptr || !layer.traits.runs_on.empty()) {
        describe(walk.diagnostic, walk.count + 1, layer);
        walk.diagnostic << " reads an input of the network, of " << to_string(layer.traits.reads);
        if (found != nullptr) {
            walk.diagnostic << ", and OnDevice cannot place it on another device";
        } else {
            walk.diagnostic << ": put it after the Input or a FromInput; its input is " << walk.shape << " from ";
            describe_source(walk.diagnostic, walk.layers, walk.value);
        }
        return false;
    }
    LayerInfo& input = walk.layers[value == 0 ? 0 : value - 1];
    layer.reads_column = value == 0 ? input_column : input.column;
    const std::int64_t ids = layer.traits.ids;
    input.ids = input.column_type == layer.traits.reads && input.ids < ids ? input.ids : ids;
    input.column_type = layer.traits.reads;
    if (value > 0) input.kind = LayerKind::view;
    walk.reads_other_types = true;
    return true;
}

/// Writes the error if a layer reads an input as floats, or as ids or bytes, that another layer reads as another type.
template <std::size_t layer_count>
constexpr void check_input_types(Walk<layer_count>& walk) {
    if (!walk.reads_other_types || !walk.diagnostic.empty()) return;
    const auto check = [&](std::size_t read, const LayerInfo& layer, std::size_t place, ElementType type) {
        std::size_t value = read;
        const LayerInfo* const input = read == no_value ? nullptr : input_of_value(walk.layers, value);
        if (input == nullptr || input->column_type == type || !walk.diagnostic.empty()) return;
        const std::string_view column = value == 0 ? input_column : input->column;
        describe(walk.diagnostic, place, layer);
        walk.diagnostic << " reads " << (value == 0 ? "the Input" : input->type) << " as " << to_string(type);
        for (std::size_t i = 0; i < walk.count; ++i) {
            if (walk.layers[i].reads_column != column || walk.layers[i].traits.reads == type) continue;
            describe(walk.diagnostic << ", and ", i + 1, walk.layers[i]);
            walk.diagnostic << " as " << to_string(walk.layers[i].traits.reads);
            return;
        }
    };
    for (std::size_t i = 0; i < walk.count; ++i) {
        const LayerInfo& layer = walk.layers[i];
        const bool view = layer.is_view() && !layer.is_output;
        if ((view && i + 1 < walk.count) || !layer.column.empty()) continue;
        check(view ? i + 1 : layer.reads, layer, i + 1, layer.traits.reads);
        check(layer.also_reads, layer, i + 1, layer.traits.reads);
    }
}

/// Adds layer `L`, which reads `walk.value`.
template <class L, std::size_t layer_count>
constexpr void add_layer(Walk<layer_count>& walk, std::string_view name) {
    LayerInfo& layer = walk.layers[walk.count];
    layer.name = name;
    layer.input = walk.shape;
    layer.reads = walk.value;
    std::string_view wrong_input = fill_layer<L>(layer, walk.parameters[walk.count], walk.buffers[walk.count]);
    // A layer that the layers before it matter for, as for GroupNorm.
    if constexpr (requires { L::conflict_with(walk.layers, walk.value); })
        wrong_input = wrong_input.empty() ? L::conflict_with(walk.layers, walk.value) : wrong_input;
    walk.list_count += layer.parameters.count + layer.buffers.count;
    if constexpr (!Layer<L>) {
        describe(walk.diagnostic, walk.count + 1, layer);
        describe_missing<L>(walk.diagnostic << " ");
        return;
    }
    const char* const wrong_kind = wrong_input.empty() ? kind_conflict(layer) : nullptr;
    if (!wrong_input.empty() || wrong_kind != nullptr) {
        describe(walk.diagnostic, walk.count + 1, layer);
        if (!wrong_input.empty()) {
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
    if (walk.parameter_elements > max_elements || walk.buffer_elements > max_elements) {
        describe(walk.diagnostic, walk.count + 1, layer);
        walk.diagnostic
            << " has parameters that together with those of the layers before it are more than 2^40 elements";
        return;
    }
    if (layer.traits.reads != ElementType::float32 && !read_input_as_it_is(walk, layer)) return;
    walk.value = ++walk.count;
    walk.shape = layer.output;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
