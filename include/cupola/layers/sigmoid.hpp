// SPDX-License-Identifier: Apache-2.0
//
// Sigmoid: y = 1 / (1 + exp(-x)), for any extents. Backward reads the output: dx = dy y (1 - y).
#pragma once

#include <cupola/layers/graph_operator.hpp>
#include <cupola/layers/pointwise.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

struct SigmoidFormula {
    CUPOLA_HOST_DEVICE float operator()(float x) const { return 1.0F / (1.0F + math::exp(-x)); }
    CUPOLA_HOST_DEVICE float gradient_from_output(float y, float dy) const { return dy * y * (1.0F - y); }
};

}  // namespace impl

struct Sigmoid : Pointwise<impl::SigmoidFormula> {
    static constexpr GraphOperators onnx(const Shape&) { return GraphOperator("Sigmoid"); }
};

}}  // namespace cupola::CUPOLA_ABI
