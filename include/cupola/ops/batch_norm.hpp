// SPDX-License-Identifier: Apache-2.0
//
// Batch normalisation over all elements of a channel (Ioffe, Szegedy 2015), with a fused ReLU or ReLU6:
//
//   y = (x - mean[c]) / sqrt(variance[c] + epsilon) * weight[c] + bias[c]
//
// In training, mean and (biased) variance are the batch's, and backward is the exact gradient through both; otherwise
// they are the running ones. The operation reads the running statistics and never changes them: where the caller passes
// memory for statistics, it writes the batch's there, and the owner of the running statistics updates them. Parameters:
// 0 the weight, 1 the bias. Buffers: 0 the mean, 1 the variance.
//
// The operation can be split after its reductions over the batch (ReducesStatistics), so that replicas normalise with
// the statistics of all their batches. The sums of a replica, with C channels, and the rule that merges them:
//
//   forward   [count, mean x C, sum of (x - mean)^2 x C]     the parallel update of Chan, Golub and LeVeque (1979)
//   backward  [count, sum of dy x C, sum of dy xhat x C]     the mean of the sums, weighted with the counts:
//                                                            each replica's gradient is that of the mean over its own
//                                                            samples
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <cupola/core/error.hpp>
#include <cupola/ops/operation.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

struct BatchNormShape {
    std::int64_t channels = 0;
    double epsilon = 1e-5;
};

/// The sums that replicas all-reduce.
[[nodiscard]] constexpr std::int64_t batch_norm_sums(std::int64_t channels) { return 1 + 2 * channels; }

/// Merges counts, means and sums of squared deviations, in the order of `parts`. A part that is null, or whose count is
/// 0, is skipped. `merged` must not be one of the parts. Throws InvalidArgument if all parts together count one value.
constexpr void merge_moments(std::span<const double* const> parts, std::int64_t size, double* merged) {
    const std::int64_t channels = (size - 1) / 2;
    std::fill(merged, merged + size, 0.0);
    double *const mean = merged + 1, *const squares = mean + channels;
    for (const double* part : parts) {
        if (part == nullptr || part[0] == 0) continue;
        const double count = merged[0] + part[0], fraction = part[0] / count;
        for (std::int64_t c = 0; c < channels; ++c) {
            const double delta = part[1 + c] - mean[c];
            mean[c] += delta * fraction;
            squares[c] += part[1 + channels + c] + delta * delta * merged[0] * fraction;
        }
        merged[0] = count;
    }
    if (merged[0] == 1)
        impl::throw_joined<InvalidArgument>(
            {"a batch normalisation has one value per channel in the batches of all "
             "replicas together, whose mean is that value; a training needs at least 2 "
             "values"});
}

/// Merges the sums of backward in the same way.
constexpr void merge_gradient_sums(std::span<const double* const> parts, std::int64_t size, double* merged) {
    std::fill(merged, merged + size, 0.0);
    for (const double* part : parts) {
        if (part != nullptr) merged[0] += part[0];
    }
    for (const double* part : parts) {
        if (part == nullptr || part[0] == 0) continue;
        const double fraction = part[0] / merged[0];
        for (std::int64_t i = 1; i < size; ++i) merged[i] += fraction * part[i];
    }
}

namespace ops {

/// Made as `BatchNorm(build, shape)`; specialised by each backend.
template <class Device, class T>
class BatchNorm;

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
