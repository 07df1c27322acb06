// SPDX-License-Identifier: Apache-2.0
//
// The sum of the squares of a span of the gradient, of the terms that clipping sees:
// sum of ((gradient + l2 * w) * scale)^2. In double and in one order, so that every device has the same bits.
#pragma once

#include <cstdint>

#include <cupola/core/abi.hpp>
#include <cupola/ops/gradient_terms.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace ops {

/// `GradientNorm<Device>::sum_of_squares(context, w, gradient, count, terms)`, a double.
template <class Device>
struct GradientNorm;

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
