// SPDX-License-Identifier: Apache-2.0
//
// LeakyReLU<slope = 0.01>: y = x where x is positive, else slope x, for any extents. Backward reads the output, whose
// sign is that of the input: dx = dy where y is positive, else slope dy. The slope must not be negative.
#pragma once

#include <cupola/layers/graph_operator.hpp>
#include <cupola/layers/pointwise.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

struct LeakyReluFormula {
    float slope;

    CUPOLA_HOST_DEVICE float operator()(float x) const { return math::select(x > 0.0F, x, slope * x); }
    CUPOLA_HOST_DEVICE float gradient_from_output(float y, float dy) const {
        return math::select(y > 0.0F, dy, slope * dy);
    }
};

}  // namespace impl

template <Number slope = 0.01>
struct LeakyReLU : Pointwise<impl::LeakyReluFormula, slope> {
    static constexpr ShapeResult output(const Shape& input) {
        // By its bits, which have the order of the numbers from 0 on: nvcc compares no NaN in a constant expression.
        if (slope.bits >= Number(1e38).bits) return ShapeError{"has a slope that is not a finite number of at least 0"};
        return input;
    }

    static constexpr GraphOperators onnx(const Shape&) { return GraphOperator("LeakyRelu").number("alpha", slope); }
};

}}  // namespace cupola::CUPOLA_ABI
