// SPDX-License-Identifier: Apache-2.0
//
// ReLU on `Host`, alone and as the mask that a fused ReLU puts on a gradient.
#pragma once

#include <cstdint>

#include <cupola/device/host.hpp>
#include <cupola/ops/activation.hpp>
#include <cupola/tensor/algorithms.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

/// to[i] = gradient[i] where output[i] > 0, else 0. `to` may be `gradient`.
inline void relu_backward(const HostContext& context, const float* output, const float* gradient, float* to,
                          std::int64_t count) {
    for_each_block(context, count, [=](std::int64_t begin, std::int64_t end) {
        // The gradient is read whether it is wanted or not: a conditional read is no vector instruction everywhere.
#pragma omp simd
        for (std::int64_t i = begin; i < end; ++i) {
            const float g = gradient[i];
            to[i] = output[i] > 0.0F ? g : 0.0F;
        }
    });
}

}  // namespace impl

namespace ops {

template <>
class Relu<Host, float> {
public:
    explicit Relu(const Site<Host>& site) : count_(site.batch * site.output.size()) {}

    void forward(const Pass<Host>& pass) const {
        const float* from = pass.input;
        float* to = pass.output;
        for_each_block(pass.context, count_, [=](std::int64_t begin, std::int64_t end) {
            // Written so that a NaN stays one: a comparison with it is false.
#pragma omp simd
            for (std::int64_t i = begin; i < end; ++i) to[i] = from[i] < 0.0F ? 0.0F : from[i];
        });
    }
    void backward(const Pass<Host>& pass) const {
        if (pass.input_gradient == nullptr) return;
        impl::relu_backward(pass.context, pass.output, pass.output_gradient, pass.input_gradient, count_);
    }

private:
    std::int64_t count_;
};

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
