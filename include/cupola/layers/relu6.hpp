// SPDX-License-Identifier: Apache-2.0
//
// ReLU6: y = min(max(x, 0), 6), for any extents. After `Conv2d` or `BatchNorm2d` it is computed inside that layer's
// operation. Backward reads the output: dx = dy where 0 < y < 6, else 0.
#pragma once

#include <cupola/layers/graph_operator.hpp>
#include <cupola/layers/pointwise.hpp>
#include <cupola/ops/activation.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

struct ReLU6 : Pointwise<impl::Relu6Formula> {
    static constexpr Activation activation = Activation::relu6;

    static constexpr GraphOperators onnx(const Shape&) {
        return GraphOperator("Clip").input().constant(0.0).constant(6.0);
    }
};

}}  // namespace cupola::CUPOLA_ABI
