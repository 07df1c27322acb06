// SPDX-License-Identifier: Apache-2.0
//
// LAMB (You et al. 2019, algorithm 2) over one parameter:
//
//   m = m + (1 - beta1) * (g - m),    v = v + (1 - beta2) * (g^2 - v)
//   u = m * first_scale / (sqrt(v) * root_scale + epsilon) + weight_decay * w
//   w = w - rate * trust * u,    trust = norm(w) / norm(u), or 1 where either norm is 0
//
// with g of gradient_terms.hpp, `squarable` there, first_scale = 1 / (1 - beta1^t) and root_scale =
// (1 - beta2^t)^(-1/2) at step t = 1, 2, ... No finite gradient makes a NaN. The norms are over the parameter, in double
// and in one order. u is not stored: the second pass computes it again.
#pragma once

#include <cstdint>

#include <cupola/core/abi.hpp>
#include <cupola/ops/gradient_terms.hpp>

namespace cupola::inline CUPOLA_ABI {

struct LambConstants {
    GradientTerms gradient{};
    float rate = 0;
    float first_scale = 1;
    float root_scale = 1;
    /// 1 - beta1 and 1 - beta2, rounded once.
    float first_fraction = 0;
    float second_fraction = 0;
    float epsilon = 0;
    float weight_decay = 0;
    /// Otherwise the trust is 1.
    bool adapt = true;
};

namespace ops {

/// `LambUpdate<Device>::run(context, w, gradient, first_moment, second_moment, count, constants)`.
template <class Device>
struct LambUpdate;

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
