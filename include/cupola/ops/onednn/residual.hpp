// SPDX-License-Identifier: Apache-2.0
//
// The two ends of a residual block on `Host`.
#pragma once

#include <cstdint>

#include <cupola/device/host.hpp>
#include <cupola/ops/residual.hpp>
#include <cupola/tensor/algorithms.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace ops {

template <>
class Add<Host, float> {
public:
    explicit Add(const Site<Host>& site)
        : count_(site.batch * site.output.size()),
          relu_(site.activation == Activation::relu),
          mask_(relu_ && !site.masked_by_next) {}

    void forward(const Pass<Host>& pass) const {
        const float *a = pass.input, *b = pass.second_input;
        float* to = pass.output;
        for_each_block(pass.context, count_, [=, relu = relu_](std::int64_t begin, std::int64_t end) {
            if (!relu) {
#pragma omp simd
                for (std::int64_t i = begin; i < end; ++i) to[i] = a[i] + b[i];
                return;
            }
            // Written so that a NaN stays one: a comparison with it is false.
#pragma omp simd
            for (std::int64_t i = begin; i < end; ++i) {
                const float sum = a[i] + b[i];
                to[i] = sum < 0.0F ? 0.0F : sum;
            }
        });
    }

    void backward(const Pass<Host>& pass) const {
        const float *y = pass.output, *dy = pass.output_gradient;
        float *a = pass.input_gradient, *b = pass.second_input_gradient;
        if (a == nullptr) std::swap(a, b);
        if (a == nullptr) return;
        for_each_block(pass.context, count_, [=, mask = mask_](std::int64_t begin, std::int64_t end) {
            for (std::int64_t i = begin; i < end; ++i) {
                const float g = mask && !(y[i] > 0.0F) ? 0.0F : dy[i];
                a[i] = g;
                if (b != nullptr) b[i] = g;
            }
        });
    }

private:
    std::int64_t count_;
    bool relu_, mask_;
};

template <>
class Fork<Host, float> {
public:
    explicit Fork(const Site<Host>& site) : count_(site.batch * site.output.size()) {}

    void forward(const Pass<Host>&) const {}  // a view
    void backward(const Pass<Host>& pass) const {
        if (pass.input_gradient == nullptr) return;
        const float *a = pass.output_gradient, *b = pass.second_output_gradient;
        float* to = pass.input_gradient;
        for_each_block(pass.context, count_, [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
            for (std::int64_t i = begin; i < end; ++i) to[i] = a[i] + b[i];
        });
    }

private:
    std::int64_t count_;
};

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
