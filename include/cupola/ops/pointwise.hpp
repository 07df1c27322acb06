// SPDX-License-Identifier: Apache-2.0
//
// An operation that maps each element separately, y = f(x): an activation that is not fused. Its formula is the same
// for all devices and uses functions that compilers can vectorise (ops/math.hpp):
//
//   struct Softsign {
//       CUPOLA_HOST_DEVICE float operator()(float x) const { return x / (1.0F + math::abs(x)); }
//       CUPOLA_HOST_DEVICE float gradient_from_output(float y, float dy) const {
//           const float rest = 1.0F - math::abs(y);
//           return dy * rest * rest;
//       }
//   };
//
// Backward reads the output where the formula has gradient_from_output(y, dy), else the input, with
// gradient_from_input(x, dy).
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include <cupola/ops/elementwise.hpp>
#include <cupola/ops/operation.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

template <class Formula>
concept HasGradientFromOutput = requires(const Formula& f, float y, float dy) {
    { f.gradient_from_output(y, dy) } -> std::same_as<float>;
};
template <class Formula>
concept HasGradientFromInput = requires(const Formula& f, float x, float dy) {
    { f.gradient_from_input(x, dy) } -> std::same_as<float>;
};
/// The formula of a pointwise operation. A template for any element type receives elements, other formulas receive
/// floats.
template <class Formula>
concept PointwiseFormula = requires(const Formula& f, float x) {
    { f(x) } -> std::same_as<float>;
} && (HasGradientFromOutput<Formula> || HasGradientFromInput<Formula>);

namespace impl {

// Always inlined: g++ may keep a long formula that is called by another function as a call in the loop.

template <class Formula>
struct ForwardOf {
    Formula formula;

    template <class T>
        requires std::same_as<std::invoke_result_t<const Formula&, T>, T>
    [[gnu::always_inline]] CUPOLA_HOST_DEVICE void operator()(T& y, const T& x) const {
        y = formula(x);
    }
};

template <class Formula>
struct GradientFromOutput {
    Formula formula;

    template <class T>
        requires requires(const Formula& f, T v) {
            { f.gradient_from_output(v, v) } -> std::same_as<T>;
        }
    [[gnu::always_inline]] CUPOLA_HOST_DEVICE void operator()(T& dx, const T& y, const T& dy) const {
        dx = formula.gradient_from_output(y, dy);
    }
};

template <class Formula>
struct GradientFromInput {
    Formula formula;

    template <class T>
        requires requires(const Formula& f, T v) {
            { f.gradient_from_input(v, v) } -> std::same_as<T>;
        }
    [[gnu::always_inline]] CUPOLA_HOST_DEVICE void operator()(T& dx, const T& x, const T& dy) const {
        dx = formula.gradient_from_input(x, dy);
    }
};

}  // namespace impl

namespace ops {

template <class Device, class T, PointwiseFormula Formula>
    requires ComputesElements<Device, T>
class Pointwise {
public:
    explicit Pointwise(const BuildContext<Device, T>& build) : Pointwise(build, Formula{}) {}
    Pointwise(const BuildContext<Device, T>& build, const Formula& formula)
        : formula_(formula), count_(build.batch * build.output.size()) {}

    void forward(const ForwardArgs<Device, T>& args) const {
        for_each_element(args.context, count_, impl::ForwardOf<Formula>{formula_}, args.output, args.input);
    }
    void backward(const BackwardArgs<Device, T>& args) const {
        if (args.input_gradient == nullptr) return;
        const T* const dy = args.output_gradient;
        if constexpr (HasGradientFromOutput<Formula>) {
            for_each_element(args.context, count_, impl::GradientFromOutput<Formula>{formula_}, args.input_gradient,
                             static_cast<const T*>(args.output), dy);
        } else {
            for_each_element(args.context, count_, impl::GradientFromInput<Formula>{formula_}, args.input_gradient,
                             args.input, dy);
        }
    }

private:
    Formula formula_;
    std::int64_t count_;
};

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
