// SPDX-License-Identifier: Apache-2.0
//
// Tanh: y = tanh(x), for any extents. Backward reads the output: dx = dy (1 - y^2).
#pragma once

#include <cupola/layers/graph_operator.hpp>
#include <cupola/layers/pointwise.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

struct TanhFormula {
    CUPOLA_HOST_DEVICE float operator()(float x) const { return math::tanh(x); }
    CUPOLA_HOST_DEVICE float gradient_from_output(float y, float dy) const { return dy * (1.0F - y * y); }
};

}  // namespace impl

struct Tanh : Pointwise<impl::TanhFormula> {
    static constexpr GraphOperators onnx(const Shape&) { return GraphOperator("Tanh"); }
};

}}  // namespace cupola::CUPOLA_ABI
