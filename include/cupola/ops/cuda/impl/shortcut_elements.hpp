// SPDX-License-Identifier: Apache-2.0
//
// What the kernels of the padded shortcut do for n channels of one pixel. With n > 1 the input's channels begin and end
// at multiples of n among the output's.
#pragma once

#include <cstdint>

#include <cupola/ops/cuda/impl/pack.hpp>
#include <cupola/ops/cuda/impl/pool_elements.hpp>
#include <cupola/ops/option_a_shortcut.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

/// The windows as a pooling's, over `channels` of the output, or of the input.
[[nodiscard]] inline PoolExtents shortcut_extents(const OptionAShortcutShape& shape, std::int64_t channels,
                                                  int channels_per_thread) {
    return {PoolingShape{shape.height, shape.width, channels, PoolingKind::average}, channels_per_thread};
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
            const int top = e.height.start(at.row), left = e.width.start(at.column);
            for (int row = top < 0 ? 0 : top; row < top + e.height.window && row < e.height.input; ++row) {
                for (int column = left < 0 ? 0 : left; column < left + e.width.window && column < e.width.input;
                     ++column) {
                    float value[n];
                    load_floats<n>(x + e.input_pixel(at.image, row, column) * in_channels + channel, value);
                    CUPOLA_UNROLL
                    for (int k = 0; k < n; ++k) sum[k] += value[k];
                }
            }
            const float fraction = 1.0F / static_cast<float>(e.height.inside(at.row) * e.width.inside(at.column));
            CUPOLA_UNROLL
            for (int k = 0; k < n; ++k) sum[k] *= fraction;
        }
        store_floats<n>(y + i * n, sum);
    }
};

/// Windows do not overlap, so each input has one gradient.
template <class T, int n>
struct ShortcutBackward {
    PoolExtents extents;  // of the input's channels
    std::int64_t out_channels, before;
    const T* dy;
    T* dx;

    CUPOLA_HOST_DEVICE void operator()(std::int64_t i) const {
        const PoolExtents& e = extents;
        const PoolExtents::Place at = e.input(i);
        const int row = e.height.last(at.row), column = e.width.last(at.column);
        float value[n] = {};
        if (row >= e.height.first(at.row) && column >= e.width.first(at.column)) {
            load_floats<n>(dy + e.output_pixel(at.image, row, column) * out_channels + before + at.channel, value);
            const float fraction = 1.0F / static_cast<float>(e.height.inside(row) * e.width.inside(column));
            CUPOLA_UNROLL
            for (int k = 0; k < n; ++k) value[k] *= fraction;
        }
        store_floats<n>(dx + i * n, value);
    }
};

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
