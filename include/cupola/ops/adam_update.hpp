// SPDX-License-Identifier: Apache-2.0
//
// One pass of Adam (Kingma, Ba 2014) over a span of the arena, PyTorch's formula:
//
//   m = m + (1 - beta1) * (g - m),    v = v + (1 - beta2) * (g^2 - v)
//   w = w - decoupled * w,    w = w - step_size * m / (sqrt(v) * root_scale + epsilon)
//
// with g of gradient_terms.hpp, `squarable` there, step_size = rate / (1 - beta1^t) and root_scale =
// (1 - beta2^t)^(-1/2) at step t = 1, 2, ... No finite gradient makes a NaN.
#pragma once

#include <cstdint>

#include <cupola/core/abi.hpp>
#include <cupola/ops/gradient_terms.hpp>

namespace cupola::inline CUPOLA_ABI {

struct AdamConstants {
    GradientTerms gradient{};
    float step_size = 0;
    float root_scale = 1;
    /// 1 - beta1 and 1 - beta2, rounded once.
    float first_fraction = 0;
    float second_fraction = 0;
    float epsilon = 0;
    /// Rate times the decay that the averages do not see.
    float decoupled = 0;
};

namespace ops {

/// `AdamUpdate<Device>::run(context, w, gradient, first_moment, second_moment, count, constants)`.
template <class Device>
struct AdamUpdate;

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
