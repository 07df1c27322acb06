// SPDX-License-Identifier: Apache-2.0
//
// MeanSquaredError: the mean over the elements of (x - t)^2, for an output x of any extents and a target t of the same.
#pragma once

#include <string_view>

#include <cupola/loss/elementwise_loss.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

struct SquaredErrorFormula {
    CUPOLA_HOST_DEVICE float operator()(float x, float t) const { return (x - t) * (x - t); }
    CUPOLA_HOST_DEVICE float derivative(float x, float t) const { return 2.0F * (x - t); }
};

}  // namespace impl

struct MeanSquaredError : ElementwiseLoss<impl::SquaredErrorFormula> {
    static constexpr std::string_view name = "mean_squared_error";
};

}}  // namespace cupola::CUPOLA_ABI
