// SPDX-License-Identifier: Apache-2.0
//
// A window along one axis, by the formulas in TensorFlow's documentation of padding (tf.nn, "Notes on padding"), which
// are written differently from Cupola's; and PyTorch's.
#pragma once

#include "../standard.hpp"

namespace reference {

struct Axis {
    std::int64_t input, kernel, stride, output, pad_begin, pad_end;
};

[[nodiscard]] constexpr Axis same(std::int64_t input, std::int64_t kernel, std::int64_t stride) {
    const std::int64_t output = input / stride + (input % stride != 0 ? 1 : 0);
    const std::int64_t pad = std::max<std::int64_t>(0, kernel - (input % stride == 0 ? stride : input % stride));
    return {input, kernel, stride, output, pad / 2, pad - pad / 2};
}

[[nodiscard]] constexpr Axis valid(std::int64_t input, std::int64_t kernel, std::int64_t stride) {
    return {input, kernel, stride, (input - kernel + 1 + stride - 1) / stride, 0, 0};
}

/// `pad` on each side, by PyTorch's definition: a window for each start in the padded axis that leaves room for it; with
/// `ceil_mode` also one that covers what the windows before it leave, if it starts in the input or left of it.
[[nodiscard]] constexpr Axis padded(std::int64_t input, std::int64_t kernel, std::int64_t stride, std::int64_t pad,
                                    bool ceil_mode = false) {
    const std::int64_t end = input + 2 * pad;
    const auto has_window = [&](std::int64_t start) {
        return start + kernel <= end || (ceil_mode && start - stride + kernel < end && start < input + pad);
    };
    std::int64_t output = 0;
    while (has_window(output * stride)) ++output;
    return {input, kernel, stride, output, pad, std::max(pad, (output - 1) * stride + kernel - pad - input)};
}

}  // namespace reference
