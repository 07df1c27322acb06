// SPDX-License-Identifier: Apache-2.0
//
// Convolution of `Cuda` on the host: see impl/host_layer.hpp.
#pragma once

#include <cstdint>

#include <cupola/ops/convolution.hpp>
#include <cupola/ops/cudnn/impl/host_layer.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

struct ConvolutionTaps {
    ConvolutionShape shape;
    std::int64_t inputs = shape.height.input * shape.width.input * shape.in_channels,
                 outputs = shape.height.output * shape.width.output * shape.out_channels,
                 weights = shape.out_channels * shape.height.window * shape.width.window * shape.in_channels,
                 channels = shape.out_channels;

    template <class Function>
    void each(Function&& f) const {
        const WindowAxis &h = shape.height, &w = shape.width;
        for (std::int64_t i = 0; i < h.output; ++i) {
            for (std::int64_t j = 0; j < w.output; ++j) {
                for (std::int64_t a = 0; a < h.window; ++a) {
                    for (std::int64_t b = 0; b < w.window; ++b) {
                        const std::int64_t y = i * h.stride - h.pad_begin + a, x = j * w.stride - w.pad_begin + b;
                        if (y < 0 || y >= h.input || x < 0 || x >= w.input) continue;
                        for (std::int64_t o = 0; o < channels; ++o) {
                            for (std::int64_t c = 0; c < shape.in_channels; ++c) {
                                f((i * w.output + j) * channels + o, (y * w.input + x) * shape.in_channels + c,
                                  ((o * h.window + a) * w.window + b) * shape.in_channels + c);
                            }
                        }
                    }
                }
            }
        }
    }
};

}  // namespace impl

namespace ops {

template <impl::CudaElement T>
class Convolution<Cuda, T> : public impl::HostLayer<T, impl::ConvolutionTaps> {
public:
    Convolution(const Site<Cuda, T>& site, const ConvolutionShape& shape)
        : impl::HostLayer<T, impl::ConvolutionTaps>(site, {shape}, shape.bias) {}
};

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
