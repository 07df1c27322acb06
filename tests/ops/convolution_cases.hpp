// SPDX-License-Identifier: Apache-2.0
//
// The convolutions that the tests of the operation run, and for which the tests of cuDNN's plans make plans without a GPU.
#pragma once

#include <cupola/core/error.hpp>
#include <cupola/ops/convolution.hpp>

#include "../standard.hpp"

namespace convolution_cases {

/// A size of a window, one number for both directions or two.
struct Sides {
    std::int64_t height, width;
    constexpr Sides(std::int64_t both) : height(both), width(both) {}  // NOLINT: a number is the usual size
    constexpr Sides(std::int64_t h, std::int64_t w) : height(h), width(w) {}
};

struct Case {
    std::int64_t batch, height, width, in, out;
    Sides kernel, stride;
    cupola::Padding padding = cupola::Padding::same;
    bool bias = true;
    Sides dilation = 1;
    std::int64_t groups = 1;
    /// Used in place of `padding` where it is not negative.
    Sides pad = -1;
};

[[nodiscard]] inline std::string describe(const Case& c) {
    const auto sides = [](const Sides& s) { return cupola::text(s.height, " x ", s.width); };
    return cupola::text("batch ", c.batch, ", ", c.height, " x ", c.width, " x ", c.in, " -> ", c.out, ", kernel ",
                        sides(c.kernel), ", stride ", sides(c.stride), ", dilation ", sides(c.dilation), ", ", c.groups,
                        " groups",
                        c.pad.height >= 0                    ? cupola::text(", pad ", sides(c.pad))
                        : c.padding == cupola::Padding::same ? ", same"
                                                             : ", valid",
                        c.bias ? ", bias" : "");
}

[[nodiscard]] inline cupola::ConvolutionShape shape_of(const Case& c) {
    const auto axis = [&c](std::int64_t size, std::int64_t Sides::*along) {
        return c.pad.*along >= 0
                   ? cupola::window_axis(size, c.kernel.*along, c.stride.*along, c.pad.*along, false, c.dilation.*along)
                   : cupola::window_axis(size, c.kernel.*along, c.stride.*along, c.padding, c.dilation.*along);
    };
    return {axis(c.height, &Sides::height), axis(c.width, &Sides::width), c.in, c.out, c.bias, c.groups};
}

/// Rectangular kernels, strides and dilations in all combinations, where groups, channels, padding, sizes and bias change
/// from one to the next as in dense_cases().
[[nodiscard]] inline std::vector<Case> sparse_cases() {
    std::vector<Case> result;
    struct Channels {
        std::int64_t in, out, groups;
    };
    // Depthwise among them, with one output per input channel and with two.
    const std::vector<Channels> channels{{8, 8, 2}, {16, 16, 16}, {3, 5, 1},   {6, 9, 3},  {16, 32, 4}, {3, 3, 3},
                                         {4, 8, 4}, {32, 16, 2},  {16, 64, 1}, {5, 10, 5}, {96, 96, 96}};
    const std::vector<std::pair<std::int64_t, std::int64_t>> sizes{{11, 9}, {10, 13}, {12, 10}, {10, 10}, {13, 11}};
    const std::vector<std::int64_t> batches{1, 3, 2};
    std::size_t i = 0;
    for (const Sides kernel : {Sides(3), Sides(3, 5), Sides(1, 3), Sides(4, 2), Sides(1)}) {
        for (const Sides stride : {Sides(1), Sides(2, 1), Sides(3)}) {
            for (const Sides dilation : {Sides(1), Sides(2), Sides(1, 2), Sides(3, 1)}) {
                const auto [in, out, groups] = channels[i % channels.size()];
                const auto [height, width] = sizes[i % sizes.size()];
                Case c{batches[i % 3], height, width, in, out, kernel, stride};
                const std::size_t padding = (i + i / 4) % 3;
                c.padding = padding == 1 ? cupola::Padding::valid : cupola::Padding::same;
                c.bias = i % 7 != 3;
                c.dilation = dilation;
                c.groups = groups;
                // As many zeros as a kernel of this size has around its middle, and one row more.
                if (padding == 2) c.pad = {kernel.height / 2 + (kernel.height > 1 ? 1 : 0), kernel.width / 2};
                result.push_back(c);
                ++i;
            }
        }
    }
    // An image of one pixel, of which the other elements of a window are outside.
    result.push_back({1, 1, 1, 4, 8, 3, 1, cupola::Padding::same, true, 2, 2});
    return result;
}

/// Kernels and strides in all combinations; channels, sizes, batches and bias change from one to the next with periods
/// that share no factor, so that the values meet in many combinations.
[[nodiscard]] inline std::vector<Case> dense_cases() {
    std::vector<Case> result;
    const std::vector<std::pair<std::int64_t, std::int64_t>> channels{
        {3, 64}, {1, 1}, {5, 16}, {16, 5}, {64, 64}, {64, 3}, {1, 16}, {16, 1}, {5, 3}, {16, 64}, {3, 5}};
    const std::vector<std::pair<std::int64_t, std::int64_t>> sizes{{7, 9}, {8, 5}, {5, 5}, {12, 6}, {6, 13}};
    const std::vector<std::int64_t> batches{1, 3, 17};
    std::size_t i = 0;
    for (const std::int64_t kernel : {1, 2, 3, 5}) {
        for (const std::int64_t stride : {1, 2, 3}) {
            for (const cupola::Padding padding : {cupola::Padding::same, cupola::Padding::valid}) {
                const auto [in, out] = channels[i % channels.size()];
                const auto [height, width] = sizes[i % sizes.size()];
                result.push_back({batches[i % 3], height, width, in, out, kernel, stride, padding, i % 7 != 3});
                ++i;
            }
        }
    }
    for (const auto& [in, out] : channels) result.push_back({3, 9, 7, in, out, 3, 1, cupola::Padding::same, true});
    result.push_back({1, 1, 1, 3, 5, 1, 1, cupola::Padding::same, true});
    result.push_back({2, 1, 1, 16, 16, 3, 1, cupola::Padding::same, true});
    result.push_back({2, 24, 24, 3, 64, 5, 1, cupola::Padding::same, true});  // the tutorial's
    result.push_back({2, 12, 12, 64, 64, 5, 1, cupola::Padding::same, true});
    return result;
}

[[nodiscard]] inline std::vector<Case> cases() {
    std::vector<Case> result = dense_cases();
    for (const Case& c : sparse_cases()) result.push_back(c);
    return result;
}

}  // namespace convolution_cases
