// SPDX-License-Identifier: Apache-2.0
//
// ReLU on `Host`, alone and as the mask that a fused ReLU puts on a gradient.
#pragma once

#include <cstdint>

#include <cupola/device/host.hpp>
#include <cupola/ops/activation.hpp>
#include <cupola/ops/host/impl/element.hpp>
#include <cupola/tensor/algorithms.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

/// to[i] = gradient[i] where output[i] > 0, else 0. `to` may be `gradient`.
template <HostElement T>
void relu_backward(const HostContext& context, const T* output, const T* gradient, T* to, std::int64_t count) {
    for_each_block(context, count, [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
        for (std::int64_t i = begin; i < end; ++i) put_if(to[i], gradient[i], positive(output[i]));
    });
}

}  // namespace impl

namespace ops {

template <impl::HostElement T>
class Relu<Host, T> {
public:
    explicit Relu(const BuildContext<Host, T>& build) : count_(build.batch * build.output.size()) {}

    void forward(const PassArgs<Host, T>& args) const {
        const T* from = args.input;
        T* to = args.output;
        for_each_block(args.context, count_, [=](std::int64_t begin, std::int64_t end) {
        // Written so that a NaN stays one: a comparison with it is false.
#pragma omp simd
            for (std::int64_t i = begin; i < end; ++i) impl::put_if(to[i], from[i], !impl::negative(from[i]));
        });
    }
    void backward(const PassArgs<Host, T>& args) const {
        if (args.input_gradient == nullptr) return;
        impl::relu_backward(args.context, args.output, args.output_gradient, args.input_gradient, count_);
    }

private:
    std::int64_t count_;
};

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
