// SPDX-License-Identifier: Apache-2.0
//
// ConcatMean: stacks the replicas' gradients, then takes the mean along the new axis, weighted by samples:
//
//   mean = sum over replicas of (n_i / N) g_i,   in replica order
//
// so the result has the same bits wherever the replicas ran. On `Host` the gradient arenas are the rows of one matrix,
// so the stack is a view and the mean reads each gradient once; on `Cuda` it is computed through the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <cupola/ops/training_step.hpp>
#include <cupola/parallel/averaging.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

/// Computes the columns [begin, end) of the mean on the calling thread.
void mean_of_columns(const GradientRows& gradients, float* to, std::int64_t begin, std::int64_t end);

}  // namespace impl

struct ConcatMean {
    static constexpr std::string_view name = "ConcatMean";

    template <class Context>
        requires AveragesColumns<Context>
    void average(Context& context, const GradientRows& gradients, std::span<float> mean) const {
        average_columns(context, name, gradients, mean, impl::mean_of_columns);
    }
};

[[gnu::noinline]] inline void impl::mean_of_columns(const GradientRows& gradients, float* to, std::int64_t begin,
                                                    std::int64_t end) {
    const auto weight = [&](std::size_t r) {
        return static_cast<float>(static_cast<double>(gradients.samples[r]) /
                                  static_cast<double>(gradients.total_samples));
    };
    ops::sum_weighted_rows(gradients.rows, weight, to, begin, end);
}

}}  // namespace cupola::CUPOLA_ABI
