// SPDX-License-Identifier: Apache-2.0
//
// GELU<options...> (Hendrycks, Gimpel 2016), for any extents. Backward reads the input. Minus infinity becomes NaN, as
// in PyTorch.
//
//   GELU<>                     y = x / 2 (1 + erf(x / sqrt(2)))
//   GELU<tanh_approximation>   y = x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
#pragma once

#include <type_traits>

#include <cupola/layers/graph_operator.hpp>
#include <cupola/layers/options.hpp>
#include <cupola/layers/pointwise.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

struct GeluFormula {
    CUPOLA_HOST_DEVICE float operator()(float x) const { return x * below(x); }
    CUPOLA_HOST_DEVICE float gradient_from_input(float x, float dy) const {
        constexpr float density_at_0 = 0.398942280F;
        return dy * (below(x) + x * (density_at_0 * math::exp(-0.5F * x * x)));
    }

private:
    /// The probability that a standard normal number is below x.
    [[gnu::always_inline]] CUPOLA_HOST_DEVICE static float below(float x) {
        constexpr float root_of_half = 0.707106781F;
        return 0.5F + 0.5F * math::erf(root_of_half * x);
    }
};

/// With (1 + tanh(u)) / 2 = 1 / (1 + exp(-2 u)).
struct GeluTanhFormula {
    CUPOLA_HOST_DEVICE float operator()(float x) const { return x / (1.0F + math::exp(-exponent(x))); }
    CUPOLA_HOST_DEVICE float gradient_from_input(float x, float dy) const {
        // Farther out the slope is 0 or 1, and the square of a large x is not finite.
        x = math::select(x < -10.0F, -10.0F, math::select(x > 10.0F, 10.0F, x));
        const float e = math::exp(-exponent(x)), s = 1.0F / (1.0F + e);
        return dy * (s + x * scale * (1.0F + 3.0F * cubic * x * x) * (e * s) * s);
    }

private:
    static constexpr float scale = 1.595769122F;  // 2 sqrt(2 / pi)
    static constexpr float cubic = 0.044715F;

    CUPOLA_HOST_DEVICE static float exponent(float x) { return scale * x * (1.0F + cubic * x * x); }
};

template <auto... options>
using GeluFormulaOf =
    std::conditional_t<option_or(TanhApproximationOption{}, options...).value, GeluTanhFormula, GeluFormula>;

}  // namespace impl

template <auto... options>
struct GELU : Pointwise<impl::GeluFormulaOf<options...>> {
    static constexpr bool options_known =
        (impl::one_of<std::remove_cvref_t<decltype(options)>, TanhApproximationOption> && ...);

    static constexpr LayerDescription description =
        LayerDescription("GELU").add_if(impl::option_or(TanhApproximationOption{}, options...).value, ", by tanh");

    static constexpr ShapeResult output(const Shape& input) {
        if (!options_known) return ShapeError{"accepts only the option tanh_approximation"};
        if (!impl::given_once(options...)) return ShapeError{"is given an option twice"};
        return input;
    }

    static constexpr GraphOperators onnx(const Shape&) {
        if (impl::option_or(TanhApproximationOption{}, options...).value) {
            constexpr double scale = 1.5957691216057308, cubic = 0.044715;  // 2 sqrt(2 / pi)
            return {GraphOperator("Mul").input().input(),
                    GraphOperator("Mul").previous().constant(scale * cubic),
                    GraphOperator("Add").previous().constant(scale),
                    GraphOperator("Mul").previous().input(),
                    GraphOperator("Sigmoid"),
                    GraphOperator("Mul").previous().input()};
        }
        constexpr double root_of_half = 0.70710678118654752;
        return {GraphOperator("Mul").input().constant(root_of_half), GraphOperator("Erf"),
                GraphOperator("Add").previous().constant(1.0), GraphOperator("Mul").previous().input(),
                GraphOperator("Mul").previous().constant(0.5)};
    }
};

}}  // namespace cupola::CUPOLA_ABI
