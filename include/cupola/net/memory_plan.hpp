// SPDX-License-Identifier: Apache-2.0
//
// The memory plan: the place of each activation and each gradient in the arena. Tensors that backward needs are kept
// until then; the others share memory.
//
// A time is the number of a pass in the list of the plan's passes (net/pass_list.hpp). Each tensor lives from its first
// write to its last read; tensors that are never alive at the same time may share bytes. Placement is greedy, the
// largest or the longest-lived first, each at the lowest offset where it fits.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <cupola/core/element_type.hpp>
#include <cupola/core/fixed_array.hpp>
#include <cupola/device/device.hpp>
#include <cupola/net/node_info.hpp>
#include <cupola/net/pass_list.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// One tensor in the plan. `first` and `last` are inclusive; bytes 0 means that the tensor is not in the arena.
struct Lifetime {
    std::size_t bytes = 0;
    std::size_t first = 0, last = 0;
    std::size_t offset = 0;
};

namespace impl {

/// Assigns each lifetime its offset, in this order; returns the size of the arena. The cost is quadratic in the number
/// of tensors at worst, so that a compiler's default limits on constant evaluation suffice for some hundred layers.
[[gnu::cold]] constexpr std::size_t place_in_order(std::span<Lifetime> lifetimes, std::span<const std::size_t> order) {
    FixedArray<std::size_t> indices(order.size());
    // Pointers, because each call of an operator[] counts as steps.
    std::size_t* const by_offset = indices.data();  // the first `placed`: those that have their offset
    Lifetime* const all = lifetimes.data();
    std::size_t placed = 0, total = 0;
    for (const std::size_t next : order) {
        Lifetime& tensor = all[next];
        // The first gap between tensors that are alive at the same time, in the order of their offsets.
        std::size_t offset = 0;
        for (std::size_t i = 0; i < placed; ++i) {
            const Lifetime& other = all[by_offset[i]];
            if (other.last < tensor.first || tensor.last < other.first) continue;
            if (offset + tensor.bytes <= other.offset) break;
            offset = std::max(offset, other.offset + other.bytes);
        }
        tensor.offset = offset;
        total = std::max(total, offset + tensor.bytes);
        std::size_t at = placed++;
        for (; at > 0 && all[by_offset[at - 1]].offset > offset; --at) by_offset[at] = by_offset[at - 1];
        by_offset[at] = next;
    }
    return total;
}

/// The maximum of the bytes that are alive at the same time, which is a lower bound of the arena's size, and its time.
struct AlivePeak {
    std::size_t bytes = 0, time = 0;
};
[[gnu::cold]] constexpr AlivePeak max_alive(std::span<const Lifetime> lifetimes) {
    std::size_t times = 0;
    for (const Lifetime& lifetime : lifetimes) times = std::max(times, lifetime.last + 2);
    FixedArray<std::size_t> allocated(times), freed(times);
    for (const Lifetime& lifetime : lifetimes) {
        allocated[lifetime.first] += lifetime.bytes;
        freed[lifetime.last + 1] += lifetime.bytes;
    }
    std::size_t alive = 0;
    AlivePeak peak;
    for (std::size_t time = 0; time < times; ++time) {
        alive += allocated[time];
        alive -= freed[time];
        if (alive > peak.bytes) peak = {alive, time};
    }
    return peak;
}

}  // namespace impl

/// The orders in which tensors are placed.
enum class PlacementOrder : std::uint8_t {
    largest_first,
    longest_lived_first,
    /// Those alive at the time of most bytes first, and of equal ones the longest-lived.
    peak_first
};

/// Assigns each lifetime its offset; returns the size of the arena. The largest tensors are placed first; where that
/// needs more than the maximum of the bytes alive at one time, the other orders up to `last` are tried too, and the
/// best result is kept.
[[gnu::cold]] constexpr std::size_t place(std::span<Lifetime> lifetimes,
                                          PlacementOrder last = PlacementOrder::longest_lived_first) {
    FixedArray<std::size_t> order(lifetimes.size());
    std::size_t count = 0;
    for (std::size_t i = 0; i < lifetimes.size(); ++i) {
        if (lifetimes[i].bytes > 0) order[count++] = i;
    }
    order.keep_first(count);
    PlacementOrder by = PlacementOrder::largest_first;
    impl::AlivePeak peak;
    const auto at_peak = [&](std::size_t i) {
        return lifetimes[i].first <= peak.time && peak.time <= lifetimes[i].last;
    };
    const auto before = [&](std::size_t a, std::size_t b) {
        if (by == PlacementOrder::peak_first && at_peak(a) != at_peak(b)) return at_peak(a);
        const std::size_t length = lifetimes[a].last - lifetimes[a].first,
                          other_length = lifetimes[b].last - lifetimes[b].first;
        if (by != PlacementOrder::largest_first && length != other_length) return length > other_length;
        return lifetimes[a].bytes != lifetimes[b].bytes ? lifetimes[a].bytes > lifetimes[b].bytes : a < b;
    };
    // By insertion, because std::sort takes long to compile; place_in_order is quadratic too.
    const auto sort = [&] {
        for (std::size_t i = 1; i < count; ++i) {
            const std::size_t next = order[i];
            std::size_t at = i;
            for (; at > 0 && before(next, order[at - 1]); --at) order[at] = order[at - 1];
            order[at] = next;
        }
    };
    sort();
    std::size_t total = impl::place_in_order(lifetimes, order);
    peak = impl::max_alive(lifetimes);
    while (total > peak.bytes && by != last) {
        by = by == PlacementOrder::largest_first ? PlacementOrder::longest_lived_first : PlacementOrder::peak_first;
        sort();
        FixedArray<Lifetime> other{std::span<const Lifetime>(lifetimes)};
        const std::size_t other_total = impl::place_in_order(other, order);
        if (other_total >= total) continue;
        total = other_total;
        std::copy(other.begin(), other.end(), lifetimes.begin());
    }
    return total;
}

/// The number of lifetimes in a plan of this many nodes: those of the values, of their gradients, and of the gradients
/// that the readers aside of Forks share; for a network that recomputes (net/table.hpp), also those of the values that
/// are computed again.
[[nodiscard]] constexpr std::size_t lifetimes_of(std::size_t nodes, bool recomputes = false) {
    return (recomputes ? 4 : 3) * nodes + 2;
}

/// The lifetime of the output of node `i` from its second forward pass on.
[[nodiscard]] constexpr std::size_t recomputed_entry(std::size_t nodes, std::size_t i) { return 3 * nodes + 2 + i; }

/// The lifetime of a value's storage as backward, and forward again, read it.
[[nodiscard]] constexpr std::size_t entry_in_backward(std::span<const Lifetime> lifetimes, std::size_t nodes,
                                                      std::size_t storage) {
    const std::size_t again = recomputed_entry(nodes, storage) - 1;
    return storage > 0 && again < lifetimes.size() && lifetimes[again].bytes > 0 ? again : storage;
}

/// The lifetime of the gradient that the readers aside of a Fork share; that of the Fork's own gradient if it has no
/// other reader. If the last of them is a sum, the gradients of its output and of its second input are equal and share
/// memory.
[[nodiscard, gnu::cold]] constexpr std::size_t second_gradient_entry(std::span<const NodeInfo> nodes, std::size_t fork);

/// The lifetime of value `v`'s gradient: views share theirs too, and so does a Fork with its first reader, and the
/// output of a node with its input where backward computes in place. A view that adds its gradient has one of its own.
[[nodiscard]] constexpr std::size_t gradient_entry(std::span<const NodeInfo> nodes, std::size_t v) {
    while (v > 0 && (nodes[v - 1].input_gradient_in_place || (nodes[v - 1].view && !nodes[v - 1].adds_gradient))) {
        const NodeInfo& node = nodes[v - 1];
        v = node.reads;
        if (node.reads_aside) return second_gradient_entry(nodes, v - 1);
    }
    return nodes.size() + 1 + v;
}

constexpr std::size_t second_gradient_entry(std::span<const NodeInfo> nodes, std::size_t fork) {
    if (nodes[fork].only_read_aside) return gradient_entry(nodes, fork + 1);
    if (nodes[fork].second_reader_adds) return gradient_entry(nodes, nodes[fork].second_reader + 1);
    return 2 * nodes.size() + 2 + fork;
}

/// The lifetime of the gradient that node `i` writes for its first or its second input.
[[nodiscard, gnu::cold]] constexpr std::size_t input_gradient_entry(std::span<const NodeInfo> nodes, std::size_t i,
                                                                    bool second) {
    const std::size_t v = second ? nodes[i].also_reads : nodes[i].reads;
    const bool aside = second ? nodes[i].also_reads_aside : nodes[i].reads_aside;
    return aside ? second_gradient_entry(nodes, v - 1) : gradient_entry(nodes, v);
}

/// The lifetime of the gradient of value `v` that a loss writes: of an Output, or of the last value.
[[nodiscard]] constexpr std::size_t output_gradient_entry(std::span<const NodeInfo> nodes, std::size_t v) {
    return v > 0 && nodes[v - 1].is_output ? second_gradient_entry(nodes, v - 1) : gradient_entry(nodes, v);
}

/// Plans the values (entry v), their gradients (entry S + 1 + v, with S nodes) and those of the readers aside of Forks
/// (entry 2 S + 2 + node). Value 0 is the batch, which is not in the arena; its gradient is in the arena where
/// `input_gradient` is set.
/// Views share the entry of the tensor that they refer to. A value that is computed again (net/recompute.hpp) has an
/// entry for forward and another one from there on (entry 3 S + 2 + node). `lifetimes` has lifetimes_of(S, whether the
/// network recomputes) entries; an activation has `element_bytes` bytes. Returns the bytes of the arena.
[[gnu::cold]] constexpr std::size_t plan_activations(std::span<const NodeInfo> nodes, std::int64_t batch, bool training,
                                                     bool input_gradient, std::span<Lifetime> lifetimes,
                                                     std::size_t element_bytes = sizeof(float)) {
    const std::size_t count = nodes.size();
    for (Lifetime& lifetime : lifetimes) lifetime = {};
    const auto bytes_of = [&](std::size_t value) {
        const Shape& shape = value == 0 ? nodes[0].input : nodes[value - 1].output;
        return aligned(static_cast<std::size_t>(batch * shape.size()) * element_bytes);
    };
    const auto use = [&](std::size_t entry, std::size_t value, std::size_t time) {
        Lifetime& lifetime = lifetimes[entry];
        if (lifetime.bytes == 0) lifetime = {bytes_of(value), time, time, 0};
        lifetime.last = time;
    };
    const auto read = [&](std::size_t value, std::size_t time) {
        const std::size_t storage = storage_of(nodes, value);
        if (storage > 0) use(storage, storage, time);
    };
    const auto read_again = [&](std::size_t value, std::size_t time) {
        const std::size_t storage = storage_of(nodes, value);
        if (storage > 0) use(entry_in_backward(lifetimes, count, storage), storage, time);
    };
    const std::size_t lowest = lowest_node(nodes, input_gradient);
    const auto wanted = [&](std::size_t value) { return needs_gradient(nodes, value, lowest, input_gradient); };
    const auto forward = [&](std::size_t i, std::size_t time) {
        if (!nodes[i].view && !nodes[i].adds_to_second_input) use(i + 1, i + 1, time);
        read(nodes[i].reads, time);
        if (nodes[i].also_reads != no_value) read(nodes[i].also_reads, time);
    };
    // The caller reads the outputs, and then writes their gradients.
    const auto outputs = [&](std::size_t time) {
        read(count, time);
        if (training && (count > lowest || input_gradient)) use(output_gradient_entry(nodes, count), count, time);
        for (std::size_t i = 0; i < count; ++i) {
            if (!nodes[i].is_output) continue;
            read(i + 1, time);
            if (training) use(output_gradient_entry(nodes, i + 1), i + 1, time);
        }
    };
    const auto recompute = [&](std::size_t i, std::size_t time) {
        use(recomputed_entry(count, i), i + 1, time);
        read_again(nodes[i].reads, time);
        if (nodes[i].also_reads != no_value) read_again(nodes[i].also_reads, time);
    };
    const auto backward = [&](std::size_t i, std::size_t time) {
        const NodeInfo& node = nodes[i];
        if (has_backward(nodes, i, lowest, input_gradient)) {
            if (node.backward_reads_output) read_again(i + 1, time);
            if (node.backward_reads_input) read_again(node.reads, time);
            if (node.backward_reads_second_input) read_again(node.also_reads, time);
        }
        if (i < lowest || !wanted(i + 1)) return;
        use(gradient_entry(nodes, i + 1), i + 1, time);
        if (node.adds_two_gradients()) use(second_gradient_entry(nodes, i), i + 1, time);
        if (wanted(node.reads)) use(input_gradient_entry(nodes, i, false), node.reads, time);
        if (node.also_reads != no_value && wanted(node.also_reads))
            use(input_gradient_entry(nodes, i, true), node.also_reads, time);
    };
    const FixedArray<NodePass> passes = list_passes(nodes, training, input_gradient);
    for (std::size_t time = 0; time < passes.size(); ++time) {
        switch (passes[time].kind) {
            case PassKind::forward: forward(passes[time].node, time); break;
            case PassKind::outputs: outputs(time); break;
            case PassKind::recompute: recompute(passes[time].node, time); break;
            case PassKind::backward: backward(passes[time].node, time); break;
        }
    }
    if (!training) return place(lifetimes);
    if (input_gradient) use(gradient_entry(nodes, 0), 0, passes.size());  // it is read after the pass
    // Where values are computed again, there is less that lives long, and more that lives at the peak alone.
    return place(lifetimes,
                 passes.size() > 2 * count + 1 ? PlacementOrder::peak_first : PlacementOrder::longest_lived_first);
}

/// The inputs and outputs of a network that is not computed in float, and their place after the activations: the batch
/// in the activations' type, and in float the outputs one after another and, in training, their gradients and that of
/// the batch. An input of ids or bytes is not copied.
struct PlannedEnds {
    std::size_t output = 0, output_gradient = 0, input_gradient = 0, bytes = 0;
};
/// The elements per sample of the input that is converted to the activations' type.
[[nodiscard]] constexpr std::int64_t converted_inputs(std::span<const LayerInfo> layers) {
    return layers.front().column_type == ElementType::float32 ? layers.front().input.size() : 0;
}
[[nodiscard]] constexpr PlannedEnds plan_ends(std::span<const LayerInfo> layers, std::int64_t batch, bool training,
                                              bool input_gradient, std::size_t element_bytes) {
    const auto inputs = static_cast<std::size_t>(batch * converted_inputs(layers));
    std::size_t outputs = 0;
    for (std::size_t i = 0; i < layers.size(); ++i) {
        if (layers[i].is_output || i + 1 == layers.size())
            outputs += aligned(static_cast<std::size_t>(batch * layers[i].output.size()) * sizeof(float));
    }
    PlannedEnds ends;
    ends.output = aligned(inputs * element_bytes);
    ends.output_gradient = ends.output + outputs;
    ends.input_gradient = ends.output_gradient + (training ? outputs : 0);
    ends.bytes = ends.input_gradient + (training && input_gradient ? aligned(inputs * sizeof(float)) : 0);
    return ends;
}

}}  // namespace cupola::CUPOLA_ABI
