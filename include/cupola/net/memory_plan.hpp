// SPDX-License-Identifier: Apache-2.0
//
// The memory plan: where each activation and each gradient lies in the arena. What backward needs is kept until then,
// the rest shares memory.
//
// Time runs over the stages: forward of stage i at time i, the loss at time S (the number of stages), backward of stage
// i at time 2 S - i. Each tensor lives from its first write to its last read; tensors that never live at the same time
// may share bytes. Placement is greedy, the largest first, each at the lowest place where it fits.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <cupola/device/device.hpp>
#include <cupola/net/fusion.hpp>

namespace cupola::inline CUPOLA_ABI {

/// One tensor in the plan. `first` and `last` are both included; bytes 0 means that it is not in the arena.
struct Lifetime {
    std::size_t bytes = 0;
    std::size_t first = 0, last = 0;
    std::size_t offset = 0;
};

/// Gives each lifetime its offset; returns the size of the arena. Quadratic in the number of tensors at worst, which lets
/// a compiler's default limits on constant evaluation reach some hundred layers.
[[gnu::cold]] constexpr std::size_t place(std::span<Lifetime> lifetimes) {
    std::vector<std::size_t> by_size, by_offset;  // by_offset: those that are placed
    for (std::size_t i = 0; i < lifetimes.size(); ++i) {
        if (lifetimes[i].bytes > 0) by_size.push_back(i);
    }
    std::sort(by_size.begin(), by_size.end(), [&](std::size_t a, std::size_t b) {
        return lifetimes[a].bytes != lifetimes[b].bytes ? lifetimes[a].bytes > lifetimes[b].bytes : a < b;
    });
    std::size_t total = 0;
    for (const std::size_t next : by_size) {
        Lifetime& tensor = lifetimes[next];
        // The first gap between tensors that are alive at the same time, in the order of their offsets.
        std::size_t offset = 0;
        for (const std::size_t i : by_offset) {
            const Lifetime& other = lifetimes[i];
            if (other.last < tensor.first || tensor.last < other.first) continue;
            if (offset + tensor.bytes <= other.offset) break;
            offset = std::max(offset, other.offset + other.bytes);
        }
        tensor.offset = offset;
        total = std::max(total, offset + tensor.bytes);
        std::size_t at = by_offset.size();
        while (at > 0 && lifetimes[by_offset[at - 1]].offset > offset) --at;
        by_offset.insert(by_offset.begin() + static_cast<std::ptrdiff_t>(at), next);
    }
    return total;
}

/// The tensor whose memory value `v` (the input of stage `v`) uses: itself, or what a chain of views looks at.
[[nodiscard]] constexpr std::size_t storage_of(std::span<const StageInfo> stages, std::size_t v) {
    while (v > 0 && stages[v - 1].view) --v;
    return v;
}

/// Plans the values (entry v: the input of stage v; entry S: the output) and their gradients (entry S + 1 + v). Value 0
/// is the batch, which is not in the arena; its gradient is, where `input_gradient` asks for it. Views share the entry of
/// what they look at. `lifetimes` has 2 S + 2 entries. Returns the bytes of the arena.
[[gnu::cold]] constexpr std::size_t plan_activations(std::span<const StageInfo> stages, std::int64_t batch, bool training,
                                       bool input_gradient, std::span<Lifetime> lifetimes) {
    const std::size_t count = stages.size();
    for (Lifetime& lifetime : lifetimes) lifetime = {};
    const auto backward_time = [&](std::size_t stage) { return 2 * count - stage; };
    const auto bytes_of = [&](const Shape& shape) {
        return aligned(static_cast<std::size_t>(batch * shape.size()) * sizeof(float));
    };
    const auto use = [&](std::size_t entry, std::size_t time) {
        lifetimes[entry].first = std::min(lifetimes[entry].first, time);
        lifetimes[entry].last = std::max(lifetimes[entry].last, time);
    };
    const std::size_t gradients = count + 1;
    for (std::size_t i = 0; i < count; ++i) {
        const std::size_t from = storage_of(stages, i), to = storage_of(stages, i + 1);
        if (to == i + 1) lifetimes[to] = {bytes_of(stages[i].output), i, i, 0};
        if (from > 0) use(from, i);
        if (training && stages[i].backward_reads_output && to > 0) use(to, backward_time(i));
        if (training && stages[i].backward_reads_input && from > 0) use(from, backward_time(i));
    }
    if (const std::size_t output = storage_of(stages, count); output > 0) use(output, count);
    if (!training) return place(lifetimes);

    // Backward goes down to the first stage with parameters, or to the input where its gradient is asked for.
    std::size_t lowest = 0;
    while (!input_gradient && lowest < count && !stages[lowest].has_parameters) ++lowest;
    for (std::size_t v = count + 1; v-- > lowest;) {
        const std::size_t storage = storage_of(stages, v);
        const bool wanted = v > lowest || input_gradient;
        if (!wanted) continue;
        Lifetime& gradient = lifetimes[gradients + storage];
        const std::size_t written = v == count ? count : backward_time(v);
        const std::size_t read = v == 0 ? 2 * count + 1 : backward_time(v - 1);
        if (gradient.bytes == 0) gradient = {bytes_of(v == 0 ? stages[0].input : stages[v - 1].output), written, read, 0};
        use(gradients + storage, written);
        use(gradients + storage, read);
    }
    return place(lifetimes);
}

}  // namespace cupola::inline CUPOLA_ABI
