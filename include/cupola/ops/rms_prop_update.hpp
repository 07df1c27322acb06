// SPDX-License-Identifier: Apache-2.0
//
// One pass of RMSProp over a span of the arena, TensorFlow's formula, with epsilon inside the root:
//
//   s = s + (1 - decay) * (g^2 - s),    v = momentum * v + rate * g / sqrt(s + epsilon),    w = w - v
//
// with g of gradient_terms.hpp, `squarable` there: no finite gradient makes a NaN. Without momentum v is not stored.
#pragma once

#include <cstdint>

#include <cupola/core/abi.hpp>
#include <cupola/ops/gradient_terms.hpp>

namespace cupola::inline CUPOLA_ABI {

struct RmsPropConstants {
    GradientTerms gradient{};
    float rate = 0;
    /// 1 - decay, rounded once.
    float fraction = 0;
    float momentum = 0;
    float epsilon = 0;
};

namespace ops {

/// `RmsPropUpdate<Device>::run(context, w, gradient, mean_square, velocity, count, constants)`; velocity may be null
/// without momentum.
template <class Device>
struct RmsPropUpdate;

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
