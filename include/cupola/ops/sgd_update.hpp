// SPDX-License-Identifier: Apache-2.0
//
// One pass of stochastic gradient descent over a span of the arena, PyTorch's formula:
//
//   v = momentum * v + g,    w = w - rate * (decoupled * w + (nesterov ? g + momentum * v : v))
//
// with g of gradient_terms.hpp. Without momentum v is g and is not stored.
#pragma once

#include <cstdint>

#include <cupola/core/abi.hpp>
#include <cupola/ops/gradient_terms.hpp>

namespace cupola::inline CUPOLA_ABI {

struct SgdConstants {
    GradientTerms gradient{};
    float rate = 0;
    float momentum = 0;
    bool nesterov = false;
    /// Decay that is not seen by the momentum.
    float decoupled = 0;
};

namespace ops {

/// `SgdUpdate<Device>::run(context, parameters, gradient, velocity, count, constants)`; velocity may be null without
/// momentum.
template <class Device>
struct SgdUpdate;

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
