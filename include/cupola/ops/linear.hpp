// SPDX-License-Identifier: Apache-2.0
//
// Matrix multiplication with bias, and with a fused ReLU: y[n,o] = bias[o] + sum over i of x[n,i] * weight[o,i].
// Weights are [out, in]. Parameters: 0 the weight, 1 the bias.
#pragma once

#include <cstdint>

#include <cupola/ops/operation.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

struct LinearShape {
    std::int64_t in_features = 0, out_features = 0;
    bool bias = true;
};

namespace ops {

/// Made as `Linear(build, shape)`; specialised by each backend.
template <class Device, class T>
class Linear;

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
