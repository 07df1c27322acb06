// SPDX-License-Identifier: Apache-2.0
//
// Definitions of cupola/tensor/batch.hpp.
#pragma once

#include <cupola/tensor/batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

CUPOLA_DECL void Columns::push_back(const ColumnSpec& column) {
    require(size_ < max_columns, "a batch can have at most ", max_columns, " columns");
    require(find(column.name) == nullptr, "a batch has two columns with the name ", column.name);
    list_[size_++] = column;
}

CUPOLA_DECL std::string names_of(const Columns& columns) {
    std::string names;
    for (const ColumnSpec& each : columns) names += text(names.empty() ? "" : ", ", each.name);
    return names.empty() ? "none" : names;
}

CUPOLA_DECL BatchView::BatchView(const float* inputs, const std::int32_t* labels, std::int64_t sample_count,
                                 const Shape& input_shape)
    : BatchView(sample_count, {{{input_column, ElementType::float32, input_shape}, inputs},
                               {{target_column, ElementType::int32, {1}}, labels}}) {}

CUPOLA_DECL BatchView::BatchView(const float* inputs, const Shape& input_shape, const float* targets,
                                 const Shape& target_shape, std::int64_t sample_count)
    : BatchView(sample_count, {{{input_column, ElementType::float32, input_shape}, inputs},
                               {{target_column, ElementType::float32, target_shape}, targets}}) {}

CUPOLA_DECL BatchView::BatchView(std::int64_t sample_count, std::initializer_list<Column> columns)
    : size(sample_count) {
    for (const Column& each : columns) push_back(each);
}

CUPOLA_DECL BatchView BatchSpan::view(std::int64_t size) const {
    BatchView result(size, {});
    for (std::size_t i = 0; i < columns_->size(); ++i) result.push_back({(*columns_)[i], data_[i]});
    return result;
}

CUPOLA_DECL std::size_t BatchSpan::index_of(std::string_view name, ElementType type) const {
    const ColumnSpec* const found = columns_->find(name);
    require(found != nullptr && found->type == type, "there is no column ", name, " of ", to_string(type),
            " among the columns ", names_of(*columns_));
    return static_cast<std::size_t>(found - columns_->begin());
}

}}  // namespace cupola::CUPOLA_ABI
