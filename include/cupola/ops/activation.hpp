// SPDX-License-Identifier: Apache-2.0
//
// ReLU, as a separate operation and as the mask that a fused ReLU applies to a gradient: y = max(x, 0). Backward reads
// the output: dx = dy where y > 0, else 0.
#pragma once

#include <cstdint>

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

/// to[i] = gradient[i] where output[i] > 0, else 0. `to` may be `gradient`.
template <class Context, class T>
void relu_backward(const Context& context, const T* output, const T* gradient, T* to, std::int64_t count) {
    for_each_element(context, count, GradientFromOutput<ReluFormula>{}, to, output, gradient);
}

}  // namespace impl

namespace ops {

/// Made as `Relu(build)`.
template <class Device, class T>
using Relu = Pointwise<Device, T, impl::ReluFormula>;

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
