// SPDX-License-Identifier: Apache-2.0
//
// Definitions of cupola/net/inputs.hpp.
#pragma once

#include <cupola/net/inputs.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

CUPOLA_DECL FixedArray<RequiredColumn> required_inputs(std::span<const LayerInfo> layers) {
    FixedArray<RequiredColumn> result(count_inputs(layers));
    const LayerInfo& first = layers.front();
    result[0] = required_input(first.input, first.column_type, first.ids);
    std::size_t count = 1;
    for (const LayerInfo& layer : layers) {
        if (!layer.column.empty())
            result[count++] = {{layer.column, layer.column_type, layer.output}, "the network", layer.ids};
    }
    return result;
}

CUPOLA_DECL std::string non_finite_input(const ColumnSpec& column, std::span<const float> values) {
    std::string found = non_finite_sample(column.shape, values);
    return found.empty() || column.name == input_column ? found : text("column ", column.name, " of ", found);
}

CUPOLA_DECL void require_inputs(const BatchView& batch, std::span<const RequiredColumn> inputs) {
    require_batch(batch, inputs);
    for (const RequiredColumn& each : inputs) {
        const auto elements = static_cast<std::size_t>(batch.size * each.column.shape.size());
        if (each.column.type == ElementType::int32) {
            const std::span ids(batch.data<std::int32_t>(each.column.name), elements);
            const std::int64_t bad = first_bad_id(ids, each.ids);
            require(
                bad < 0, "the ids of an input must be in range, but ",
                bad < 0 ? std::string() : bad_id_text(each.column, bad, ids[static_cast<std::size_t>(bad)], each.ids));
        }
        if (each.column.type != ElementType::float32) continue;
        const std::span values(batch.data<float>(each.column.name), elements);
        if (!all_finite(values))
            throw InvalidArgument("the input of a network must be finite, but " +
                                  non_finite_input(each.column, values));
    }
}

}}  // namespace cupola::CUPOLA_ABI
