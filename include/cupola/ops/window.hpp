// SPDX-License-Identifier: Apache-2.0
//
// The arithmetic of a window that slides over height and width: output extents and padding, as TensorFlow defines SAME
// and VALID.
#pragma once

#include <cstdint>

#include <cupola/core/abi.hpp>

namespace cupola::inline CUPOLA_ABI {

/// SAME: ceil(input / stride) outputs; the padding is split in two and the odd one goes at the end.
/// VALID: no padding.
enum class Padding : std::uint8_t { same, valid };

/// One axis of a window.
struct WindowAxis {
    std::int64_t input = 0, window = 0, stride = 1, output = 0, pad_begin = 0, pad_end = 0;
};

[[nodiscard]] constexpr WindowAxis window_axis(std::int64_t input, std::int64_t window, std::int64_t stride,
                                               Padding padding) {
    WindowAxis axis{input, window, stride, 0, 0, 0};
    if (padding == Padding::valid) {
        axis.output = input < window ? 0 : (input - window) / stride + 1;
        return axis;
    }
    axis.output = (input + stride - 1) / stride;
    const std::int64_t needed = (axis.output - 1) * stride + window - input;
    const std::int64_t pad = needed > 0 ? needed : 0;
    axis.pad_begin = pad / 2;
    axis.pad_end = pad - axis.pad_begin;
    return axis;
}

/// The same with `pad` on each side, whatever the stride: VALID over the padded input.
[[nodiscard]] constexpr WindowAxis window_axis(std::int64_t input, std::int64_t window, std::int64_t stride,
                                               std::int64_t pad) {
    WindowAxis axis = window_axis(input + 2 * pad, window, stride, Padding::valid);
    axis.input = input;
    axis.pad_begin = axis.pad_end = pad;
    return axis;
}

/// The multiply-adds along one axis whose tap lies inside the image, summed over the outputs.
[[nodiscard]] constexpr std::int64_t taps_inside(const WindowAxis& axis) {
    std::int64_t taps = 0;
    for (std::int64_t o = 0; o < axis.output; ++o) {
        for (std::int64_t k = 0; k < axis.window; ++k) {
            const std::int64_t at = o * axis.stride - axis.pad_begin + k;
            taps += at >= 0 && at < axis.input ? 1 : 0;
        }
    }
    return taps;
}

}  // namespace cupola::inline CUPOLA_ABI
