// SPDX-License-Identifier: Apache-2.0
//
// The option A shortcut on `Cuda`: a thread processes n channels of one pixel. With n > 1 the input's channels begin
// and end at multiples of n among the output's.
#pragma once

#include <cstdint>

#include <cupola/device/cuda.hpp>
#include <cupola/ops/cuda/impl/window_launch.hpp>
#include <cupola/ops/impl/kernel_parts/pack.hpp>
#include <cupola/ops/impl/kernel_parts/pool_elements.hpp>
#include <cupola/ops/option_a_shortcut.hpp>
#include <cupola/ops/pooling.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

/// The windows as those of a pooling, over `channels` channels of the output, or of the input.
[[nodiscard]] inline PoolingShape windows_of(const OptionAShortcutShape& shape, std::int64_t channels) {
    return {shape.height, shape.width, channels, PoolingKind::average};
}

template <class T, int n>
struct ShortcutForward {
    PoolExtents extents;  // of the output's channels
    std::int64_t in_channels, before;
    const T* x;
    T* y;

    CUPOLA_HOST_DEVICE void operator()(std::int64_t i) const {
        const PoolExtents& e = extents;
        const PoolExtents::Place at = e.output(i);
        const std::int64_t channel = at.channel - before;
        float sum[n] = {};
        if (channel >= 0 && channel < in_channels) {
            const int bottom = window_end(e.height, at.row), right = window_end(e.width, at.column);
            for (int row = window_begin(e.height, at.row); row < bottom; ++row) {
                for (int column = window_begin(e.width, at.column); column < right; ++column) {
                    float value[n];
                    load_floats<n>(x + e.input_pixel(at.image, row, column) * in_channels + channel, value);
                    CUPOLA_UNROLL
                    for (int k = 0; k < n; ++k) sum[k] += value[k];
                }
            }
            const float fraction = window_fraction(e.height, e.width, at.row, at.column);
            CUPOLA_UNROLL
            for (int k = 0; k < n; ++k) sum[k] *= fraction;
        }
        store_floats<n>(y + i * n, sum);
    }
};

/// Windows do not overlap, so each input has only one gradient.
template <class T, int n>
struct ShortcutBackward {
    PoolExtents extents;  // of the input's channels
    std::int64_t out_channels, before;
    const T* dy;
    T* dx;

    CUPOLA_HOST_DEVICE void operator()(std::int64_t i) const {
        const PoolExtents& e = extents;
        const PoolExtents::Place at = e.input(i);
        const int row = last_output(e.height, at.row), column = last_output(e.width, at.column);
        float value[n] = {};
        if (row >= first_output(e.height, at.row) && column >= first_output(e.width, at.column)) {
            load_floats<n>(dy + e.output_pixel(at.image, row, column) * out_channels + before + at.channel, value);
            const float fraction = window_fraction(e.height, e.width, row, column);
            CUPOLA_UNROLL
            for (int k = 0; k < n; ++k) value[k] *= fraction;
        }
        store_floats<n>(dx + i * n, value);
    }
};

}  // namespace impl

namespace ops {

template <impl::CudaElement T>
class OptionAShortcut<Cuda, T> {
public:
    OptionAShortcut(const BuildContext<Cuda, T>& build, const OptionAShortcutShape& shape)
        : shape_(shape),
          batch_(build.batch),
          in_packs_(shape.in_channels % n == 0 && shape.out_channels % n == 0 && shape.before % n == 0) {}

    void forward(const ForwardArgs<Cuda, T>& args) const {
        const bool packs = in_packs_ && impl::aligned_for_packs(args.input, args.output);
        impl::launch_over_outputs<impl::ShortcutForward, T>(args.context, impl::windows_of(shape_, shape_.out_channels),
                                                            batch_, packs, shape_.in_channels, shape_.before,
                                                            args.input, args.output);
    }
    void backward(const BackwardArgs<Cuda, T>& args) const {
        if (args.input_gradient == nullptr) return;
        const bool packs = in_packs_ && impl::aligned_for_packs(args.output_gradient, args.input_gradient);
        impl::launch_over_inputs<impl::ShortcutBackward, T>(args.context, impl::windows_of(shape_, shape_.in_channels),
                                                            batch_, packs, shape_.out_channels, shape_.before,
                                                            args.output_gradient, args.input_gradient);
    }

private:
    static constexpr int n = impl::pack_size<T>;

    OptionAShortcutShape shape_;
    std::int64_t batch_;
    bool in_packs_;
};

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
