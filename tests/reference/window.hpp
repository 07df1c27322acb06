// SPDX-License-Identifier: Apache-2.0
//
// A window along one axis, by the formulas in TensorFlow's documentation of padding (tf.nn, "Notes on padding"), which
// are written differently from Cupola's; and PyTorch's.
#pragma once

#include "../standard.hpp"

namespace reference {

struct Axis {
    std::int64_t input, kernel, stride, output, pad_begin, pad_end, dilation = 1;

    /// The place in the input of an element of an output's window.
    [[nodiscard]] constexpr std::int64_t place(std::int64_t at, std::int64_t element) const {
        return at * stride + element * dilation - pad_begin;
    }
};

[[nodiscard]] constexpr Axis same(std::int64_t input, std::int64_t kernel, std::int64_t stride,
                                  std::int64_t dilation = 1) {
    const std::int64_t output = input / stride + (input % stride != 0 ? 1 : 0);
    // With dilation the formulas are those of a larger filter with zeros between its elements.
    const std::int64_t filter = kernel + (kernel - 1) * (dilation - 1);
    const std::int64_t pad = std::max<std::int64_t>(0, filter - (input % stride == 0 ? stride : input % stride));
    return {input, kernel, stride, output, pad / 2, pad - pad / 2, dilation};
}

[[nodiscard]] constexpr Axis valid(std::int64_t input, std::int64_t kernel, std::int64_t stride,
                                   std::int64_t dilation = 1) {
    const std::int64_t filter = kernel + (kernel - 1) * (dilation - 1);
    return {input, kernel, stride, (input - filter + 1 + stride - 1) / stride, 0, 0, dilation};
}

/// `pad` on each side, by PyTorch's definition: a window for each start in the padded axis that leaves room for it; with
/// `ceil_mode` also one that covers what the windows before it leave, if it starts in the input or left of it.
[[nodiscard]] constexpr Axis padded(std::int64_t input, std::int64_t kernel, std::int64_t stride, std::int64_t pad,
                                    bool ceil_mode = false, std::int64_t dilation = 1) {
    const std::int64_t end = input + 2 * pad, filter = kernel + (kernel - 1) * (dilation - 1);
    const auto has_window = [&](std::int64_t start) {
        return start + filter <= end || (ceil_mode && start - stride + filter < end && start < input + pad);
    };
    std::int64_t output = 0;
    while (has_window(output * stride)) ++output;
    return {input, kernel, stride, output, pad, std::max(pad, (output - 1) * stride + filter - pad - input), dilation};
}

}  // namespace reference
