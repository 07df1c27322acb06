// SPDX-License-Identifier: Apache-2.0
//
// The arithmetic of windows: TensorFlow's SAME and VALID, PyTorch's padding and ceil_mode.
#include <cupola/ops/window.hpp>

#include "../test.hpp"

#include <cupola/layers/conv2d.hpp>
#include <cupola/layers/global_avg_pool2d.hpp>
#include <cupola/layers/linear.hpp>
#include <cupola/net/sequential.hpp>

#include "../reference/window.hpp"

namespace {

constexpr bool is(const WindowAxis& axis, std::int64_t output, std::int64_t begin, std::int64_t end) {
    return axis.output == output && axis.pad_begin == begin && axis.pad_end == end;
}

}  // namespace

// The tutorial's: 5 x 5 convolutions of stride 1, 3 x 3 maxima of stride 2.
static_assert(is(window_axis(24, 5, 1, Padding::same), 24, 2, 2));
static_assert(is(window_axis(24, 3, 2, Padding::same), 12, 0, 1), "the odd padding goes at the end");
static_assert(is(window_axis(12, 3, 2, Padding::same), 6, 0, 1));
// Odd sizes, even windows, a stride of three, a stride larger than the window.
static_assert(is(window_axis(7, 3, 2, Padding::same), 4, 1, 1));
static_assert(is(window_axis(7, 2, 2, Padding::same), 4, 0, 1));
static_assert(is(window_axis(8, 2, 1, Padding::same), 8, 0, 1));
static_assert(is(window_axis(10, 5, 3, Padding::same), 4, 2, 2));
static_assert(is(window_axis(11, 5, 3, Padding::same), 4, 1, 2));
static_assert(is(window_axis(12, 5, 3, Padding::same), 4, 1, 1));
static_assert(is(window_axis(7, 1, 3, Padding::same), 3, 0, 0), "a stride larger than the window needs no padding");
static_assert(is(window_axis(1, 5, 1, Padding::same), 1, 2, 2));
static_assert(is(window_axis(24, 5, 1, Padding::valid), 20, 0, 0));
static_assert(is(window_axis(24, 3, 2, Padding::valid), 11, 0, 0));
static_assert(is(window_axis(5, 5, 1, Padding::valid), 1, 0, 0));
static_assert(is(window_axis(4, 5, 1, Padding::valid), 0, 0, 0), "a window larger than its input has no place");

// The same padding on both sides.
static_assert(is(window_axis(32, 3, 2, 1), 16, 1, 1) && window_axis(32, 3, 2, 1).input == 32);
static_assert(is(window_axis(7, 3, 1, 2), 9, 2, 2));
static_assert(is(window_axis(24, 5, 1, 0), 20, 0, 0), "as VALID");
static_assert(window_offsets_inside(window_axis(32, 3, 2, 1)) == 16 * 3 - 1);

// Rounded up: a last window over what is left, unless it would begin behind the input.
static_assert(is(window_axis(6, 3, 2, 0, false), 2, 0, 0) && is(window_axis(6, 3, 2, 0, true), 3, 0, 1));
static_assert(is(window_axis(7, 3, 2, 0, true), 3, 0, 0), "nothing is left");
static_assert(is(window_axis(6, 3, 2, 1, false), 3, 1, 1) && is(window_axis(6, 3, 2, 1, true), 4, 1, 2));
static_assert(is(window_axis(5, 2, 3, 1, true), 2, 1, 1), "a third would begin in the padding at the end");
static_assert(is(window_axis(4, 1, 3, 0, true), 2, 0, 0) && is(window_axis(5, 1, 3, 0, true), 2, 0, 0));
static_assert(is(window_axis(2, 3, 2, 0, true), 1, 0, 1) && is(window_axis(1, 3, 2, 0, true), 0, 0, 0));

// A window of 3 with dilation 2 covers what one of 5 does.
static_assert(is(window_axis(24, 3, 1, Padding::same, 2), 24, 2, 2));
static_assert(is(window_axis(24, 3, 1, Padding::valid, 2), 20, 0, 0));
static_assert(is(window_axis(7, 3, 2, Padding::same, 3), 4, 3, 3));
static_assert(is(window_axis(8, 2, 1, Padding::same, 4), 8, 2, 2));
static_assert(is(window_axis(6, 3, 1, Padding::valid, 3), 0, 0, 0), "the window covers 7");
static_assert(is(window_axis(32, 3, 2, 2, false, 2), 16, 2, 2) && window_axis(32, 3, 2, 2, false, 2).dilation == 2);
static_assert(window_axis(24, 3, 1, Padding::same).dilation == 1);

// 24 outputs of 5 taps, less 2 + 1 at each end.
static_assert(window_offsets_inside(window_axis(24, 5, 1, Padding::same)) == 24 * 5 - 6);
static_assert(window_offsets_inside(window_axis(24, 5, 1, Padding::valid)) == 20 * 5);
static_assert(window_offsets_inside(window_axis(24, 3, 2, Padding::same)) == 12 * 3 - 1);
static_assert(window_offsets_inside(window_axis(1, 5, 1, Padding::same)) == 1);
static_assert(window_offsets_inside(window_axis(24, 3, 1, Padding::same, 2)) == 24 * 3 - 4);

// An axis longer than a compiler's limit on the turns of a loop (262,144 in g++).
static_assert(window_offsets_inside(window_axis(480'000, 5, 1, Padding::same)) == 480'000 * 5 - 6);
// And such a window with dilation: each output has every other input.
static_assert(window_offsets_inside(window_axis(8, 10'000'001, 1, Padding::same, 2)) == 8 * 4);
static_assert(window_offsets_inside(window_axis(480'000, 3, 1, Padding::same, 5)) == 480'000 * 3 - 10);
static_assert(window_offsets_inside(window_axis(480'000, 400'000, 1, Padding::valid)) == 80'001LL * 400'000);
static_assert(Sequential<Input<1, 480'000, 1>, Conv2d<2, 3>, GlobalAvgPool2d, Linear<2>>::layers.size() > 0);

TEST_CASE("the window offsets inside an image are those found one by one, for every small size and padding") {
    const auto counted = [](const WindowAxis& axis) {
        std::int64_t taps = 0;
        for (std::int64_t o = 0; o < axis.output; ++o) {
            for (std::int64_t k = 0; k < axis.window; ++k) {
                const std::int64_t at = o * axis.stride - axis.pad_begin + k * axis.dilation;
                taps += at >= 0 && at < axis.input ? 1 : 0;
            }
        }
        return taps;
    };
    std::int64_t axes = 0;
    for (std::int64_t input = 1; input <= 12; ++input) {
        for (std::int64_t window = 1; window <= 7; ++window) {
            for (std::int64_t stride = 1; stride <= 5; ++stride) {
                for (const std::int64_t dilation : {1, 2, 3, 7}) {
                    CAPTURES(input, window, stride, dilation);
                    std::vector<WindowAxis> cases{window_axis(input, window, stride, Padding::same, dilation),
                                                  window_axis(input, window, stride, Padding::valid, dilation)};
                    // Also padding that whole windows lie in.
                    for (std::int64_t pad = 0; pad <= 9; ++pad)
                        cases.push_back(window_axis(input, window, stride, pad, false, dilation));
                    for (const WindowAxis& axis : cases) CHECK(window_offsets_inside(axis) == counted(axis));
                    axes += static_cast<std::int64_t>(cases.size());
                }
            }
        }
    }
    CHECK(axes == 12 * 7 * 5 * 4 * 12);
}

TEST_CASE("windows agree with TensorFlow's formulas for every small size") {
    for (std::int64_t input = 1; input <= 30; ++input) {
        for (std::int64_t window = 1; window <= 7; ++window) {
            for (std::int64_t stride = 1; stride <= 5; ++stride) {
                for (const std::int64_t dilation : {1, 2, 5}) {
                    CAPTURES(input, window, stride, dilation);
                    const reference::Axis padded = reference::same(input, window, stride, dilation);
                    CHECK(is(window_axis(input, window, stride, Padding::same, dilation), padded.output,
                             padded.pad_begin, padded.pad_end));
                    const WindowAxis axis = window_axis(input, window, stride, Padding::valid, dilation);
                    const bool fits = (window - 1) * dilation < input;
                    CHECK(is(axis, fits ? reference::valid(input, window, stride, dilation).output : 0, 0, 0));
                }
            }
        }
    }
}

TEST_CASE("windows agree with PyTorch's definition for every small size, and each contains an input") {
    for (std::int64_t input = 1; input <= 12; ++input) {
        for (std::int64_t window = 1; window <= 7; ++window) {
            for (std::int64_t stride = 1; stride <= 8; ++stride) {
                for (std::int64_t pad = 0; pad <= window / 2; ++pad) {
                    for (const bool ceil_mode : {false, true}) {
                        CAPTURES(input, window, stride, pad, ceil_mode);
                        const reference::Axis expected = reference::padded(input, window, stride, pad, ceil_mode);
                        const WindowAxis axis = window_axis(input, window, stride, pad, ceil_mode);
                        CHECK(axis.output == expected.output);
                        for (const std::int64_t dilation : {2, 3})
                            CHECK(window_axis(input, window, stride, pad, ceil_mode, dilation).output ==
                                  reference::padded(input, window, stride, pad, ceil_mode, dilation).output);
                        if (axis.output < 1) continue;
                        CHECK(is(axis, expected.output, pad, expected.pad_end));
                        const std::int64_t last = axis.output - 1;
                        CHECK(window_inside(axis, std::int64_t{0}) > 0);
                        CHECK(window_inside(axis, last) > 0);
                        CHECK(static_cast<std::int64_t>(counted_window(axis, last)) ==
                              std::min(window, input + pad - window_start(axis, last)));
                    }
                }
            }
        }
    }
}

TEST_CASE("the inputs of a window, and the windows of an input, are those of plain loops") {
    for (const std::int64_t input : {1, 2, 5, 7, 12}) {
        for (const std::int64_t window : {1, 2, 3, 5}) {
            for (const std::int64_t stride : {1, 2, 3, 6}) {
                for (const std::int64_t pad : {0, 1, 2}) {
                    const WindowAxis axis = window_axis(input, window, stride, pad);
                    INFO("input ", input, ", window ", window, ", stride ", stride, ", padding ", pad);
                    std::vector<std::int64_t> first(static_cast<std::size_t>(input), axis.output),
                        last(static_cast<std::size_t>(input), -1);
                    for (std::int64_t output = 0; output < axis.output; ++output) {
                        std::int64_t begin = input, end = 0, inside = 0;
                        for (std::int64_t offset = 0; offset < window; ++offset) {
                            const std::int64_t at = output * stride - pad + offset;
                            if (at < 0 || at >= input) continue;
                            begin = std::min(begin, at), end = at + 1, ++inside;
                            const auto place = static_cast<std::size_t>(at);
                            first[place] = std::min(first[place], output), last[place] = output;
                        }
                        CHECK(window_start(axis, output) == output * stride - pad);
                        if (inside == 0) continue;
                        CHECK(window_inside(axis, output) == inside);
                        CHECK(window_begin(axis, output) == begin);
                        CHECK(window_end(axis, output) == end);
                    }
                    for (std::int64_t at = 0; at < input; ++at) {
                        const auto place = static_cast<std::size_t>(at);
                        if (last[place] < 0) {
                            CHECK(first_output(axis, at) > last_output(axis, at));
                        } else {
                            CHECK(first_output(axis, at) == first[place]);
                            CHECK(last_output(axis, at) == last[place]);
                        }
                    }
                }
            }
        }
    }
}
