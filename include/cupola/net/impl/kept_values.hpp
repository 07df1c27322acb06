// SPDX-License-Identifier: Apache-2.0
//
// Adds the modules of net/named_values.hpp, which includes this header, to a network's table, and finds the errors in
// their use.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <cupola/core/compile_time_message.hpp>
#include <cupola/net/impl/add_layer.hpp>
#include <cupola/net/impl/inner_name.hpp>
#include <cupola/net/impl/visit_block.hpp>
#include <cupola/net/modules.hpp>
#include <cupola/net/residual.hpp>
#include <cupola/net/table.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The index of a named value in `walk.kept`, or `kept_count`. The last values are compared first.
template <std::size_t layer_count>
[[nodiscard]] constexpr std::size_t find_kept(const Walk<layer_count>& walk, const ValueName& name) {
    for (std::size_t k = walk.kept_count; k-- > 0;) {
        const auto& kept = walk.kept[k];
        if (kept.hash == name.hash && walk.layers[kept.value - 1].name == name.text) return k;
    }
    return walk.kept_count;
}

/// Adds a Keep or an Output.
template <std::size_t layer_count>
constexpr void keep_value(Walk<layer_count>& walk, const ValueName& name, std::string_view type, bool output) {
    if (!walk.diagnostic.empty()) {
        walk.kept_below = walk.kept_below || name == walk.unknown || name == walk.unknown_outside;
        return;
    }
    if (name.text.empty()) {
        walk.diagnostic << "layer " << static_cast<std::int64_t>(walk.count + 1) << " (" << type << ") has no name";
        return;
    }
    const std::size_t same = find_kept(walk, name);
    if (same != walk.kept_count) {
        walk.diagnostic << "layers " << static_cast<std::int64_t>(walk.kept[same].value) << " and "
                        << static_cast<std::int64_t>(walk.count + 1) << " (" << type << ") both keep a value named "
                        << name.text;
        return;
    }
    std::size_t source = walk.value;
    while (source > 0 && walk.layers[source - 1].is_view()) source = walk.layers[source - 1].reads;
    if (output && source == 0) {
        walk.diagnostic << "layer " << static_cast<std::int64_t>(walk.count + 1) << " (" << type
                        << ") is an end of the network whose value is the Input: it must come from a layer";
        return;
    }
    add_layer<Fork>(walk, name.text);
    walk.layers[walk.count - 1].is_output = output;
    walk.layers[walk.count - 1].type = walk.layers[walk.count - 1].description = type;
    walk.kept[walk.kept_count++] = {.hash = name.hash, .value = walk.count, .read = output};
}

/// The error in a sum, a product or a concatenation whose inputs do not fit.
template <std::size_t layer_count>
constexpr void describe_other_extents(Walk<layer_count>& walk, std::size_t value, std::string_view wrong) {
    walk.diagnostic << " " << wrong << ": its input is " << walk.shape << " from ";
    describe_source(walk.diagnostic, walk.layers, walk.value);
    walk.diagnostic << ", and " << walk.layers[value - 1].name << " is " << walk.layers[value - 1].output << " from ";
    describe_source(walk.diagnostic, walk.layers, value);
}

/// Whether the list can continue with another value; if not, completes the diagnostic that `begin_diagnostic` begins.
template <std::size_t layer_count, class Begin>
[[nodiscard]] constexpr bool leave_value(Walk<layer_count>& walk, Begin begin_diagnostic) {
    if (walk.value == 0 || walk.layers[walk.value - 1].kind != LayerKind::fork ||
        walk.layers[walk.value - 1].name.empty()) {
        begin_diagnostic();
        walk.diagnostic << " goes on with another value, and nothing reads the output of ";
        describe_source(walk.diagnostic, walk.layers, walk.value);
        walk.diagnostic << ": keep that with a Keep before it";
        return false;
    }
    walk.layers[walk.value - 1].only_read_aside = true;
    return true;
}

/// Adds a FromInput, by its layer `L`.
template <class L, std::size_t layer_count>
constexpr void read_column(Walk<layer_count>& walk, std::string_view column, const Shape& shape,
                           std::string_view layer_name, std::string_view type) {
    const auto begin_diagnostic = [&] {
        walk.diagnostic << "layer " << static_cast<std::int64_t>(walk.count + 1) << " (";
        if (!layer_name.empty()) walk.diagnostic << layer_name << ", ";
        walk.diagnostic << type << ")";
    };
    if (column.empty() || column == "input" || !shape.has_elements() || !shape.is_at_most(max_elements)) {
        begin_diagnostic();
        walk.diagnostic << (column.empty() ? " has no name of a column"
                            : column == "input"
                                ? " reads the column of the network's Input: keep that with a Keep after the Input"
                            : shape.has_elements() ? " has more than 2^40 elements"
                            : shape.rank > 0
                                ? " has an extent below 1: "
                                : " has a size of zero: it needs the extents of a sample after the column's name");
        if (shape.rank > 0 && !shape.has_elements()) walk.diagnostic << shape;
        return;
    }
    for (std::size_t i = 0; i < walk.count; ++i) {
        if (walk.layers[i].column != column) continue;
        begin_diagnostic();
        walk.diagnostic << " reads a column for the second time: keep the output of ";
        describe(walk.diagnostic, i + 1, walk.layers[i]);
        walk.diagnostic << " and read that";
        return;
    }
    if (!leave_value(walk, begin_diagnostic)) return;
    walk.value = 0;
    walk.shape = shape;
    add_layer<L>(walk, layer_name);
    LayerInfo& layer = walk.layers[walk.count - 1];
    layer.column = column;
    layer.type = layer.description = type;
}

/// Adds layer `L`, which reads a value by its name: `name`, or else `outside`.
template <class L, std::size_t layer_count>
constexpr void read_value(Walk<layer_count>& walk, const ValueName& name, const ValueName& outside,
                          std::string_view layer_name, std::string_view type) {
    std::size_t k = find_kept(walk, name);
    if (k == walk.kept_count && outside.hash != name.hash) k = find_kept(walk, outside);
    const auto begin_diagnostic = [&] {
        walk.diagnostic << "layer " << static_cast<std::int64_t>(walk.count + 1) << " (";
        if (!layer_name.empty()) walk.diagnostic << layer_name << ", ";
        walk.diagnostic << type << ")";
    };
    if (k == walk.kept_count) {
        begin_diagnostic();
        walk.missing = true;
        walk.unknown = name;
        walk.unknown_outside = outside;
        return;
    }
    walk.kept[k].read = true;
    const std::size_t value = walk.kept[k].value;
    const Shape named = walk.layers[value - 1].output;
    if constexpr (kind_of<L>() == LayerKind::view) {
        if (!leave_value(walk, begin_diagnostic)) return;
        walk.value = value;
        walk.shape = named;
        add_layer<L>(walk, layer_name);
        walk.layers[walk.count - 1].reads_aside = true;
    } else {
        if (!fits<L>(walk.shape, named)) {
            begin_diagnostic();
            describe_other_extents(walk, value, L::conflict);
            return;
        }
        add_layer<L>(walk, layer_name);
        also_read<L>(walk, value, named, true);
    }
    walk.layers[walk.count - 1].type = walk.layers[walk.count - 1].description = type;
}

/// Completes the diagnostic of a name that was not found, and finds a value that is never read.
template <std::size_t layer_count>
constexpr void check_kept_values(Walk<layer_count>& walk) {
    if (walk.missing) {
        walk.diagnostic << (walk.kept_below ? " reads a value before it exists: its Keep is further down in the list"
                                            : " reads a value that no Keep before it names");
        for (std::size_t k = 0; !walk.kept_below && k < walk.kept_count; ++k) {
            walk.diagnostic << (k == 0 ? "; the names are " : ", ") << walk.layers[walk.kept[k].value - 1].name;
        }
        return;
    }
    for (std::size_t k = 0; k < walk.kept_count && walk.diagnostic.empty(); ++k) {
        if (walk.kept[k].read) continue;
        describe(walk.diagnostic, walk.kept[k].value, walk.layers[walk.kept[k].value - 1]);
        walk.diagnostic << " keeps a value that nothing reads: AddFrom, MultiplyBy, ConcatWith and From read one";
    }
}

template <class Prefix, class Kept>
inline constexpr ValueName value_name{name_of<Prefix, Kept>(), name_hash(name_of<Prefix, Kept>())};

template <class Prefix, class Module, std::size_t layer_count>
constexpr void visit_named_value(Walk<layer_count>& walk) {
    using Use = typename Unnamed<Module>::Type;
    constexpr std::string_view type{Use::module_type.data(), Use::module_type.size()};
    using L = typename Use::NamedValueLayer;
    walk.check_kept = &check_kept_values<layer_count>;
    if constexpr (requires { Use::column; }) {
        if (walk.diagnostic.empty()) read_column<L>(walk, Use::column, Use::shape, name_of<Prefix, Module>(), type);
    } else if constexpr (!std::same_as<L, Fork>) {
        if (!walk.diagnostic.empty()) return;
        read_value<L>(walk, value_name<Prefix, typename Use::Kept>, value_name<NoPrefix, typename Use::Kept>,
                      name_of<Prefix, Module>(), type);
    } else if constexpr (!std::same_as<Use, Module>) {
        if (walk.diagnostic.empty()) walk.diagnostic << type << " is a name: Named gives it no other one";
    } else {
        keep_value(
            walk, value_name<Prefix, Use>, type, requires { Use::is_output; });
    }
}

}}}  // namespace cupola::CUPOLA_ABI::impl
