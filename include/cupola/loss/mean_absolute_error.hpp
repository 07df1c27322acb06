// SPDX-License-Identifier: Apache-2.0
//
// MeanAbsoluteError: the mean over the elements of |x - t|, for an output x of any extents and a target t of the same.
// The derivative is 0 where they are equal.
#pragma once

#include <string_view>

#include <cupola/loss/elementwise_loss.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

struct AbsoluteErrorFormula {
    CUPOLA_HOST_DEVICE float operator()(float x, float t) const { return math::abs(x - t); }
    CUPOLA_HOST_DEVICE float derivative(float x, float t) const {
        const float d = x - t;
        return math::select(d > 0.0F, 1.0F, math::select(d < 0.0F, -1.0F, d));  // d is 0 or NaN
    }
};

}  // namespace impl

struct MeanAbsoluteError : ElementwiseLoss<impl::AbsoluteErrorFormula> {
    static constexpr std::string_view name = "mean_absolute_error";
};

}}  // namespace cupola::CUPOLA_ABI
