// SPDX-License-Identifier: Apache-2.0
//
// ReLU6: y = min(max(x, 0), 6), for any extents. Backward reads the output: dx = dy where 0 < y < 6, else 0.
#pragma once

#include <cupola/layers/graph_operator.hpp>
#include <cupola/layers/pointwise.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

struct Relu6Formula {
    CUPOLA_HOST_DEVICE float operator()(float x) const {
        return math::select(x < 0.0F, 0.0F, math::select(x > 6.0F, 6.0F, x));
    }
    CUPOLA_HOST_DEVICE float gradient_from_output(float y, float dy) const {
        return math::select((y > 0.0F) & (y < 6.0F), dy, 0.0F);
    }
};

}  // namespace impl

struct ReLU6 : Pointwise<impl::Relu6Formula> {
    static constexpr GraphOperators onnx(const Shape&) {
        return GraphOperator("Clip").input().constant(0.0).constant(6.0);
    }
};

}}  // namespace cupola::CUPOLA_ABI
