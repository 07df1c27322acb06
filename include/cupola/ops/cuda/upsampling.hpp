// SPDX-License-Identifier: Apache-2.0
//
// Upsampling by repetition on `Cuda`: a thread processes n channels of one pixel.
#pragma once

#include <cstdint>

#include <cupola/device/cuda.hpp>
#include <cupola/ops/cuda/impl/window_launch.hpp>
#include <cupola/ops/impl/kernel_parts/pack.hpp>
#include <cupola/ops/impl/kernel_parts/pool_elements.hpp>
#include <cupola/ops/pooling.hpp>
#include <cupola/ops/upsampling.hpp>
#include <cupola/ops/window.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

/// The pooling in the opposite direction: its windows are adjacent, and its input is the upsampled image.
[[nodiscard]] inline PoolingShape windows_of(const UpsamplingShape& s) {
    const auto axis = [&](std::int64_t size) {
        return window_axis(size * s.factor, s.factor, s.factor, Padding::valid);
    };
    return {axis(s.height), axis(s.width), s.channels, PoolingKind::average};
}

template <class T, int n>
struct UpsampleForward {
    PoolExtents extents;
    const T* x;
    T* y;

    CUPOLA_HOST_DEVICE void operator()(std::int64_t i) const {
        const PoolExtents& e = extents;
        const PoolExtents::Place at = e.input(i);
        const std::int64_t pixel =
            e.output_pixel(at.image, strides_in(e.height, at.row), strides_in(e.width, at.column));
        pack_at<n>(y + i * n) = pack_at<n>(x + pixel * e.channels + at.channel);
    }
};

template <class T, int n>
struct UpsampleBackward {
    PoolExtents extents;
    const T* dy;
    T* dx;

    CUPOLA_HOST_DEVICE void operator()(std::int64_t i) const {
        const PoolExtents& e = extents;
        const PoolExtents::Place at = e.output(i);
        const int top = window_start(e.height, at.row), left = window_start(e.width, at.column);
        float sum[n] = {};
        for (int row = top; row < top + e.height.window; ++row) {
            for (int column = left; column < left + e.width.window; ++column) {
                float value[n];
                load_floats<n>(dy + e.input_pixel(at.image, row, column) * e.channels + at.channel, value);
                CUPOLA_UNROLL
                for (int k = 0; k < n; ++k) sum[k] += value[k];
            }
        }
        store_floats<n>(dx + i * n, sum);
    }
};

}  // namespace impl

namespace ops {

template <impl::CudaElement T>
class Upsampling<Cuda, T> {
public:
    Upsampling(const BuildContext<Cuda, T>& build, const UpsamplingShape& shape)
        : windows_(impl::windows_of(shape)), batch_(build.batch), in_packs_(shape.channels % impl::pack_size<T> == 0) {}

    void forward(const ForwardArgs<Cuda, T>& args) const {
        const bool packs = in_packs_ && impl::aligned_for_packs(args.input, args.output);
        impl::launch_over_inputs<impl::UpsampleForward, T>(args.context, windows_, batch_, packs, args.input,
                                                           args.output);
    }
    void backward(const BackwardArgs<Cuda, T>& args) const {
        if (args.input_gradient == nullptr) return;
        const bool packs = in_packs_ && impl::aligned_for_packs(args.output_gradient, args.input_gradient);
        impl::launch_over_outputs<impl::UpsampleBackward, T>(args.context, windows_, batch_, packs,
                                                             args.output_gradient, args.input_gradient);
    }

private:
    PoolingShape windows_;
    std::int64_t batch_;
    bool in_packs_;
};

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
