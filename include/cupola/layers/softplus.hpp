// SPDX-License-Identifier: Apache-2.0
//
// Softplus<beta = 1, threshold = 20>: y = log(1 + exp(beta x)) / beta, and y = x where beta x is above the threshold,
// for any extents. Backward reads the input: dx = dy / (1 + exp(-beta x)), and dy above the threshold. beta must be
// above 0.
#pragma once

#include <cupola/layers/graph_operator.hpp>
#include <cupola/layers/pointwise.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

struct SoftplusFormula {
    float beta, threshold;

    CUPOLA_HOST_DEVICE float operator()(float x) const {
        const float z = beta * x;
        const float soft = math::select(z > 0.0F, z, 0.0F) + math::log1p(math::exp(-math::abs(z)));
        return math::select(z > threshold, x, soft / beta);
    }
    CUPOLA_HOST_DEVICE float gradient_from_input(float x, float dy) const {
        const float z = beta * x;
        return math::select(z > threshold, dy, dy / (1.0F + math::exp(-z)));
    }
};

}  // namespace impl

template <Number beta = 1.0, Number threshold = 20.0>
struct Softplus : Pointwise<impl::SoftplusFormula, beta, threshold> {
    static constexpr ShapeResult output(const Shape& input) {
        // By its bits, which have the order of the numbers from 0 on: nvcc compares no NaN in a constant expression.
        if (beta.bits < Number(1e-37).bits || beta.bits > Number(1e37).bits)
            return ShapeError{"has a beta that is not between 1e-37 and 1e37"};
        return Pointwise<impl::SoftplusFormula, beta, threshold>::output(input);
    }

    static constexpr GraphOperators onnx(const Shape&) {
        return {GraphOperator("Mul").input().constant(static_cast<double>(beta)), GraphOperator("Softplus"),
                GraphOperator("Div").previous().constant(static_cast<double>(beta)),
                GraphOperator("Greater").result(0).constant(static_cast<double>(threshold)),
                GraphOperator("Where").previous().input().result(2)};
    }
};

}}  // namespace cupola::CUPOLA_ABI
