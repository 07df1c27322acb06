// SPDX-License-Identifier: Apache-2.0
//
// Huber<delta>: the mean over the elements of d^2 / 2 where d = |x - t| is at most delta, and of delta (d - delta / 2)
// beyond, for an output x of any extents and a target t of the same (Huber 1964; PyTorch's HuberLoss).
#pragma once

#include <string_view>

#include <cupola/core/finite.hpp>
#include <cupola/loss/elementwise_loss.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

struct HuberFormula {
    float delta;

    /// With m = min(d, delta), both cases are m (d - m / 2).
    CUPOLA_HOST_DEVICE float operator()(float x, float t) const {
        const float d = math::abs(x - t), m = math::select(d > delta, delta, d);
        return m * (d - 0.5F * m);
    }
    CUPOLA_HOST_DEVICE float derivative(float x, float t) const {
        const float d = x - t;
        return math::select(d > delta, delta, math::select(d < -delta, -delta, d));
    }
};

}  // namespace impl

template <Number delta = 1>
struct Huber : ElementwiseLoss<impl::HuberFormula, delta> {
    static constexpr std::string_view name = "huber";

    static constexpr CompileTimeMessage diagnostic(const Shape&) {
        CompileTimeMessage message;
        if (!delta.is_finite_float() || static_cast<double>(delta) <= 0.0)
            message << "the delta of Huber must be positive and finite";
        return message;
    }
};

}}  // namespace cupola::CUPOLA_ABI
