// SPDX-License-Identifier: Apache-2.0
//
// Linear layers of `Cuda` on the host: see impl/host_layer.hpp.
#pragma once

#include <cstdint>

#include <cupola/ops/cudnn/impl/host_layer.hpp>
#include <cupola/ops/linear.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

struct LinearTaps {
    std::int64_t inputs, outputs;
    std::int64_t weights = inputs * outputs, channels = outputs;

    template <class Function>
    void each(Function&& f) const {
        for (std::int64_t o = 0; o < outputs; ++o) {
            for (std::int64_t i = 0; i < inputs; ++i) f(o, i, o * inputs + i);
        }
    }
};

}  // namespace impl

namespace ops {

template <impl::CudaElement T>
class Linear<Cuda, T> : public impl::HostLayer<T, impl::LinearTaps> {
public:
    Linear(const Site<Cuda, T>& site, const LinearShape& shape)
        : impl::HostLayer<T, impl::LinearTaps>(site, {shape.in_features, shape.out_features}, shape.bias) {}
};

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
