// SPDX-License-Identifier: Apache-2.0
//
// ReLU on `Cuda`, alone and as the mask that a fused ReLU puts on a gradient.
#pragma once

#include <cstdint>

#include <cupola/device/cuda.hpp>
#include <cupola/ops/activation.hpp>
#include <cupola/ops/cuda/impl/elementwise.hpp>
#include <cupola/ops/cuda/impl/launch_packs.cuh>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

/// to[i] = gradient[i] where output[i] > 0, else 0. `to` may be `gradient`.
template <CudaElement T>
void relu_backward(const CudaContext& context, const T* output, const T* gradient, T* to, std::int64_t count) {
    launch_elementwise<T>(context, count, aligned_for_packs(output, gradient, to),
                          ReluBackwardAt<T>{output, gradient, to});
}

}  // namespace impl

namespace ops {

template <impl::CudaElement T>
class Relu<Cuda, T> {
public:
    explicit Relu(const BuildContext<Cuda, T>& build) : count_(build.batch * build.output.size()) {}

    void forward(const PassArgs<Cuda, T>& args) const {
        impl::launch_elementwise<T>(args.context, count_, impl::aligned_for_packs(args.input, args.output),
                                    impl::ReluForwardAt<T>{args.input, args.output});
    }
    void backward(const PassArgs<Cuda, T>& args) const {
        if (args.input_gradient == nullptr) return;
        impl::relu_backward(args.context, args.output, args.output_gradient, args.input_gradient, count_);
    }

private:
    std::int64_t count_;
};

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
