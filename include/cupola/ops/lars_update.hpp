// SPDX-License-Identifier: Apache-2.0
//
// LARS (You, Gitman, Ginsburg 2017, algorithm 1) over one parameter:
//
//   v = momentum * v + rate * trust * (g + weight_decay * w),    w = w - v
//   trust = coefficient * norm(w) / (norm(g) + weight_decay * norm(w)), or 1 where norm(w) or norm(g) is 0
//
// with g of gradient_terms.hpp. The norms are over the parameter, in double and in one order. The rate is inside v, as
// in the paper.
#pragma once

#include <cstdint>

#include <cupola/core/abi.hpp>
#include <cupola/ops/gradient_terms.hpp>

namespace cupola::inline CUPOLA_ABI {

struct LarsConstants {
    GradientTerms gradient{};
    float rate = 0;
    float momentum = 0;
    float weight_decay = 0;
    float coefficient = 0;
    /// Otherwise the trust is 1.
    bool adapt = true;
};

namespace ops {

/// `LarsUpdate<Device>::run(context, w, gradient, velocity, count, constants)`.
template <class Device>
struct LarsUpdate;

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
