// SPDX-License-Identifier: Apache-2.0
//
// What a metric sees of an evaluation: the outputs of the network and the target columns of one batch, in host memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <cupola/core/abi.hpp>
#include <cupola/core/error.hpp>
#include <cupola/core/extents.hpp>
#include <cupola/core/function_ref.hpp>
#include <cupola/tensor/batch.hpp>

namespace cupola::inline CUPOLA_ABI {

struct MetricBatch {
    /// The number of samples; at least 1.
    std::int64_t size = 0;
    /// The extents of the output of one sample.
    Shape output_shape{};
    /// The outputs of all samples, one sample after another.
    std::span<const float> outputs{};
    /// The batch without its column "input".
    BatchView targets{};

    [[nodiscard]] std::span<const float> output(std::int64_t sample) const {
        const std::int64_t each = output_shape.size();
        return outputs.subspan(static_cast<std::size_t>(sample * each), static_cast<std::size_t>(each));
    }
    /// The values of a column, one sample after another. Throws InvalidArgument if the batch has no column of that name and
    /// type.
    template <class T>
    [[nodiscard]] std::span<const T> target(std::string_view name = target_column) const {
        const ColumnSpec& column = require_target(name, element_type_of<T>);
        return {targets.data<T>(name), static_cast<std::size_t>(size * column.shape.size())};
    }

private:
    [[nodiscard]] const ColumnSpec& require_target(std::string_view name, ElementType type) const;
};

/// Called for each batch of an evaluation that is not empty, in the order of the batches, by one thread at a time.
using MetricFunction = FunctionRef<void(const MetricBatch&)>;

#ifndef CUPOLA_OPS

CUPOLA_INLINE const ColumnSpec& MetricBatch::require_target(std::string_view name, ElementType type) const {
    const ColumnSpec* const found = targets.columns().find(name);
    require(found != nullptr && found->type == type, "a metric reads the column ", name, " of ", to_string(type),
            ", and the batches have ", found == nullptr ? "the columns: " : "one of ",
            found == nullptr ? names_of(targets.columns()) : std::string(to_string(found->type)));
    return *found;
}

#endif

}  // namespace cupola::inline CUPOLA_ABI
