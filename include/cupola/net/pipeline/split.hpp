// SPDX-License-Identifier: Apache-2.0
//
// A network in parts, for a pipeline over several devices. The network itself does not change: its layers, parameters,
// checkpoints and results are those of `Net`.
//
//   struct Halves : Split<Net, 2> {};                      balanced by the compiler
//   struct Cut : SplitAt<Net, "layer2.0", "layer3.0"> {};  three parts: the second begins with layer2.0
//
// `Split` makes the largest part as small as any choice of cuts can: a part counts its multiply-adds, and each element
// that its nodes read and write as `multiply_adds_per_element` of them, because normalisations and sums are limited by
// memory. A name of `SplitAt` is that of a layer or of a block. Where parts may begin: net/pipeline/cuts.hpp. A cut at
// any other place, an unknown name, and more parts than there are places do not compile.
//
// A training runs each part on a device of its own (parallel/pipeline/), in the order of the network's timetable;
// net/pipeline/pipeline.hpp gives the figures of its parts. A prediction ignores the cuts.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <cupola/core/checked_product.hpp>
#include <cupola/core/compile_time_message.hpp>
#include <cupola/core/fixed_array.hpp>
#include <cupola/core/fixed_string.hpp>
#include <cupola/core/split.hpp>
#include <cupola/net/pipeline/cuts.hpp>
#include <cupola/net/pipeline/timetable_of.hpp>
#include <cupola/net/sequential.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// The weight of an element that a node reads or writes, in multiply-adds: with the measured times of ResNet-44's nodes
/// (docs/measurements/cpu.md), the largest of two parts is 1.26 of the mean when multiply-adds alone are counted.
inline constexpr std::int64_t multiply_adds_per_element = 12;

/// A network that is cut into parts: Net::part_begins has the first layer of each.
template <class Net>
concept CutNetwork = Network<Net> && requires {
    { Net::part_begins } -> std::convertible_to<std::span<const std::size_t>>;
};

/// The number of a network's parts: 1 without a cut.
template <Network Net>
inline constexpr std::size_t part_count = [] {
    if constexpr (CutNetwork<Net>) return Net::part_begins.size();
    return std::size_t{1};
}();

/// The layers of part `k`.
template <Network Net>
[[nodiscard]] constexpr LayerRange part_layers(std::size_t k) {
    if constexpr (CutNetwork<Net>) {
        return {Net::part_begins[k], k + 1 < Net::part_begins.size() ? Net::part_begins[k + 1] : Net::layers.size()};
    } else {
        return {0, Net::layers.size()};
    }
}

/// The cost of a node of a plan for training, as Split counts it.
[[nodiscard]] constexpr std::int64_t node_cost(std::span<const LayerInfo> layers, const NodeInfo& node) {
    if (node.view) return 0;
    std::int64_t elements = node.input.size() + node.output.size();
    if (node.also_reads != no_value) elements += node.output.size();
    std::int64_t cost = saturating_product(multiply_adds_per_element, elements);
    for (std::size_t i = node.layer; i < node.layer + node.layers; ++i)
        cost = saturating_sum(cost, layers[i].multiply_adds);
    return cost;
}

namespace impl {

template <std::size_t parts>
struct NetworkCuts {
    std::array<std::size_t, parts> begins{};
    CompileTimeMessage diagnostic{};
};

/// The network between neighbouring places where it may be cut: the first layer, and the cost of all before it.
struct Segments {
    FixedArray<std::size_t> begins;
    FixedArray<std::int64_t> cost_before;
};

/// `cost_of(i, node)` is that of node i; of the places for cuts those count for which `may_begin(layer)`.
template <class Cost, class MayBegin>
[[nodiscard]] constexpr Segments find_segments(std::span<const LayerInfo> layers, bool fusion, Cost&& cost_of,
                                               MayBegin&& may_begin) {
    const FixedArray<CutPlace> places = find_cuts(layers, fusion);
    FixedArray<NodeInfo> nodes(layers.size());
    nodes.keep_first(fuse(layers, fusion, nodes));
    Segments result{FixedArray<std::size_t>(nodes.size()), FixedArray<std::int64_t>(nodes.size() + 1)};
    std::size_t count = 0;
    std::int64_t cost = 0;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
        const std::size_t layer = nodes[i].layer;
        if (i == 0 || (places[layer].obstacle == CutObstacle::none && may_begin(layer))) {
            result.begins[count] = layer;
            result.cost_before[count++] = cost;
        }
        cost = saturating_sum(cost, cost_of(i, nodes[i]));
    }
    result.cost_before[count] = cost;
    result.begins.keep_first(count);
    result.cost_before.keep_first(count + 1);
    return result;
}

/// Whether the segments fit into this many parts that cost at most `limit` each; if so, writes the first segment of
/// each part. Every part takes as many segments as it can, but leaves one for each part that follows.
[[nodiscard]] constexpr bool fill_parts(std::span<const std::int64_t> cost_before, std::int64_t limit,
                                        std::span<std::size_t> begins) {
    const std::size_t segments = cost_before.size() - 1;
    std::size_t next = 0;
    for (std::size_t k = 0; k < begins.size(); ++k) {
        begins[k] = next;
        const std::size_t most = segments - (begins.size() - 1 - k), first = next;
        while (next < most && cost_before[next + 1] - cost_before[first] <= limit) ++next;
        if (next == first) return false;
    }
    return next == segments;
}

/// Divides the segments so that the part that costs most costs as little as possible: writes the first segment of each
/// part. There are at least as many segments as parts.
constexpr void balance_segments(std::span<const std::int64_t> cost_before, std::span<std::size_t> begins) {
    // The smallest limit for which the parts suffice.
    std::int64_t low = 0, high = cost_before.back();
    while (low < high) {
        const std::int64_t middle = low + (high - low) / 2;
        if (fill_parts(cost_before, middle, begins)) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    static_cast<void>(fill_parts(cost_before, low, begins));
}

/// Writes the first layer of each part, or why there cannot be so many.
constexpr void balance(std::span<const LayerInfo> layers, bool fusion, std::span<std::size_t> begins,
                       CompileTimeMessage& diagnostic) {
    const Segments segments = find_segments(
        layers, fusion, [&](std::size_t, const NodeInfo& node) { return node_cost(layers, node); },
        [](std::size_t) { return true; });
    if (segments.begins.size() < begins.size()) {
        diagnostic << "Split makes " << static_cast<std::int64_t>(begins.size())
                   << " parts of a network that can be cut into at most "
                   << static_cast<std::int64_t>(segments.begins.size());
        return;
    }
    balance_segments(segments.cost_before, begins);
    for (std::size_t& begin : begins) begin = segments.begins[begin];
}

/// The first layer of the layer or block of that name, or no_layer. The Fork that a block's branches read belongs to
/// the block.
[[nodiscard]] constexpr std::size_t first_layer_of(std::span<const LayerInfo> layers, std::string_view name) {
    for (std::size_t i = 0; i < layers.size(); ++i) {
        const std::string_view full = layers[i].name;
        if (!full.starts_with(name) || (full.size() > name.size() && full[name.size()] != '.')) continue;
        while (i > 0 && layers[i - 1].kind == LayerKind::fork && !layers[i - 1].is_output) --i;
        return i;
    }
    return no_layer;
}

/// As many names of layers at which a part may begin as fit in a message.
constexpr void list_cuts(CompileTimeMessage& message, std::span<const LayerInfo> layers, bool fusion) {
    constexpr std::size_t most = CompileTimeMessage::capacity - 100;
    const FixedArray<CutPlace> places = find_cuts(layers, fusion);
    std::int64_t more = 0;
    bool first = true;
    for (std::size_t i = 0; i < layers.size(); ++i) {
        if (places[i].obstacle != CutObstacle::none) continue;
        std::size_t named = i;
        while (named + 1 < layers.size() && layers[named].is_view() && layers[named].name.empty()) ++named;
        if (layers[named].name.empty()) continue;
        if (message.size > most) {
            ++more;
            continue;
        }
        message << (first ? "" : ", ") << layers[named].name;
        first = false;
    }
    if (first) message << "none";
    if (more > 0) message << " and " << more << " others";
}

template <std::size_t parts>
[[nodiscard]] constexpr NetworkCuts<parts> cut_at(std::span<const LayerInfo> layers, bool fusion,
                                                  const std::array<std::string_view, parts - 1>& names) {
    NetworkCuts<parts> result;
    const FixedArray<CutPlace> places = find_cuts(layers, fusion);
    for (std::size_t k = 1; k < parts; ++k) {
        const std::string_view name = names[k - 1];
        const std::size_t begin = result.begins[k] = first_layer_of(layers, name);
        if (begin == no_layer) {
            result.diagnostic << "SplitAt names '" << name
                              << "', which is no layer of the network; parts may begin at: ";
            list_cuts(result.diagnostic, layers, fusion);
            return result;
        }
        if (places[begin].obstacle != CutObstacle::none) {
            result.diagnostic << "SplitAt names '" << name << "', but a part cannot begin at ";
            describe(result.diagnostic, begin + 1, layers[begin]);
            result.diagnostic << ": ";
            describe_obstacle(result.diagnostic, layers, places[begin]);
            return result;
        }
        if (begin <= result.begins[k - 1]) {
            result.diagnostic << "SplitAt names '" << name << "' after '" << names[k - 2]
                              << "', which begins with the same layer or a later one";
            return result;
        }
    }
    return result;
}

template <class Net, std::size_t parts>
[[nodiscard]] constexpr NetworkCuts<parts> refuse_second_cut(std::string_view wrapper) {
    NetworkCuts<parts> result;
    result.diagnostic << wrapper << " cuts a network ";
    if constexpr (cut_is_chosen<Net>) {
        result.diagnostic << "of ChosenSplit, whose cut the options of a training choose";
    } else {
        result.diagnostic << "that is cut already, into " << static_cast<std::int64_t>(part_count<Net>) << " parts";
    }
    return result;
}

template <class Net, std::size_t parts>
[[nodiscard]] constexpr auto balanced_cuts() {
    if constexpr (may_be_cut<Net>) {
        return refuse_second_cut<Net, parts>("Split");
    } else if constexpr (parts == 0) {
        NetworkCuts<1> result;
        result.diagnostic << "Split makes at least one part, not 0";
        return result;
    } else if constexpr (Net::valid) {
        NetworkCuts<parts> result;
        balance(Net::layers, Net::fusion, result.begins, result.diagnostic);
        return result;
    } else {
        return NetworkCuts<parts>{};
    }
}

template <class Net, std::size_t count>
[[nodiscard]] constexpr NetworkCuts<count + 1> named_cuts(const std::array<std::string_view, count>& names) {
    if constexpr (may_be_cut<Net>) {
        return refuse_second_cut<Net, count + 1>("SplitAt");
    } else if constexpr (Net::valid) {
        return cut_at<count + 1>(Net::layers, Net::fusion, names);
    } else {
        return {};
    }
}

}  // namespace impl

/// `Net` in this many balanced parts. See the head of this file.
template <Network Net, std::size_t parts>
struct Split<Net, parts> : Net {
private:
    static constexpr auto cuts = impl::balanced_cuts<Net, parts>();
    static_assert(!Net::valid || static_assert_message<cuts.diagnostic>());

public:
    static constexpr bool valid = Net::valid && cuts.diagnostic.empty();
    static constexpr std::span<const std::size_t> part_begins{cuts.begins};
};

/// `Net` in parts that begin at the named layers or blocks, in the network's order; the first begins at the Input.
template <Network Net, FixedString... names>
struct SplitAt : Net {
private:
    static constexpr std::array<std::string_view, sizeof...(names)> list{names.view()...};
    static constexpr auto cuts = impl::named_cuts<Net>(list);
    static_assert(!Net::valid || static_assert_message<cuts.diagnostic>());

public:
    static constexpr bool valid = Net::valid && cuts.diagnostic.empty();
    static constexpr std::span<const std::size_t> part_begins{cuts.begins};
};

}}  // namespace cupola::CUPOLA_ABI

#include <cupola/net/pipeline/pipeline.hpp>
