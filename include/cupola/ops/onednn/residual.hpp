// SPDX-License-Identifier: Apache-2.0
//
// The two ends of a residual block on `Host`.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include <cupola/device/host.hpp>
#include <cupola/ops/onednn/impl/element.hpp>
#include <cupola/ops/residual.hpp>
#include <cupola/tensor/algorithms.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace ops {

template <impl::HostElement T>
class Add<Host, T> {
public:
    explicit Add(const Site<Host, T>& site)
        : count_(site.batch * site.output.size()),
          relu_(site.activation == Activation::relu),
          mask_(relu_ && !site.masked_by_next) {}

    void forward(const Pass<Host, T>& pass) const {
        const T *a = pass.input, *b = pass.second_input;
        T* to = pass.output;
        for_each_block(pass.context, count_, [=, relu = relu_](std::int64_t begin, std::int64_t end) {
            if (!relu) {
#pragma omp simd
                for (std::int64_t i = begin; i < end; ++i)
                    impl::put(to[i], static_cast<float>(a[i]) + static_cast<float>(b[i]));
                return;
            }
            // Written so that a NaN stays one: a comparison with it is false.
#pragma omp simd
            for (std::int64_t i = begin; i < end; ++i) {
                const float sum = static_cast<float>(a[i]) + static_cast<float>(b[i]);
                impl::put(to[i], sum < 0.0F ? 0.0F : sum);
            }
        });
    }

    void backward(const Pass<Host, T>& pass) const {
        const T *y = pass.output, *dy = pass.output_gradient;
        T *a = pass.input_gradient, *b = pass.second_input_gradient;
        if (a == nullptr) std::swap(a, b);
        if (a == nullptr) return;
        for_each_block(pass.context, count_, [=, mask = mask_](std::int64_t begin, std::int64_t end) {
            if (mask) {
#pragma omp simd
                for (std::int64_t i = begin; i < end; ++i) impl::put_if(a[i], dy[i], impl::positive(y[i]));
            } else if (a != dy) {
                std::copy(dy + begin, dy + end, a + begin);
            }
            if (b != nullptr) std::copy(a + begin, a + end, b + begin);
        });
    }

private:
    std::int64_t count_;
    bool relu_, mask_;
};

template <impl::HostElement T>
class Fork<Host, T> {
public:
    explicit Fork(const Site<Host, T>& site) : count_(site.batch * site.output.size()) {}

    void forward(const Pass<Host, T>&) const {}  // a view
    void backward(const Pass<Host, T>& pass) const {
        if (pass.input_gradient == nullptr) return;
        const T *a = pass.output_gradient, *b = pass.second_output_gradient;
        T* to = pass.input_gradient;
        for_each_block(pass.context, count_, [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
            for (std::int64_t i = begin; i < end; ++i)
                impl::put(to[i], static_cast<float>(a[i]) + static_cast<float>(b[i]));
        });
    }

private:
    std::int64_t count_;
};

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
