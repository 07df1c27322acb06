// SPDX-License-Identifier: Apache-2.0
//
// A network is a type: a flat list of layers behind one Input.
//
//   struct Net : Sequential<Input<28, 28, 1>, Flatten, Named<"hidden", Linear<128>>, ReLU, Linear<10>> {};
//   static_assert(Net::output == Extents<10>{} && Net::parameter_count == 101'770);
//
// Deriving a struct gives the type a short name in errors and symbols. The list is walked once; the first mistake is
// reported as one sentence with the layer's place, its type and the extents on both sides.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string_view>

#include <cupola/core/extents.hpp>
#include <cupola/core/fixed_string.hpp>
#include <cupola/core/sentence.hpp>
#include <cupola/core/type_name.hpp>
#include <cupola/net/fusion.hpp>
#include <cupola/net/memory_plan.hpp>
#include <cupola/net/residual.hpp>
#include <cupola/net/stage.hpp>
#include <cupola/net/table.hpp>

namespace cupola::inline CUPOLA_ABI {

/// The extents of one sample, channels last: the first item of a `Sequential`.
template <std::int64_t... extents>
struct Input {
    static constexpr Shape shape{extents...};
};

/// A layer, or a residual block, with a name: parameters are "name.weight" and so on, in reports and in checkpoints.
template <FixedString layer_name, class L>
struct Named : L {
    static constexpr std::string_view name = layer_name.view();
    using Unnamed = L;
};

namespace impl {

template <class Item>
inline constexpr bool is_input = false;
template <std::int64_t... extents>
inline constexpr bool is_input<Input<extents...>> = true;

/// The layer itself, without its name: equal layers share one instantiation.
template <class L>
struct Unnamed {
    using Type = L;
};
template <FixedString name, class L>
struct Unnamed<Named<name, L>> {
    using Type = L;
};

/// Names that names inside a named residual block begin with.
struct NoPrefix {
    static constexpr std::string_view text{};
};

/// The name of `Item` behind that of the block that it stands in: "layer1.0.conv1".
template <class Outer, class Item>
struct InnerName {
    static constexpr auto characters = [] {
        constexpr std::size_t dot = Outer::text.empty() ? 0 : 1;
        std::array<char, Outer::text.size() + dot + Item::name.size()> result{};
        std::size_t size = 0;
        for (const char c : Outer::text) result[size++] = c;
        if (dot != 0) result[size++] = '.';
        for (const char c : Item::name) result[size++] = c;
        return result;
    }();
    static constexpr std::string_view text{characters.data(), characters.size()};
};

/// The prefix for what stands inside `Item`.
template <class Outer, class Item>
struct PrefixInside {
    using Type = Outer;
};
template <class Outer, class Item>
    requires requires { Item::name; }
struct PrefixInside<Outer, Item> {
    using Type = InnerName<Outer, Item>;
};

template <class Prefix, class Item>
[[nodiscard]] constexpr std::string_view name_of() {
    if constexpr (!requires { Item::name; }) {
        return {};
    } else if constexpr (std::same_as<Prefix, NoPrefix>) {
        return Item::name;
    } else {
        return InnerName<Prefix, Item>::text;
    }
}

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
        } else {
            add_row<typename Unnamed<Item>::Type>(walk, name_of<Prefix, Item>());
        }
    }
}

/// Names are compared by their hashes first: quadratic in integers, not in strings.
template <std::size_t layers>
constexpr void check_names(Walk<layers>& walk) {
    std::array<std::uint64_t, layers> hashes{};
    for (std::size_t i = 0; i < walk.count; ++i) {
        std::uint64_t hash = 14695981039346656037ULL;  // FNV-1a
        for (const char c : walk.rows[i].name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
        hashes[i] = hash;
    }
    for (std::size_t i = 0; i < walk.count; ++i) {
        if (walk.rows[i].name.empty()) continue;
        for (std::size_t k = 0; k < i; ++k) {
            if (hashes[i] != hashes[k] || walk.rows[i].name != walk.rows[k].name) continue;
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

/// Calls visitor.template operator()<L>() for each layer of an item, in the order of the rows.
template <class Item, class Visitor>
constexpr void for_each_layer(Visitor& visitor);

template <class... Items, class Visitor>
constexpr void for_each_layer_of(ItemList<Items...>, Visitor& visitor) {
    [[maybe_unused]] const int visited[] = {0, (for_each_layer<Items>(visitor), 0)...};
}

template <class Item, class Visitor>
constexpr void for_each_layer(Visitor& visitor) {
    if constexpr (IsResidual<Item>) {
        visitor.template layer<Fork>();
        for_each_layer_of(typename Item::ResidualItems{}, visitor);
        for_each_layer_of(typename ShortcutItems<typename Item::ResidualShortcut>::Type{}, visitor);
        visitor.template layer<Add>();
    } else if constexpr (!is_input<Item>) {
        visitor.template layer<typename Unnamed<Item>::Type>();
    }
}

/// Collects what makes each layer's stage on a device.
template <class Device, std::size_t layers>
struct CollectMakers {
    std::array<StageMaker<Device>, layers> makers{};
    std::size_t count = 0;

    template <class L>
    constexpr void layer() {
        if constexpr (HasOperation<L, Device>) makers[count] = &make_stage<L, Device>;
        ++count;
    }
};

/// Finds the first layer that cannot be trained on a device.
template <class Device>
struct RequireTrainable {
    std::span<const Row> rows;
    std::size_t place = 0;
    Sentence sentence{};

    template <class L>
    constexpr void layer() {
        ++place;
        if (!sentence.empty()) return;
        if constexpr (!HasOperation<L, Device>) {
            describe(sentence, place, rows[place - 1]);
            sentence << " has no `static auto operation(const Site&)` for " << Device::name;
        } else if constexpr (!HasForward<OperationOf<L, Device>, Device>) {
            describe(sentence, place, rows[place - 1]);
            sentence << " has no forward on " << Device::name << ": its operation lacks `void forward(const Pass&)`";
        } else if constexpr (!HasBackward<OperationOf<L, Device>, Device>) {
            describe(sentence, place, rows[place - 1]);
            sentence << " has no backward on " << Device::name << ": its operation lacks `void backward(const Pass&)`";
        }
    }
};

}  // namespace impl

/// A flat list of layers. See the head of this file.
template <class... Items>
struct Sequential {
private:
    static constexpr auto walk = impl::walk_items<Items...>();
    static_assert(report_mistake<walk.mistake>());

public:
    /// False after a mistake: whoever uses the network then says nothing more.
    static constexpr bool sound = walk.mistake.empty();
    /// Whether the fusion pass runs; `Unfused<Net>` says no.
    static constexpr bool fusion = true;

    static constexpr std::size_t layer_count = walk.rows.size();
    static constexpr std::span<const Row> rows{walk.rows};
    static constexpr Shape input_shape = sound ? walk.rows[0].input : Shape{1};
    static constexpr Shape output_shape = sound ? walk.shape : Shape{1};
    static constexpr ExtentsOf<input_shape> input{};
    static constexpr ExtentsOf<output_shape> output{};
    /// Parameters, and the elements of an arena that holds them (each starts on a cache line); the same for the buffers.
    static constexpr std::int64_t parameter_count = count_parameters(walk.rows);
    static constexpr std::int64_t parameter_elements = walk.parameter_elements;
    static constexpr std::int64_t buffer_elements = walk.buffer_elements;

    /// Makes the operation of layer `i` for a device and a batch size.
    template <class Device>
    [[nodiscard]] static std::unique_ptr<Stage<Device>> stage(std::size_t i, const Site<Device>& site) {
        static constexpr auto collected = [] {
            impl::CollectMakers<Device, layer_count> result;
            impl::for_each_layer_of(impl::ItemList<Items...>{}, result);
            return result.makers;
        }();
        return collected[i](site);
    }

    /// The first layer that cannot be trained on `Device`, as a sentence; empty if there is none.
    template <class Device>
    [[nodiscard]] static constexpr Sentence untrainable() {
        impl::RequireTrainable<Device> required{walk.rows};
        impl::for_each_layer_of(impl::ItemList<Items...>{}, required);
        return required.sentence;
    }
};

/// The same network with the fusion pass switched off: the test of the pass.
template <class Net>
struct Unfused : Net {
    static constexpr bool fusion = false;
};

/// What can be trained and run: `Sequential`, and what derives from one.
template <class N>
concept Network = requires {
    { N::rows } -> std::convertible_to<std::span<const Row>>;
    { N::sound } -> std::convertible_to<bool>;
    { N::fusion } -> std::convertible_to<bool>;
    { N::parameter_count } -> std::convertible_to<std::int64_t>;
    { N::parameter_elements } -> std::convertible_to<std::int64_t>;
    { N::buffer_elements } -> std::convertible_to<std::int64_t>;
};

/// Bytes of the activations and their gradients for a batch, as the memory plan lays them out: known from the type.
template <Network Net>
[[nodiscard]] constexpr std::size_t activation_bytes(std::int64_t batch, bool training = true) {
    std::array<StageInfo, Net::layer_count> stages{};
    std::array<Lifetime, lifetimes_of(Net::layer_count)> lifetimes{};
    const std::size_t count = fuse(Net::rows, Net::fusion, stages);
    return plan_activations(std::span(stages).first(count), batch, training, false, lifetimes);
}

}  // namespace cupola::inline CUPOLA_ABI
