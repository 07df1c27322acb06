// SPDX-License-Identifier: Apache-2.0
//
// Folds a batch normalisation into weights on `Host`: once per set of parameters, so the code is simple rather than
// fast.
#pragma once

#include <cmath>
#include <cstdint>

#include <cupola/device/host.hpp>
#include <cupola/ops/fold_batch_norm.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace ops {

template <>
struct FoldBatchNorm<Host> {
    [[gnu::cold]] static void run(const HostContext&, const FoldedBatchNorm& n, float* weight, float* bias) {
        for (std::int64_t c = 0; c < n.channels; ++c) {
            const double factor =
                static_cast<double>(n.scale[c]) / std::sqrt(static_cast<double>(n.variance[c]) + n.epsilon);
            const double before = n.bias == nullptr ? 0.0 : static_cast<double>(n.bias[c]);
            bias[c] = static_cast<float>(static_cast<double>(n.shift[c]) +
                                         factor * (before - static_cast<double>(n.mean[c])));
            const auto by = static_cast<float>(factor);
            for (std::int64_t i = c * n.weights_per_channel; i < (c + 1) * n.weights_per_channel; ++i)
                weight[i] = by * n.weight[i];
        }
    }
};

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
