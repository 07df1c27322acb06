// SPDX-License-Identifier: Apache-2.0
//
// The formula of the moving averages of parameters (optim/moving_average.hpp). A device may compute it in the kernel
// that updates the parameters.
#pragma once

#include <cupola/core/abi.hpp>
#include <cupola/ops/gradient_terms.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// `w` is in the place of the gradient.
struct MovingAverageFormula {
    using Gradient = UnchangedGradient;
    /// 1 - decay, rounded once.
    float rate;

    CUPOLA_HOST_DEVICE void operator()(float& average, float w) const { average -= rate * (average - w); }
};

}}}  // namespace cupola::CUPOLA_ABI::impl
