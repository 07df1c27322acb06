// SPDX-License-Identifier: Apache-2.0
//
// RowsOfSum: the gradient rows of some replicas, and the weight of each in the sum over all samples.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <cupola/core/fixed_array.hpp>
#include <cupola/core/span_of.hpp>
#include <cupola/parallel/agreement.hpp>
#include <cupola/parallel/replicas/sample_counts.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The rows whose weighted sum is the sum over all samples, before it is divided by their number. Made once with room
/// for all replicas, so that a step allocates nothing.
class RowsOfSum {
public:
    RowsOfSum() = default;
    explicit RowsOfSum(int replicas)
        : rows_(static_cast<std::size_t>(replicas)), weights_(static_cast<std::size_t>(replicas)) {}

    /// The rows of the replicas [first, last) that have samples in the step, from column `begin` on. `weights`, unless
    /// they are empty, replace the numbers of samples. `replicas` is a Replicas.
    template <class Replicas>
    void collect(const Replicas& replicas, int first, int last, const SampleCounts& samples, std::int64_t step,
                 std::int64_t begin = 0, std::span<const std::int64_t> weights = {}) {
        count_ = 0;
        samples_ = 0;
        // Each of several batches was weighted as a part of full batches. Where the passes take no buckets, they
        // complete the rows.
        const bool incomplete =
            weights.empty() && replicas.settings().takes_buckets && replicas.settings().gradient_accumulation_steps > 1;
        const std::int64_t full = replicas.settings().batch_size * replicas.settings().gradient_accumulation_steps;
        for (int r = first; r < last; ++r) {
            const std::int64_t here = samples.of_replica(step, r, weights);
            if (here == 0) continue;
            rows_[count_] = replicas.gradients().row(r) + begin;
            weights_[count_] = static_cast<float>(incomplete ? full : here);
            ++count_;
            samples_ += here;
        }
    }
    [[nodiscard]] WeightedGradients gradients() const {
        return {span_of<const float* const>(rows_.data(), count_), {weights_.data(), count_}};
    }
    /// The samples of these rows together.
    [[nodiscard]] std::int64_t samples() const { return samples_; }

private:
    FixedArray<const float*> rows_;
    FixedArray<float> weights_;
    std::size_t count_ = 0;
    std::int64_t samples_ = 0;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
