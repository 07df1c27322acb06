// SPDX-License-Identifier: Apache-2.0
//
// A network as data: one row a layer, computed once from the type list.
//
// Everything that a pass needs (shapes, parameters, traits) is in the rows, so passes are ordinary functions over a span
// of rows: they run in the compiler for a `static_assert` and at run time for a plan, and none of them is instantiated
// for each layer. A network of 400 layers costs 400 function calls in the compiler.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <cupola/core/extents.hpp>
#include <cupola/layers/layer.hpp>

namespace cupola::inline CUPOLA_ABI {

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
    LayerTraits traits;
    std::int64_t multiply_adds = 0;
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
        for (std::size_t p = 0; p < row.parameters.count; ++p) count += arena_extent(row.parameters.list[p].shape.size());
    }
    return count;
}

/// A parameter's full name, PyTorch's way: "conv1.weight", or "0.weight" for a layer without a name.
[[nodiscard, gnu::cold]] inline std::string parameter_name(std::span<const Row> rows, std::size_t row, std::size_t parameter) {
    return text(rows[row].name.empty() ? text(row) : std::string(rows[row].name), '.',
                rows[row].parameters.list[parameter].name);
}

}  // namespace cupola::inline CUPOLA_ABI
