// SPDX-License-Identifier: Apache-2.0
//
// Folds a batch normalisation with running statistics into the weights and the bias of the operation before it, whose
// weights are [channels, ...]. With s[c] = scale[c] / sqrt(variance[c] + epsilon):
//
//   weight'[c, ...] = s[c] * weight[c, ...],    bias'[c] = shift[c] + s[c] * (bias[c] - mean[c])
#pragma once

#include <cstdint>

#include <cupola/core/abi.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

struct FoldedBatchNorm {
    /// The parameters of the operation before; `bias` is null where it has none.
    const float *weight = nullptr, *bias = nullptr;
    /// The parameters and statistics of the normalisation.
    const float *scale = nullptr, *shift = nullptr, *mean = nullptr, *variance = nullptr;
    double epsilon = 0;
    std::int64_t channels = 0, weights_per_channel = 0;
};

namespace ops {

/// `FoldBatchNorm<Device>::run(context, norm, weight, bias)` writes the folded weight and bias; specialised by each
/// backend.
template <class Device>
struct FoldBatchNorm;

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
