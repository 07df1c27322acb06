// SPDX-License-Identifier: Apache-2.0
//
// The sum of squares over a span of the gradient, with the terms that clipping includes: sum of ((gradient + l2 * w) *
// scale)^2. It is computed in double and in a fixed order, so that every device has the same bits.
#pragma once

#include <cstdint>

#include <cupola/core/abi.hpp>
#include <cupola/ops/gradient_terms.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace ops {

/// `GradientNorm<Device>::sum_of_squares(context, w, gradient, count, terms)`, a double.
template <class Device>
struct GradientNorm;

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
