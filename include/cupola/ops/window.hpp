// SPDX-License-Identifier: Apache-2.0
//
// Window arithmetic over height and width: output extents and padding, as TensorFlow defines SAME and VALID, and as
// PyTorch defines `padding`, `ceil_mode` and `dilation`.
#pragma once

#include <cstdint>
#include <initializer_list>

#include <cupola/core/abi.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// SAME: ceil(input / stride) outputs; the padding is split in two and, if it is odd, is larger at the end.
/// VALID: no padding.
enum class Padding : std::uint8_t { same, valid };

/// The largest extent, window, stride and padding. With this limit, an index into an axis with its padding fits in 32
/// bits, and the sum of the window offsets over an axis in 64.
inline constexpr std::int64_t max_window_extent = std::int64_t{1} << 29;

[[nodiscard]] constexpr bool are_window_extents(std::initializer_list<std::int64_t> extents) {
    for (const std::int64_t each : extents) {
        if (each > max_window_extent) return false;
    }
    return true;
}

/// One axis of a window, whose elements are `dilation` inputs apart.
struct WindowAxis {
    std::int64_t input = 0, window = 0, stride = 1, output = 0, pad_begin = 0, pad_end = 0, dilation = 1;
};

/// The inputs from the first element of a window to the last.
[[nodiscard]] constexpr std::int64_t window_reach(std::int64_t window, std::int64_t dilation) {
    return dilation * (window - 1) + 1;
}

[[nodiscard]] constexpr WindowAxis window_axis(std::int64_t input, std::int64_t window, std::int64_t stride,
                                               Padding padding, std::int64_t dilation = 1) {
    WindowAxis axis{input, window, stride, 0, 0, 0, dilation};
    const std::int64_t reach = window_reach(window, dilation);
    if (padding == Padding::valid) {
        axis.output = input < reach ? 0 : (input - reach) / stride + 1;
        return axis;
    }
    axis.output = (input + stride - 1) / stride;
    const std::int64_t needed = (axis.output - 1) * stride + reach - input;
    const std::int64_t pad = needed > 0 ? needed : 0;
    axis.pad_begin = pad / 2;
    axis.pad_end = pad - axis.pad_begin;
    return axis;
}

/// The same with `pad` on each side, whatever the stride: VALID over the padded input. With `ceil_mode` the number of
/// outputs is rounded up instead of down: the last window may end outside the padded input, and pad_end is then larger
/// than `pad`, but it does not begin behind the input.
[[nodiscard]] constexpr WindowAxis window_axis(std::int64_t input, std::int64_t window, std::int64_t stride,
                                               std::int64_t pad, bool ceil_mode = false, std::int64_t dilation = 1) {
    WindowAxis axis = window_axis(input + 2 * pad, window, stride, Padding::valid, dilation);
    axis.input = input;
    axis.pad_begin = axis.pad_end = pad;
    const std::int64_t reach = window_reach(window, dilation);
    const std::int64_t last_start = axis.output * stride;  // of one more window, in the padded input
    if (ceil_mode && input + 2 * pad > last_start - stride + reach && last_start < input + pad) {
        ++axis.output;
        axis.pad_end = last_start + reach - pad - input;
    }
    return axis;
}

namespace impl {

/// The sum of clamp(first + i * stride, 0, limit) over i from 0 to count - 1, without a loop: compilers limit the
/// number of iterations in constant evaluation, and an axis may be long.
[[nodiscard]] constexpr std::int64_t sum_of_clamped(std::int64_t first, std::int64_t stride, std::int64_t count,
                                                    std::int64_t limit) {
    // Terms [0, low) are 0, terms [low, high) are between the bounds, terms [high, count) are `limit`.
    const auto at_most = [count](std::int64_t terms) { return terms < count ? terms : count; };
    const std::int64_t low = first > 0 ? 0 : at_most(-first / stride + 1);
    const std::int64_t high = first >= limit ? 0 : at_most((limit - 1 - first) / stride + 1);
    const std::int64_t between = high - low;
    return between * first + between * (low + high - 1) / 2 * stride + (count - high) * limit;
}

/// The outputs for which an element of the window, `offset` inputs after its start, lies inside the image.
[[nodiscard]] constexpr std::int64_t outputs_inside(const WindowAxis& axis, std::int64_t offset) {
    const auto first_from = [&](std::int64_t input) {  // the first output whose element is there or after it
        const std::int64_t past = input + axis.pad_begin - offset;
        const std::int64_t first = past > 0 ? (past + axis.stride - 1) / axis.stride : 0;
        return first < axis.output ? first : axis.output;
    };
    return first_from(axis.input) - first_from(0);
}

}  // namespace impl

/// The multiply-adds along one axis whose window offset lies inside the image, summed over the outputs.
[[nodiscard]] constexpr std::int64_t window_offsets_inside(const WindowAxis& axis) {
    if (axis.dilation != 1) {
        // Elements before `first` are before the image for every output, and those from `last` on after it.
        const std::int64_t before = axis.pad_begin - (axis.output - 1) * axis.stride,
                           past = (axis.input + axis.pad_begin - 1) / axis.dilation + 1,
                           first = before > 0 ? before / axis.dilation : 0,
                           last = past < axis.window ? past : axis.window;
        std::int64_t inside = 0;
        for (std::int64_t k = first; k < last; ++k) inside += impl::outputs_inside(axis, k * axis.dilation);
        return inside;
    }
    // A window [begin, end) covers clamp(end) - clamp(begin) elements of an axis [0, input).
    const auto sum = [&](std::int64_t first) {
        return impl::sum_of_clamped(first, axis.stride, axis.output, axis.input);
    };
    return axis.input < 1 ? 0 : sum(axis.window - axis.pad_begin) - sum(-axis.pad_begin);
}

/// The elements that a window without dilation covers, for a WindowAxis or a device's own type with the same members.
/// The first input of an output's window; negative in the padding.
template <class Axis, class Index>
[[nodiscard]] CUPOLA_HOST_DEVICE constexpr Index window_start(const Axis& axis, Index output) {
    return output * axis.stride - axis.pad_begin;
}
/// The inputs [begin, end) inside an output's window, of which there is at least one, and their number.
template <class Axis, class Index>
[[nodiscard]] CUPOLA_HOST_DEVICE constexpr Index window_begin(const Axis& axis, Index output) {
    const Index start = window_start(axis, output);
    return start < 0 ? Index{0} : start;
}
template <class Axis, class Index>
[[nodiscard]] CUPOLA_HOST_DEVICE constexpr Index window_end(const Axis& axis, Index output) {
    const Index end = window_start(axis, output) + axis.window;
    return end < axis.input ? end : axis.input;
}
template <class Axis, class Index>
[[nodiscard]] CUPOLA_HOST_DEVICE constexpr Index window_inside(const Axis& axis, Index output) {
    const Index begin = window_start(axis, output), end = begin + axis.window;
    return (end < axis.input ? end : axis.input) - (begin > 0 ? begin : Index{0});
}
/// The elements of an output's window in the input and in a padding of pad_begin on each side: without what ceil_mode
/// adds.
template <class Axis, class Index>
[[nodiscard]] CUPOLA_HOST_DEVICE constexpr float counted_window(const Axis& axis, Index output) {
    const Index room = axis.input + axis.pad_begin - window_start(axis, output);
    return static_cast<float>(room < axis.window ? room : axis.window);
}

/// n / stride for n >= 0.
[[nodiscard]] constexpr std::int64_t strides_in(const WindowAxis& axis, std::int64_t n) { return n / axis.stride; }
/// The outputs [first, last] whose windows contain an input; none where first > last.
template <class Axis, class Index>
[[nodiscard]] CUPOLA_HOST_DEVICE constexpr Index first_output(const Axis& axis, Index input) {
    const Index past =
        input + axis.pad_begin - axis.window;  // a window that starts here, or before, ends before `input`
    return past < 0 ? Index{0} : strides_in(axis, past) + 1;
}
template <class Axis, class Index>
[[nodiscard]] CUPOLA_HOST_DEVICE constexpr Index last_output(const Axis& axis, Index input) {
    const Index by_start = strides_in(axis, input + axis.pad_begin);
    return by_start < axis.output ? by_start : axis.output - 1;
}

}}  // namespace cupola::CUPOLA_ABI
