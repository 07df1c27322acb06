// SPDX-License-Identifier: Apache-2.0
//
// HardSigmoid and HardSwish (Howard et al. 2019), for any extents. Backward reads the input.
//
//   HardSigmoid   y = min(max(x + 3, 0), 6) / 6      dx = dy / 6 where -3 < x < 3, else 0
//   HardSwish     y = x HardSigmoid(x)               dx = 0 where x <= -3, dy (x / 3 + 1 / 2) where x < 3, else dy
//
// HardSwish makes NaN of minus infinity, as in PyTorch.
#pragma once

#include <cupola/layers/graph_operator.hpp>
#include <cupola/layers/pointwise.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

struct HardSigmoidFormula {
    CUPOLA_HOST_DEVICE float operator()(float x) const {
        const float y = (x + 3.0F) / 6.0F;
        return math::select(y < 0.0F, 0.0F, math::select(y > 1.0F, 1.0F, y));
    }
    CUPOLA_HOST_DEVICE float gradient_from_input(float x, float dy) const {
        return math::select((x > -3.0F) & (x < 3.0F), dy / 6.0F, 0.0F);
    }
};

struct HardSwishFormula {
    CUPOLA_HOST_DEVICE float operator()(float x) const { return x * HardSigmoidFormula{}(x); }
    CUPOLA_HOST_DEVICE float gradient_from_input(float x, float dy) const {
        return math::select(x <= -3.0F, 0.0F, math::select(x < 3.0F, dy * (x / 3.0F + 0.5F), dy));
    }
};

}  // namespace impl

struct HardSigmoid : Pointwise<impl::HardSigmoidFormula> {
    static constexpr GraphOperators onnx(const Shape&) {
        return GraphOperator("HardSigmoid").number("alpha", 1.0 / 6).number("beta", 0.5);
    }
};

struct HardSwish : Pointwise<impl::HardSwishFormula> {
    static constexpr GraphOperators onnx(const Shape&) { return GraphOperator("HardSwish"); }
};

}}  // namespace cupola::CUPOLA_ABI
