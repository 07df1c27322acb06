// SPDX-License-Identifier: Apache-2.0
//
// ReLU, y = max(x, 0), and ReLU6, y = min(max(x, 0), 6), as separate operations and as what other operations apply to
// their outputs and to the gradients of these. Backward reads the output: dx = dy where y > 0, and of ReLU6 where also
// y < 6; else 0.
#pragma once

#include <cstdint>
#include <limits>

#include <cupola/ops/math.hpp>
#include <cupola/ops/pointwise.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

struct ReluFormula {
    /// A NaN is kept: it does not compare less than 0.
    template <class T>
    [[nodiscard]] CUPOLA_HOST_DEVICE T operator()(T x) const {
        return value_if(!is_negative(x), x);
    }
    template <class T>
    [[nodiscard]] CUPOLA_HOST_DEVICE T gradient_from_output(T y, T dy) const {
        return value_if(is_positive(y), dy);
    }
};

struct Relu6Formula {
    CUPOLA_HOST_DEVICE float operator()(float x) const {
        return math::select(x < 0.0F, 0.0F, math::select(x > 6.0F, 6.0F, x));
    }
    CUPOLA_HOST_DEVICE float gradient_from_output(float y, float dy) const {
        return math::select((y > 0.0F) & (y < 6.0F), dy, 0.0F);
    }
};

/// An activation that an operation applies to its output: none, or y = min(max(x, 0), most), whose derivative is 1 for
/// x > 0 up to `last`, else 0. ReLU has no limit.
struct FusedActivation {
    FusedActivation(Activation activation)  // NOLINT: the activation of a BuildContext
        : applies(activation != Activation::none), limited(activation == Activation::relu6) {
        if (limited) {
            most = 6.0F;
            last = 0x1.7ffffep+2F;  // the float before 6
        }
    }

    bool applies, limited;
    float most = std::numeric_limits<float>::infinity(), last = most;
};

/// gradient[i] = 0 where `activation`, which an operation applied to `output`, has the derivative 0.
template <class Context, class T>
void activation_backward(const Context& context, const FusedActivation& activation, const T* output, T* gradient,
                         std::int64_t count) {
    const T* const from = gradient;
    if (activation.limited) {
        for_each_element(context, count, GradientFromOutput<Relu6Formula>{}, gradient, output, from);
    } else {
        for_each_element(context, count, GradientFromOutput<ReluFormula>{}, gradient, output, from);
    }
}

}  // namespace impl

namespace ops {

/// Made as `Relu(build)`.
template <class Device, class T>
using Relu = Pointwise<Device, T, impl::ReluFormula>;

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
