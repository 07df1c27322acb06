// SPDX-License-Identifier: Apache-2.0
//
// The input of a metric in an evaluation: the outputs of the network and the target columns of one batch, in host
// memory.
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

namespace cupola { inline namespace CUPOLA_ABI {

/// One output of a network: its name, empty for the only one, its extents for one sample, and its values for all
/// samples, one sample after another.
struct MetricOutput {
    std::string_view name{};
    Shape shape{};
    std::span<const float> values{};
};

struct MetricBatch {
    /// The number of samples; at least 1.
    std::int64_t size = 0;
    /// The extents of the output of one sample; with several outputs, those of the last one.
    Shape output_shape{};
    /// The values of this output for all samples, one sample after another.
    std::span<const float> outputs{};
    /// The batch without its column "input", unless a loss or a metric by name reads that.
    BatchView targets{};
    /// All outputs, in the order of the network.
    std::span<const MetricOutput> all_outputs{};

    [[nodiscard]] std::span<const float> output(std::int64_t sample) const {
        const std::int64_t each = output_shape.size();
        return outputs.subspan(static_cast<std::size_t>(sample * each), static_cast<std::size_t>(each));
    }
    /// The values of a column, one sample after another. Throws InvalidArgument if the batch has no column with that
    /// name and type.
    template <class T>
    [[nodiscard]] std::span<const T> target(std::string_view name = target_column) const {
        const ColumnSpec& column = require_target(name, element_type_of<T>);
        return {targets.data<T>(name), static_cast<std::size_t>(size * column.shape.size())};
    }
    /// The same batch with the named output, and with the named column as "target". Throws InvalidArgument if there is
    /// no such output or column.
    [[nodiscard]] MetricBatch at(std::string_view output_name, std::string_view column) const;

private:
    [[nodiscard]] const ColumnSpec& require_target(std::string_view name, ElementType type) const;
};

/// Called for each non-empty batch of an evaluation, in the order of the batches, by one thread at a time.
using MetricFunction = FunctionRef<void(const MetricBatch&)>;

inline const ColumnSpec& MetricBatch::require_target(std::string_view name, ElementType type) const {
    const ColumnSpec* const found = targets.columns().find(name);
    require(found != nullptr && found->type == type, "a metric reads the column ", name, " of ", to_string(type),
            ", and the batches have ", found == nullptr ? "the columns: " : "one of ",
            found == nullptr ? names_of(targets.columns()) : std::string(to_string(found->type)));
    return *found;
}

inline MetricBatch MetricBatch::at(std::string_view output_name, std::string_view column) const {
    const ColumnSpec* const found = targets.columns().find(column);
    require(found != nullptr, "a metric reads the column ", column,
            ", and the batches have the columns: ", names_of(targets.columns()));
    for (const MetricOutput& each : all_outputs) {
        if (each.name != output_name) continue;
        MetricBatch result{
            .size = size, .output_shape = each.shape, .outputs = each.values, .all_outputs = all_outputs};
        result.targets.size = size;
        const auto place = static_cast<std::size_t>(found - targets.columns().begin());
        result.targets.push_back({{target_column, found->type, found->shape}, targets.data(place)});
        return result;
    }
    impl::throw_joined<InvalidArgument>(
        {"a metric reads the output ", output_name, ", which the network does not have"});
}

}}  // namespace cupola::CUPOLA_ABI
