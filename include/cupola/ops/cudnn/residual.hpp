// SPDX-License-Identifier: Apache-2.0
//
// The two ends of a residual block on `Cuda`.
#pragma once

#include <cstdint>
#include <utility>

#include <cupola/device/cuda.hpp>
#include <cupola/ops/cudnn/activation.hpp>
#include <cupola/ops/residual.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace ops {

template <impl::CudaElement T>
class Add<Cuda, T> {
public:
    explicit Add(const Site<Cuda, T>& site)
        : count_(site.batch * site.output.size()),
          relu_(site.activation == Activation::relu),
          mask_(relu_ && !site.masked_by_next) {}

    void forward(const Pass<Cuda, T>& pass) const {
        impl::launch_elementwise<T>(pass.context, count_,
                                    impl::aligned_for_packs(pass.input, pass.second_input, pass.output),
                                    impl::AddAt<T>{pass.input, pass.second_input, pass.output, relu_});
    }

    void backward(const Pass<Cuda, T>& pass) const {
        const T *y = mask_ ? pass.output : nullptr, *dy = pass.output_gradient;
        T *a = pass.input_gradient, *b = pass.second_input_gradient;
        if (a == nullptr) std::swap(a, b);
        if (!mask_ && a == dy) a = std::exchange(b, nullptr);  // one of them is there already
        if (!mask_ && b == dy) b = nullptr;
        if (a == nullptr) return;
        impl::launch_elementwise<T>(pass.context, count_, impl::aligned_for_packs(y, dy, a, b),
                                    impl::AddBackwardAt<T>{y, dy, a, b});
    }

private:
    std::int64_t count_;
    bool relu_, mask_;
};

template <impl::CudaElement T>
class Fork<Cuda, T> {
public:
    explicit Fork(const Site<Cuda, T>& site) : count_(site.batch * site.output.size()) {}

    void forward(const Pass<Cuda, T>&) const {}  // a view
    void backward(const Pass<Cuda, T>& pass) const {
        if (pass.input_gradient == nullptr) return;
        const T *a = pass.output_gradient, *b = pass.second_output_gradient;
        impl::launch_elementwise<T>(pass.context, count_, impl::aligned_for_packs(a, b, pass.input_gradient),
                                    impl::AddAt<T>{a, b, pass.input_gradient, false});
    }

private:
    std::int64_t count_;
};

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
