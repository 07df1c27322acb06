// SPDX-License-Identifier: Apache-2.0
//
// Finds, by name, the parameters and running statistics of a network that are not finite or not valid.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <cupola/core/error.hpp>
#include <cupola/net/inputs.hpp>
#include <cupola/net/table.hpp>
#include <cupola/tensor/batch.hpp>
#include <cupola/tensor/finite.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

[[nodiscard]] std::span<const float> part_of_arena(std::span<const float> arena, std::int64_t offset,
                                                   const Shape& shape);

}  // namespace impl

/// Describes the first value that is infinite or not a number in an arena of the network `layers`: "conv2.bias is inf
/// at [0]", with indices in the network's own layout. Empty if all are finite; the padding between the parameters is
/// not checked. `arena` has `arena_elements(layers)` values: parameters, their averages, their gradients, or an
/// optimiser's state. It may also have `trained_elements(layers)` values, which leave out the frozen parameters.
[[nodiscard, gnu::cold]] std::string non_finite_parameter(std::span<const LayerInfo> layers,
                                                          std::span<const float> arena);

/// The same for the first value below 0, of finite ones.
[[nodiscard, gnu::cold]] std::string negative_parameter(std::span<const LayerInfo> layers,
                                                        std::span<const float> arena);

namespace impl {

/// The name of the parameter that an element of such an arena is of, or of the one before it in the padding.
[[nodiscard, gnu::cold]] std::string parameter_at(std::span<const LayerInfo> layers, std::int64_t element);

/// Describes the first sample of a batch in a device's memory with a number that is not finite in an input of the
/// network: "sample 2 of its batch is not finite", or "column mask of sample 2 of its batch is not finite". Empty if
/// there is none. The device's context provides `all_finite`.
template <class Context>
[[nodiscard, gnu::cold]] std::string non_finite_column(Context& context, std::span<const LayerInfo> layers,
                                                       const BatchView& batch) {
    const FixedArray<RequiredColumn> inputs = required_inputs(layers);
    for (std::int64_t i = 0; i < batch.size; ++i) {
        for (const RequiredColumn& each : inputs) {
            const ColumnSpec& column = each.column;
            if (column.type != ElementType::float32) continue;
            const std::int64_t elements = column.shape.size();
            const float* const values = batch.data<float>(column.name) + i * elements;
            if (all_finite(context, std::span(values, static_cast<std::size_t>(elements)))) continue;
            const bool other = column.name != input_column;
            return text(other ? "column " : "", other ? std::string_view(column.name) : "",
                        other ? " of sample " : "sample ", i, " of its batch is not finite");
        }
    }
    return {};
}

}  // namespace impl

/// Describes the first value in the array of all buffers that is infinite, not a number, or a variance below 0:
/// "bn1.running_var is -1 at [3]". Empty if there is none. `buffers` has `buffer_elements(layers)` values.
[[nodiscard, gnu::cold]] std::string invalid_buffer(std::span<const LayerInfo> layers, std::span<const float> buffers);

#ifndef CUPOLA_OPS

namespace impl {

CUPOLA_INLINE std::span<const float> part_of_arena(std::span<const float> arena, std::int64_t offset,
                                                   const Shape& shape) {
    return arena.subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(shape.size()));
}

}  // namespace impl

namespace impl {

CUPOLA_INLINE std::string parameter_at(std::span<const LayerInfo> layers, std::int64_t element) {
    std::string name;
    for (std::size_t layer = 0; layer < layers.size(); ++layer) {
        for (std::size_t p = 0; p < layers[layer].parameters.count; ++p) {
            if (layers[layer].offsets[p] <= element) name = parameter_name(layers, layer, p);
        }
    }
    return name;
}

/// The first text that is not empty of those that `describe(name, shape, values)` returns for the parameters in an
/// arena.
template <class Describe>
[[nodiscard]] std::string first_parameter(std::span<const LayerInfo> layers, std::span<const float> arena,
                                          const Describe& describe) {
    for (std::size_t row = 0; row < layers.size(); ++row) {
        for (std::size_t p = 0; p < layers[row].parameters.count; ++p) {
            if (layers[row].offsets[p] >= static_cast<std::int64_t>(arena.size())) continue;
            const Shape& shape = layers[row].parameters.list[p].shape;
            std::string found = describe(shape, part_of_arena(arena, layers[row].offsets[p], shape),
                                         [&] { return parameter_name(layers, row, p); });
            if (!found.empty()) return found;
        }
    }
    return {};
}

}  // namespace impl

CUPOLA_INLINE std::string non_finite_parameter(std::span<const LayerInfo> layers, std::span<const float> arena) {
    return impl::first_parameter(
        layers, arena, [](const Shape& shape, std::span<const float> values, const auto& name) -> std::string {
            return all_finite(values) ? std::string() : non_finite_element(name(), shape, values);
        });
}

CUPOLA_INLINE std::string negative_parameter(std::span<const LayerInfo> layers, std::span<const float> arena) {
    return impl::first_parameter(
        layers, arena, [](const Shape& shape, std::span<const float> values, const auto& name) -> std::string {
            const auto found = std::ranges::find_if(values, [](float value) { return value < 0; });
            if (found == values.end()) return {};
            return impl::element_text(name(), shape, static_cast<std::size_t>(found - values.begin()), *found);
        });
}

CUPOLA_INLINE std::string invalid_buffer(std::span<const LayerInfo> layers, std::span<const float> buffers) {
    for (std::size_t row = 0; row < layers.size(); ++row) {
        for (std::size_t b = 0; b < layers[row].buffers.count; ++b) {
            const Shape& shape = layers[row].buffers.list[b].shape;
            const std::span<const float> values = impl::part_of_arena(buffers, layers[row].buffer_offsets[b], shape);
            if (!all_finite(values)) return non_finite_element(buffer_name(layers, row, b), shape, values);
        }
    }
    for (const RunningStatistics& layer : running_statistics(layers)) {
        const Shape shape{layer.channels};
        const std::span<const float> variances = impl::part_of_arena(buffers, layer.variance, shape);
        for (std::size_t c = 0; c < variances.size(); ++c) {
            if (variances[c] < 0)
                return impl::element_text(buffer_name(layers, layer.layer, 1), shape, c, variances[c]);
        }
    }
    return {};
}

#endif

}}  // namespace cupola::CUPOLA_ABI
