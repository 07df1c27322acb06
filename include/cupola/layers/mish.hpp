// SPDX-License-Identifier: Apache-2.0
//
// Mish (Misra 2019): y = x t with t = tanh(log(1 + exp(x))), for any extents. Backward reads the input:
// dx = dy (t + x (1 - t^2) s) with s = 1 / (1 + exp(-x)). Minus infinity becomes NaN, as in PyTorch.
#pragma once

#include <cupola/layers/graph_operator.hpp>
#include <cupola/layers/pointwise.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

/// With e = exp(x) and n = e (e + 2): t = n / (n + 2) and (1 - t^2) s = 4 e (e + 1) / (n + 2)^2, without a difference.
struct MishFormula {
    CUPOLA_HOST_DEVICE float operator()(float x) const {
        const float e = math::exp(bounded(x)), n = e * (e + 2.0F);
        return x * (n / (n + 2.0F));
    }
    CUPOLA_HOST_DEVICE float gradient_from_input(float x, float dy) const {
        x = bounded(x);
        const float e = math::exp(x), n = e * (e + 2.0F), part = 1.0F / (n + 2.0F);
        return dy * (n * part + x * (4.0F * e * (e + 1.0F) * part) * part);
    }

private:
    /// Above 20 t is 1 in float, and the square of exp(x) may not be finite.
    CUPOLA_HOST_DEVICE static float bounded(float x) { return math::select(x > 20.0F, 20.0F, x); }
};

}  // namespace impl

struct Mish : Pointwise<impl::MishFormula> {
    static constexpr GraphOperators onnx(const Shape&) {
        return {GraphOperator("Softplus"), GraphOperator("Tanh"), GraphOperator("Mul").input().previous()};
    }
};

}}  // namespace cupola::CUPOLA_ABI
