// SPDX-License-Identifier: Apache-2.0
//
// The two ends of a residual block on `Cuda`.
#pragma once

#include <cstdint>
#include <utility>

#include <cupola/device/cuda.hpp>
#include <cupola/ops/cuda/activation.hpp>
#include <cupola/ops/residual.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace ops {

template <impl::CudaElement T>
class Add<Cuda, T> {
public:
    explicit Add(const BuildContext<Cuda, T>& build)
        : count_(build.batch * build.output.size()),
          relu_(build.activation == Activation::relu),
          mask_(relu_ && !build.relu_mask_applied_by_next) {}

    void forward(const PassArgs<Cuda, T>& args) const {
        impl::launch_elementwise<T>(args.context, count_,
                                    impl::aligned_for_packs(args.input, args.second_input, args.output),
                                    impl::AddAt<T>{args.input, args.second_input, args.output, relu_});
    }

    void backward(const PassArgs<Cuda, T>& args) const {
        const T *y = mask_ ? args.output : nullptr, *dy = args.output_gradient;
        T *a = args.input_gradient, *b = args.second_input_gradient;
        if (a == nullptr) std::swap(a, b);
        if (!mask_ && a == dy) a = std::exchange(b, nullptr);  // one of them is there already
        if (!mask_ && b == dy) b = nullptr;
        if (a == nullptr) return;
        impl::launch_elementwise<T>(args.context, count_, impl::aligned_for_packs(y, dy, a, b),
                                    impl::AddBackwardAt<T>{y, dy, a, b});
    }

private:
    std::int64_t count_;
    bool relu_, mask_;
};

template <impl::CudaElement T>
class Fork<Cuda, T> {
public:
    explicit Fork(const BuildContext<Cuda, T>& build) : count_(build.batch * build.output.size()) {}

    void forward(const PassArgs<Cuda, T>&) const {}  // a view
    void backward(const PassArgs<Cuda, T>& args) const {
        if (args.input_gradient == nullptr) return;
        const T *a = args.output_gradient, *b = args.second_output_gradient;
        impl::launch_elementwise<T>(args.context, count_, impl::aligned_for_packs(a, b, args.input_gradient),
                                    impl::AddAt<T>{a, b, args.input_gradient, false});
    }

private:
    std::int64_t count_;
};

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
