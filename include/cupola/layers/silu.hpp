// SPDX-License-Identifier: Apache-2.0
//
// SiLU, also called swish: y = x s with s = 1 / (1 + exp(-x)), for any extents. Backward reads the input:
// dx = dy s (1 + x (1 - s)). Minus infinity becomes NaN, as in PyTorch.
#pragma once

#include <cupola/layers/graph_operator.hpp>
#include <cupola/layers/pointwise.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

struct SiluFormula {
    CUPOLA_HOST_DEVICE float operator()(float x) const { return x / (1.0F + math::exp(-x)); }
    CUPOLA_HOST_DEVICE float gradient_from_input(float x, float dy) const {
        const float s = 1.0F / (1.0F + math::exp(-x));
        return dy * s * (1.0F + x * (1.0F - s));
    }
};

}  // namespace impl

struct SiLU : Pointwise<impl::SiluFormula> {
    static constexpr GraphOperators onnx(const Shape&) {
        return {GraphOperator("Sigmoid"), GraphOperator("Mul").input().previous()};
    }
};

}}  // namespace cupola::CUPOLA_ABI
