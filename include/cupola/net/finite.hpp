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

}}  // namespace cupola::CUPOLA_ABI

#ifdef CUPOLA_DECL
#include <cupola/net/finite.ipp>
#endif
