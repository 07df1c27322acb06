// SPDX-License-Identifier: Apache-2.0
//
// Targets in units of their deviation, so that a loss of numbers such as 400,000 is of the size that learning rates are
// made for:
//
//   const Standardization prices = Standardization::of_targets(training);
//   const StandardizedTargets part(training, prices), held_back(validation, prices);      data sets, in place of both
//   prices.undo(predicted);                                                               outputs become prices again
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include <cupola/core/element_type.hpp>
#include <cupola/core/error.hpp>
#include <cupola/core/extents.hpp>
#include <cupola/data/dataset.hpp>
#include <cupola/data/standardization.hpp>
#include <cupola/tensor/batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// A data set whose column `column` is standardized; everything else is as in `data`, which has to outlive it. The
/// targets are copied, the samples are not.
template <Dataset Data>
    requires HasTargets<Data>
class StandardizedTargets {
public:
    /// Throws InvalidArgument if there is no such column of floats, or its last extent is not the number of constants.
    StandardizedTargets(const Data& data, const Standardization& constants, std::string_view column = target_column)
        : data_(&data) {
        const Columns columns = data.target_columns();
        const ColumnSpec* const found = columns.find(column);
        require(found != nullptr && found->type == ElementType::float32, "the data set ", data.name(),
                " has no column of floats \"", column, "\" to standardize: its columns are ", names_of(columns));
        static_cast<void>(constants.output(found->shape));
        column_ = static_cast<std::size_t>(found - columns.begin());
        elements_ = static_cast<std::size_t>(found->shape.size());
        values_.resize(static_cast<std::size_t>(data.size()) * elements_);
        for (std::int64_t i = 0; i < data.size(); ++i) {
            std::memcpy(values_.data() + static_cast<std::size_t>(i) * elements_, data.target(i, column_),
                        elements_ * sizeof(float));
        }
        constants.apply(values_);
    }
    StandardizedTargets(const Data&&, const Standardization&,
                        std::string_view = {}) = delete;  // a temporary dies at once

    [[nodiscard]] const Data& data() const { return *data_; }
    [[nodiscard]] decltype(auto) name() const { return data_->name(); }
    [[nodiscard]] std::int64_t size() const { return data_->size(); }
    [[nodiscard]] Shape sample_shape() const { return data_->sample_shape(); }
    [[nodiscard]] decltype(auto) sample(std::int64_t i) const { return data_->sample(i); }
    [[nodiscard]] ElementType sample_type() const
        requires HasStoredSamples<Data>
    {
        return data_->sample_type();
    }
    [[nodiscard]] const std::byte* stored_sample(std::int64_t i) const
        requires HasStoredSamples<Data>
    {
        return data_->stored_sample(i);
    }
    [[nodiscard]] Columns target_columns() const { return data_->target_columns(); }
    [[nodiscard]] const void* target(std::int64_t i, std::size_t c) const {
        if (c != column_) return data_->target(i, c);
        return values_.data() + static_cast<std::size_t>(i) * elements_;
    }

private:
    const Data* data_;
    std::size_t column_ = 0, elements_ = 0;
    std::vector<float> values_;
};

}}  // namespace cupola::CUPOLA_ABI
