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
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

#include <cupola/core/extents.hpp>
#include <cupola/core/fixed_string.hpp>
#include <cupola/core/sentence.hpp>
#include <cupola/core/type_name.hpp>
#include <cupola/net/fusion.hpp>
#include <cupola/net/memory_plan.hpp>
#include <cupola/net/stage.hpp>
#include <cupola/net/table.hpp>

namespace cupola::inline CUPOLA_ABI {

/// The extents of one sample, channels last: the first item of a `Sequential`.
template <std::int64_t... extents>
struct Input {
    static constexpr Shape shape{extents...};
};

/// A layer with a name: its parameters are "name.weight" and so on, in reports and in checkpoints.
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

/// What the walk over the items has found so far.
template <std::size_t layers>
struct Walk {
    std::array<Row, layers> rows{};
    std::size_t count = 0;
    std::int64_t parameter_elements = 0;
    Shape shape{};
    int inputs = 0;
    Sentence mistake{};
};

constexpr void describe(Sentence& sentence, std::size_t place, const Row& row) {
    sentence << "layer " << static_cast<std::int64_t>(place) << " (";
    if (!row.name.empty()) sentence << row.name << ", ";
    sentence << row.type << ")";
}

template <class Item, std::size_t layers>
constexpr void visit(Walk<layers>& walk) {
    if constexpr (is_input<Item>) {
        ++walk.inputs;
        if (walk.inputs == 1 && walk.count == 0) {
            walk.shape = Item::shape;
            if (walk.shape.rank == 0 || walk.shape.size() < 1) walk.mistake << "the Input has a size of zero";
        }
    } else {
        if (walk.count == layers || !walk.mistake.empty()) return;
        using L = typename Unnamed<Item>::Type;
        Row& row = walk.rows[walk.count];
        if constexpr (requires { Item::name; }) row.name = Item::name;
        row.type = short_type_name<L>();
        row.input = walk.shape;
        if constexpr (!InfersOutput<L>) {
            describe(walk.mistake, walk.count + 1, row);
            walk.mistake << " is no layer: it lacks `static constexpr Inferred output(const Shape&)`";
        } else {
            const Inferred result = L::output(walk.shape);
            if (result.mistake != nullptr) {
                describe(walk.mistake, walk.count + 1, row);
                walk.mistake << " " << result.mistake << "; its input is " << walk.shape << " from ";
                if (walk.count == 0) {
                    walk.mistake << "the Input";
                } else {
                    describe(walk.mistake, walk.count, walk.rows[walk.count - 1]);
                }
                return;
            }
            row.output = result.shape;
            row.parameters = parameters_of<L>(walk.shape);
            row.traits = traits_of<L>();
            row.multiply_adds = multiply_adds_of<L>(walk.shape);
            for (std::size_t p = 0; p < row.parameters.count; ++p) {
                row.offsets[p] = walk.parameter_elements;
                walk.parameter_elements += arena_extent(row.parameters.list[p].shape.size());
            }
            walk.shape = row.output;
        }
        ++walk.count;
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

[[nodiscard]] consteval std::size_t count_layers(std::initializer_list<bool> inputs) {
    std::size_t layers = 0;
    for (const bool input : inputs) layers += input ? 0 : 1;
    return layers;
}

template <class... Items>
[[nodiscard]] consteval auto walk_items() {
    constexpr std::size_t layers = count_layers({is_input<Items>...});
    Walk<layers> walk;
    // An initialiser list is evaluated in order and nests nothing, where a fold would nest once a layer.
    [[maybe_unused]] const int visited[] = {0, (visit<Items>(walk), 0)...};
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
    /// Parameters, and the elements of an arena that holds them (each starts on a cache line).
    static constexpr std::int64_t parameter_count = count_parameters(walk.rows);
    static constexpr std::int64_t parameter_elements = walk.parameter_elements;

    /// Makes the operation of layer `i` for a device and a batch size.
    template <class Device>
    [[nodiscard]] static std::unique_ptr<Stage<Device>> stage(std::size_t i, const Site<Device>& site) {
        // One entry an item, the Input's unused, so that the list needs no filtering.
        static constexpr StageMaker<Device> makers[] = {maker<Items, Device>()...};
        return makers[i + 1](site);
    }

    /// The first layer that cannot be trained on `Device`, as a sentence; empty if there is none.
    template <class Device>
    [[nodiscard]] static constexpr Sentence untrainable() {
        Sentence sentence;
        std::size_t place = 0;
        [[maybe_unused]] const int visited[] = {(require_trainable<Items, Device>(sentence, place), 0)...};
        return sentence;
    }

private:
    template <class Item, class Device>
    static constexpr StageMaker<Device> maker() {
        using L = typename impl::Unnamed<Item>::Type;
        if constexpr (HasOperation<L, Device>) {
            return &make_stage<L, Device>;
        } else {
            return nullptr;
        }
    }

    template <class Item, class Device>
    static constexpr void require_trainable(Sentence& sentence, std::size_t& place) {
        if constexpr (!impl::is_input<Item>) {
            using L = typename impl::Unnamed<Item>::Type;
            ++place;
            if (!sentence.empty()) return;
            if constexpr (!HasOperation<L, Device>) {
                impl::describe(sentence, place, walk.rows[place - 1]);
                sentence << " has no `static auto operation(const Site&)` for " << Device::name;
            } else if constexpr (!HasForward<OperationOf<L, Device>, Device>) {
                impl::describe(sentence, place, walk.rows[place - 1]);
                sentence << " has no forward on " << Device::name << ": its operation lacks `void forward(const Pass&)`";
            } else if constexpr (!HasBackward<OperationOf<L, Device>, Device>) {
                impl::describe(sentence, place, walk.rows[place - 1]);
                sentence << " has no backward on " << Device::name << ": its operation lacks `void backward(const Pass&)`";
            }
        }
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
};

/// Bytes of the activations and their gradients for a batch, as the memory plan lays them out: known from the type.
template <Network Net>
[[nodiscard]] constexpr std::size_t activation_bytes(std::int64_t batch, bool training = true) {
    std::array<StageInfo, Net::layer_count> stages{};
    std::array<Lifetime, 2 * Net::layer_count + 2> lifetimes{};
    const std::size_t count = fuse(Net::rows, Net::fusion, stages);
    return plan_activations(std::span(stages).first(count), batch, training, false, lifetimes);
}

}  // namespace cupola::inline CUPOLA_ABI
