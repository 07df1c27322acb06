// SPDX-License-Identifier: Apache-2.0
//
// SampleCounts: the number of samples of each batch of the steps in flight. WeightedRows: rows with the numbers of
// their samples.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <cupola/core/fixed_array.hpp>
#include <cupola/core/span_of.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

class SampleCounts {
public:
    SampleCounts(int replicas, int parts, std::int64_t steps)
        : replicas_(replicas),
          parts_(parts),
          steps_(static_cast<std::size_t>(steps)),
          counts_(steps_ * static_cast<std::size_t>(replicas * parts)) {}

    void clear(std::int64_t step) {
        std::int64_t* const begin = counts_.data() + place(step, 0, 0);
        std::fill(begin, begin + replicas_ * parts_, 0);
    }
    [[nodiscard]] std::int64_t& of(std::int64_t step, int part, int replica) {
        return counts_[place(step, part, replica)];
    }
    [[nodiscard]] std::int64_t of(std::int64_t step, int part, int replica) const {
        return counts_[place(step, part, replica)];
    }
    /// The samples of all batches of a replica.
    [[nodiscard]] std::int64_t of_replica(std::int64_t step, int replica) const {
        std::int64_t samples = 0;
        for (int part = 0; part < parts_; ++part) samples += of(step, part, replica);
        return samples;
    }
    /// weights[replica], unless the weights are empty: rows that are no gradients may count by other numbers.
    [[nodiscard]] std::int64_t of_replica(std::int64_t step, int replica, std::span<const std::int64_t> weights) const {
        return weights.empty() ? of_replica(step, replica) : weights[static_cast<std::size_t>(replica)];
    }
    [[nodiscard]] std::int64_t of_step(std::int64_t step) const {
        std::int64_t samples = 0;
        for (int r = 0; r < replicas_; ++r) samples += of_replica(step, r);
        return samples;
    }
    /// The last of a replica's batches that has samples; -1 if none has.
    [[nodiscard]] int last_part(std::int64_t step, int replica) const {
        int part = parts_ - 1;
        while (part >= 0 && of(step, part, replica) == 0) --part;
        return part;
    }

private:
    [[nodiscard]] std::size_t place(std::int64_t step, int part, int replica) const {
        const std::size_t slot = static_cast<std::size_t>(step) % steps_;
        return (slot * static_cast<std::size_t>(parts_) + static_cast<std::size_t>(part)) *
                   static_cast<std::size_t>(replicas_) +
               static_cast<std::size_t>(replica);
    }

    int replicas_, parts_;
    std::size_t steps_;
    FixedArray<std::int64_t> counts_;
};

/// One row per replica that has samples, and the number of its samples, for one call of a policy. Made once with room
/// for all replicas, so that a step allocates nothing.
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
