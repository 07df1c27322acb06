// SPDX-License-Identifier: Apache-2.0
//
// A network as data: one row a layer, computed once from the type list.
//
// Everything that a pass needs (shapes, parameters, traits) is in the rows, so passes are ordinary functions over a
// span of rows: they run in the compiler for a `static_assert` and at run time for a plan, and none of them is
// instantiated for each layer. A network of 400 layers costs 400 function calls in the compiler.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <cupola/core/extents.hpp>
#include <cupola/layers/layer.hpp>

namespace cupola::inline CUPOLA_ABI {

/// No value: a row that reads one only.
inline constexpr std::size_t no_value = static_cast<std::size_t>(-1);

/// One layer of a network.
struct Row {
    /// The name given with `Named`, or empty.
    std::string_view name;
    /// The layer's type as written: "Conv2d<64, 5>".
    std::string_view type;
    Shape input, output;
    Parameters parameters;
    /// Where each parameter starts in the arena, in elements.
    std::array<std::int64_t, max_parameters> offsets{};
    /// What it keeps beside them, in an array of its own.
    Parameters buffers;
    std::array<std::int64_t, max_parameters> buffer_offsets{};
    LayerTraits traits;
    std::int64_t multiply_adds = 0;
    /// The values that it reads: 0 is the network's input, i + 1 the output of row i.
    std::size_t reads = 0, also_reads = no_value;
};

/// Elements of the arena that a parameter takes: its size rounded up, so that each starts on a cache line.
[[nodiscard]] constexpr std::int64_t arena_extent(std::int64_t size) {
    constexpr std::int64_t line = alignment / sizeof(float);
    return (size + line - 1) / line * line;
}

/// The number of parameters, padding not counted.
[[nodiscard]] constexpr std::int64_t count_parameters(std::span<const Row> rows) {
    std::int64_t count = 0;
    for (const Row& row : rows) {
        for (std::size_t p = 0; p < row.parameters.count; ++p) count += row.parameters.list[p].shape.size();
    }
    return count;
}

/// The elements of a parameter arena, padding included.
[[nodiscard]] constexpr std::int64_t arena_elements(std::span<const Row> rows) {
    std::int64_t count = 0;
    for (const Row& row : rows) {
        for (std::size_t p = 0; p < row.parameters.count; ++p)
            count += arena_extent(row.parameters.list[p].shape.size());
    }
    return count;
}

/// The elements of an array of all buffers, padding included.
[[nodiscard]] constexpr std::int64_t buffer_elements(std::span<const Row> rows) {
    std::int64_t count = 0;
    for (const Row& row : rows) {
        for (std::size_t b = 0; b < row.buffers.count; ++b) count += arena_extent(row.buffers.list[b].shape.size());
    }
    return count;
}

namespace impl {

[[nodiscard, gnu::cold]] inline std::string name_in_row(std::span<const Row> rows, std::size_t row, const char* name) {
    return text(rows[row].name.empty() ? text(row) : std::string(rows[row].name), '.', name);
}

}  // namespace impl

/// A parameter's full name, PyTorch's way: "conv1.weight", or "0.weight" for a layer without a name.
[[nodiscard, gnu::cold]] inline std::string parameter_name(std::span<const Row> rows, std::size_t row,
                                                           std::size_t parameter) {
    return impl::name_in_row(rows, row, rows[row].parameters.list[parameter].name);
}

/// A buffer's full name: "bn1.running_mean".
[[nodiscard, gnu::cold]] inline std::string buffer_name(std::span<const Row> rows, std::size_t row,
                                                        std::size_t buffer) {
    return impl::name_in_row(rows, row, rows[row].buffers.list[buffer].name);
}

/// What the buffers hold before the first step.
[[nodiscard, gnu::cold]] std::vector<float> initial_buffers(std::span<const Row> rows);

/// A layer's running statistics in the array of buffers: what a policy that updates them goes over. A batch's
/// statistics lie at the same places of an array of their own: the mean, and the biased variance over all elements of a
/// channel. The running variance is the unbiased one: n / (n - 1) times that, with n the elements of a channel that
/// were seen.
struct RunningStatistics {
    std::size_t row = 0;
    std::int64_t mean = 0, variance = 0, channels = 0;
    double decay = 0;
    /// Elements that a sample has of each channel.
    std::int64_t elements_a_sample = 0;

    /// The factor between the variances for a batch of so many samples; 1 where a channel has one element.
    [[nodiscard]] constexpr double unbiased(std::int64_t samples) const {
        const auto count = static_cast<double>(samples * elements_a_sample);
        return count > 1 ? count / (count - 1) : 1.0;
    }
};

[[nodiscard, gnu::cold]] std::vector<RunningStatistics> running_statistics(std::span<const Row> rows);

#ifndef CUPOLA_OPS

CUPOLA_INLINE std::vector<float> initial_buffers(std::span<const Row> rows) {
    std::vector<float> values(static_cast<std::size_t>(buffer_elements(rows)));
    for (const Row& row : rows) {
        for (std::size_t b = 0; b < row.buffers.count; ++b) {
            const Parameter& buffer = row.buffers.list[b];
            initialize(std::span(values).subspan(static_cast<std::size_t>(row.buffer_offsets[b]),
                                                 static_cast<std::size_t>(buffer.shape.size())),
                       buffer.initializer, buffer.fan_in, buffer.fan_out, 0, 0);
        }
    }
    return values;
}

CUPOLA_INLINE std::vector<RunningStatistics> running_statistics(std::span<const Row> rows) {
    std::vector<RunningStatistics> result;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const Row& row = rows[i];
        if (row.traits.statistics_decay < 0 || row.buffers.count != 2) continue;
        const std::int64_t channels = row.buffers.list[0].shape.size();
        result.push_back({i, row.buffer_offsets[0], row.buffer_offsets[1], channels, row.traits.statistics_decay,
                          row.input.size() / channels});
    }
    return result;
}

#endif

}  // namespace cupola::inline CUPOLA_ABI
