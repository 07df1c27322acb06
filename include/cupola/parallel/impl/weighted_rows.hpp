// SPDX-License-Identifier: Apache-2.0
//
// WeightedRows: one row per replica that has samples, and the number of its samples, for one call of a policy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <cupola/core/abi.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

/// Made once with room for all replicas, so that a step allocates nothing.
class WeightedRows {
public:
    void reserve(std::size_t replicas) {
        rows_.reserve(replicas);
        samples_.reserve(replicas);
    }
    void clear() {
        rows_.clear();
        samples_.clear();
        total_samples_ = 0;
    }
    /// Rows are added in replica order; a row without samples is left out.
    void add(const float* row, std::int64_t samples) {
        if (samples == 0) return;
        rows_.push_back(row);
        samples_.push_back(samples);
        total_samples_ += samples;
    }

    [[nodiscard]] std::span<const float* const> rows() const { return rows_; }
    [[nodiscard]] std::span<const std::int64_t> samples() const { return samples_; }
    [[nodiscard]] std::int64_t total_samples() const { return total_samples_; }

private:
    std::vector<const float*> rows_;
    std::vector<std::int64_t> samples_;
    std::int64_t total_samples_ = 0;
};

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
