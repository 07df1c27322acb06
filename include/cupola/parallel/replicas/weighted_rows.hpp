// SPDX-License-Identifier: Apache-2.0
//
// WeightedRows: one row per replica that has samples, and the number of its samples, for one call of a policy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <cupola/core/fixed_array.hpp>
#include <cupola/core/span_of.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Made once with room for all replicas, so that a step allocates nothing.
class WeightedRows {
public:
    WeightedRows() = default;
    explicit WeightedRows(int replicas)
        : rows_(static_cast<std::size_t>(replicas)), samples_(static_cast<std::size_t>(replicas)) {}

    void clear() {
        count_ = 0;
        total_samples_ = 0;
    }
    /// Rows are added in replica order; a row without samples is left out.
    void add(const float* row, std::int64_t samples) {
        if (samples == 0) return;
        rows_[count_] = row;
        samples_[count_] = samples;
        ++count_;
        total_samples_ += samples;
    }

    [[nodiscard]] std::span<const float* const> rows() const {
        return span_of<const float* const>(rows_.data(), count_);
    }
    [[nodiscard]] std::span<const std::int64_t> samples() const { return span_of(samples_.data(), count_); }
    [[nodiscard]] std::int64_t total_samples() const { return total_samples_; }

private:
    FixedArray<const float*> rows_;
    FixedArray<std::int64_t> samples_;
    std::size_t count_ = 0;
    std::int64_t total_samples_ = 0;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
