// SPDX-License-Identifier: Apache-2.0
//
// The two ends of a residual block on `Host`.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include <cupola/device/host.hpp>
#include <cupola/ops/host/impl/element.hpp>
#include <cupola/ops/residual.hpp>
#include <cupola/tensor/algorithms.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace ops {

template <impl::HostElement T>
class Add<Host, T> {
public:
    explicit Add(const BuildContext<Host, T>& build)
        : count_(build.batch * build.output.size()),
          relu_(build.activation == Activation::relu),
          mask_(relu_ && !build.relu_mask_applied_by_next) {}

    void forward(const PassArgs<Host, T>& args) const {
        const T *a = args.input, *b = args.second_input;
        T* to = args.output;
        for_each_block(args.context, count_, [=, relu = relu_](std::int64_t begin, std::int64_t end) {
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

    void backward(const PassArgs<Host, T>& args) const {
        const T *y = args.output, *dy = args.output_gradient;
        T *a = args.input_gradient, *b = args.second_input_gradient;
        if (a == nullptr) std::swap(a, b);
        if (a == nullptr) return;
        for_each_block(args.context, count_, [=, mask = mask_](std::int64_t begin, std::int64_t end) {
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
    explicit Fork(const BuildContext<Host, T>& build) : count_(build.batch * build.output.size()) {}

    void forward(const PassArgs<Host, T>&) const {}  // a view
    void backward(const PassArgs<Host, T>& args) const {
        if (args.input_gradient == nullptr) return;
        const T *a = args.output_gradient, *b = args.second_output_gradient;
        T* to = args.input_gradient;
        for_each_block(args.context, count_, [=](std::int64_t begin, std::int64_t end) {
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
