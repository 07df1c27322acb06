// SPDX-License-Identifier: Apache-2.0
//
// ELU<alpha = 1> (Clevert et al. 2016) and SELU (Klambauer et al. 2017), for any extents. Backward reads the input.
//
//   ELU    y = x where x is positive, else alpha (exp(x) - 1)
//   SELU   y = s ELU<a>(x), with s = 1.0507... and a = 1.6732...
#pragma once

#include <cupola/layers/graph_operator.hpp>
#include <cupola/layers/pointwise.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

struct EluFormula {
    /// The factors of x above 0, and of exp(x) - 1 elsewhere.
    float above, below;

    CUPOLA_HOST_DEVICE float operator()(float x) const {
        return math::select(x > 0.0F, above * x, below * math::expm1(x));
    }
    CUPOLA_HOST_DEVICE float gradient_from_input(float x, float dy) const {
        return dy * math::select(x > 0.0F, above, below * math::exp(x));
    }
};

inline constexpr double selu_scale = 1.0507009873554804934193349852946;
inline constexpr double selu_alpha = 1.6732632423543772848170429916717;

}  // namespace impl

template <Number alpha = 1.0>
struct ELU : Pointwise<impl::EluFormula, 1.0, alpha> {
    static constexpr GraphOperators onnx(const Shape&) { return GraphOperator("Elu").number("alpha", alpha); }
};

struct SELU : Pointwise<impl::EluFormula, impl::selu_scale, impl::selu_scale * impl::selu_alpha> {
    static constexpr GraphOperators onnx(const Shape&) {
        return GraphOperator("Selu").number("alpha", impl::selu_alpha).number("gamma", impl::selu_scale);
    }
};

}}  // namespace cupola::CUPOLA_ABI
