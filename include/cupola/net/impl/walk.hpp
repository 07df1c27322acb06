// SPDX-License-Identifier: Apache-2.0
//
// The walk over a network's list of types: it fills the table and finds the first mistake.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

#include <cupola/core/sentence.hpp>
#include <cupola/core/type_name.hpp>
#include <cupola/net/impl/inner_name.hpp>
#include <cupola/net/items.hpp>
#include <cupola/net/residual.hpp>
#include <cupola/net/table.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

/// What the walk over the items has found so far.
template <std::size_t layers>
struct Walk {
    std::array<Row, layers> rows{};
    std::size_t count = 0;
    std::int64_t parameter_elements = 0, buffer_elements = 0;
    /// The value that the next layer reads, and its extents.
    std::size_t value = 0;
    Shape shape{};
    int inputs = 0;
    Sentence mistake{};
};

constexpr void describe(Sentence& sentence, std::size_t place, const Row& row) {
    sentence << "layer " << static_cast<std::int64_t>(place) << " (";
    if (!row.name.empty()) sentence << row.name << ", ";
    sentence << row.type << ")";
}

/// The layer that made a value.
constexpr void describe_source(Sentence& sentence, std::span<const Row> rows, std::size_t value) {
    while (value > 0 && rows[value - 1].traits.two_readers) value = rows[value - 1].reads;
    if (value == 0) {
        sentence << "the Input";
    } else {
        describe(sentence, value, rows[value - 1]);
    }
}

/// A function of its own for each layer, so that two that are named differently share it.
template <class L>
constexpr void fill_row(Row& row, Inferred& inferred) {
    row.type = short_type_name<L>();
    if constexpr (InfersOutput<L>) {
        inferred = L::output(row.input);
        if (inferred.mistake != nullptr) return;
        row.output = inferred.shape;
        row.parameters = parameters_of<L>(row.input);
        row.buffers = buffers_of<L>(row.input);
        row.traits = traits_of<L>();
        row.multiply_adds = multiply_adds_of<L>(row.input);
    } else {
        inferred = Mistake{"is no layer: it lacks `static constexpr Inferred output(const Shape&)`"};
    }
}

/// Adds the row of layer `L`, which reads `walk.value`.
template <class L, std::size_t layers>
constexpr void add_row(Walk<layers>& walk, std::string_view name) {
    Row& row = walk.rows[walk.count];
    row.name = name;
    row.input = walk.shape;
    row.reads = walk.value;
    Inferred inferred = Shape{};
    fill_row<L>(row, inferred);
    if (inferred.mistake != nullptr) {
        describe(walk.mistake, walk.count + 1, row);
        walk.mistake << " " << inferred.mistake;
        if constexpr (InfersOutput<L>) {
            walk.mistake << "; its input is " << walk.shape << " from ";
            describe_source(walk.mistake, walk.rows, walk.value);
        }
        return;
    }
    for (std::size_t p = 0; p < row.parameters.count; ++p) {
        row.offsets[p] = walk.parameter_elements;
        walk.parameter_elements += arena_extent(row.parameters.list[p].shape.size());
    }
    for (std::size_t b = 0; b < row.buffers.count; ++b) {
        row.buffer_offsets[b] = walk.buffer_elements;
        walk.buffer_elements += arena_extent(row.buffers.list[b].shape.size());
    }
    walk.value = ++walk.count;
    walk.shape = row.output;
}

template <class Prefix, class Item, std::size_t layers>
constexpr void visit(Walk<layers>& walk);

template <class Prefix, class... Items, std::size_t layers>
constexpr void visit_all(Walk<layers>& walk, ItemList<Items...>) {
    // An initialiser list is evaluated in order and nests nothing, where a fold would nest once a layer.
    [[maybe_unused]] const int visited[] = {0, (visit<Prefix, Items>(walk), 0)...};
}

/// The rows of a residual block: Fork, the block's, the shortcut's, and Add, which has the block's name.
template <class Prefix, class Item, std::size_t layers>
constexpr void visit_residual(Walk<layers>& walk) {
    using Inside = typename PrefixInside<Prefix, Item>::Type;
    using Shortcut = typename Item::ResidualShortcut;
    using ShortcutItems = typename ShortcutItems<Shortcut>::Type;
    constexpr bool identity = std::same_as<ShortcutItems, ItemList<>>;
    const std::string_view name = name_of<Prefix, Item>();
    const auto begin_mistake = [&](std::size_t first, std::size_t last) {
        walk.mistake << "the Residual of layers " << static_cast<std::int64_t>(first) << " to "
                     << static_cast<std::int64_t>(last);
        if (!name.empty()) walk.mistake << " (" << name << ")";
    };

    add_row<Fork>(walk, {});
    const std::size_t forked = walk.value;
    const Shape input = walk.shape;
    if constexpr (!IsShortcut<Shortcut>) {
        const std::string_view first = short_type_name<typename Unnamed<Shortcut>::Type>();
        walk.mistake << "the Residual that begins at layer " << static_cast<std::int64_t>(forked);
        if (!name.empty()) walk.mistake << " (" << name << ")";
        walk.mistake << " has " << first << " where its shortcut stands: write Identity before it, or Projection<"
                     << first << "> if it is the shortcut";
        return;
    }
    visit_all<Inside>(walk, typename Item::ResidualItems{});
    if (!walk.mistake.empty()) return;
    const std::size_t block = walk.value;
    const Shape block_output = walk.shape;
    walk.value = forked;
    walk.shape = input;
    if constexpr (!identity) {
        visit_all<Inside>(walk, ShortcutItems{});
        if (!walk.mistake.empty()) return;
    }
    const std::size_t shortcut = walk.value;
    if (block == forked || (!std::same_as<Shortcut, Identity> && shortcut == forked)) {
        begin_mistake(forked, walk.count + 1);
        walk.mistake << (block == forked ? " has no layers around which to go: it is a shortcut alone"
                                         : " has a Projection of no layers: the shortcut without layers is Identity");
        return;
    }
    if (block_output != walk.shape) {
        begin_mistake(forked, walk.count + 1);
        walk.mistake << " cannot add: the block's output is " << block_output << " from ";
        describe_source(walk.mistake, walk.rows, block);
        walk.mistake << ", and its shortcut's is " << walk.shape << " from ";
        describe_source(walk.mistake, walk.rows, shortcut);
        return;
    }
    walk.value = block;
    add_row<Add>(walk, name);
    walk.rows[walk.count - 1].also_reads = shortcut;
}

template <class Prefix, class Device, class Item, std::size_t layers>
constexpr void visit_placed(Walk<layers>& walk) {
    if (!walk.mistake.empty()) return;
    if constexpr (IsResidual<Item> || IsPlaced<Item>) {
        walk.mistake << "On places single layers: a Residual stands around it, not inside";
    } else {
        add_row<PlacedLayerOf<Device, Item>>(walk, name_of<Prefix, Item>());
    }
}
template <class Prefix, class Device, class... Items, std::size_t layers>
constexpr void visit_all_placed(Walk<layers>& walk, ItemList<Items...>) {
    [[maybe_unused]] const int visited[] = {0, (visit_placed<Prefix, Device, Items>(walk), 0)...};
}

template <class Prefix, class Item, std::size_t layers>
constexpr void visit(Walk<layers>& walk) {
    if constexpr (is_input<Item>) {
        ++walk.inputs;
        if (walk.inputs == 1 && walk.count == 0) {
            walk.shape = Item::shape;
            if (walk.shape.rank == 0 || walk.shape.size() < 1) walk.mistake << "the Input has a size of zero";
        }
    } else {
        if (walk.count == layers || !walk.mistake.empty()) return;
        if constexpr (IsResidual<Item>) {
            visit_residual<Prefix, Item>(walk);
        } else if constexpr (IsPlaced<Item>) {
            visit_all_placed<typename PrefixInside<Prefix, Item>::Type, typename Item::PlacedDevice>(
                walk, PlacedItems<Item>{});
        } else {
            add_row<typename Unnamed<Item>::Type>(walk, name_of<Prefix, Item>());
        }
    }
}

/// Names are compared only where two have one hash: sorted hashes cost n log n integers, and the compiler counts.
template <std::size_t layers>
constexpr void check_names(Walk<layers>& walk) {
    std::array<std::uint64_t, layers> hashes{};
    std::size_t named = 0;
    for (const Row& row : walk.rows) {
        if (row.name.empty()) continue;
        std::uint64_t hash = 14695981039346656037ULL;  // FNV-1a
        for (const char c : row.name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
        if (has_space(row.name)) {
            walk.mistake << "the name " << row.name << " has a space, at which lists of losses are told apart";
            return;
        }
        hashes[named++] = hash;
    }
    std::sort(hashes.begin(), hashes.begin() + named);
    if (std::adjacent_find(hashes.begin(), hashes.begin() + named) == hashes.begin() + named) return;
    for (std::size_t i = 0; i < walk.count; ++i) {
        if (walk.rows[i].name.empty()) continue;
        for (std::size_t k = 0; k < i; ++k) {
            if (walk.rows[i].name != walk.rows[k].name) continue;
            walk.mistake << "layers " << static_cast<std::int64_t>(k + 1) << " and " << static_cast<std::int64_t>(i + 1)
                         << " have the same name, " << walk.rows[i].name;
            return;
        }
    }
}

template <class... Items>
inline constexpr bool begins_with_input = false;
template <class First, class... Others>
inline constexpr bool begins_with_input<First, Others...> = is_input<First>;

[[nodiscard]] consteval std::size_t sum_of(std::initializer_list<std::size_t> counts) {
    std::size_t sum = 0;
    for (const std::size_t count : counts) sum += count;
    return sum;
}

template <class Item>
[[nodiscard]] consteval std::size_t rows_of();

template <class... Items>
[[nodiscard]] consteval std::size_t rows_of(ItemList<Items...>) {
    return sum_of({rows_of<Items>()...});
}

/// How many rows an item has.
template <class Item>
[[nodiscard]] consteval std::size_t rows_of() {
    if constexpr (is_input<Item>) {
        return 0;
    } else if constexpr (IsResidual<Item>) {
        return 2 + rows_of(typename Item::ResidualItems{}) +
               rows_of(typename ShortcutItems<typename Item::ResidualShortcut>::Type{});
    } else if constexpr (IsPlaced<Item>) {
        return []<class... Layers>(ItemList<Layers...>) { return sizeof...(Layers); }(PlacedItems<Item>{});
    } else {
        return 1;
    }
}

template <class... Items>
[[nodiscard]] consteval auto walk_items() {
    constexpr std::size_t layers = sum_of({rows_of<Items>()...});
    Walk<layers> walk;
    visit_all<NoPrefix>(walk, ItemList<Items...>{});
    if (walk.inputs != 1) {
        walk.mistake = {};
        walk.mistake << "a Sequential has one Input; this one has " << walk.inputs;
    } else if (!begins_with_input<Items...>) {
        walk.mistake = {};
        walk.mistake << "the Input is the first item of a Sequential";
    } else if (walk.mistake.empty() && layers == 0) {
        walk.mistake << "a Sequential has at least one layer after its Input";
    } else if (walk.mistake.empty()) {
        check_names(walk);
    }
    return walk;
}

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
