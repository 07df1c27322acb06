// SPDX-License-Identifier: Apache-2.0
//
// Folds a batch normalisation into weights on `Cuda`: one thread per weight, once per set of parameters.
#pragma once

#include <cmath>
#include <cstdint>

#include <cupola/device/cuda.hpp>
#include <cupola/ops/cuda/impl/launch.cuh>
#include <cupola/ops/fold_batch_norm.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

/// Called per weight, and after them per channel's bias.
struct FoldNorm {
    FoldedBatchNorm n;
    float *weight, *bias;

    CUPOLA_HOST_DEVICE void operator()(std::int64_t i) const {
        const std::int64_t weights = n.channels * n.weights_per_channel;
        if (i < weights) {
            weight[i] = static_cast<float>(factor(i / n.weights_per_channel)) * n.weight[i];
            return;
        }
        const std::int64_t c = i - weights;
        const double before = n.bias == nullptr ? 0.0 : static_cast<double>(n.bias[c]);
        bias[c] =
            static_cast<float>(static_cast<double>(n.shift[c]) + factor(c) * (before - static_cast<double>(n.mean[c])));
    }

private:
    CUPOLA_HOST_DEVICE double factor(std::int64_t c) const {
        return static_cast<double>(n.scale[c]) / std::sqrt(static_cast<double>(n.variance[c]) + n.epsilon);
    }
};

}  // namespace impl

namespace ops {

template <>
struct FoldBatchNorm<Cuda> {
    static void run(const CudaContext& context, const FoldedBatchNorm& n, float* weight, float* bias) {
        impl::launch(context, n.channels * (n.weights_per_channel + 1), impl::FoldNorm{n, weight, bias});
    }
};

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
