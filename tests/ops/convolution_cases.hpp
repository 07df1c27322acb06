// SPDX-License-Identifier: Apache-2.0
//
// The convolutions that the tests of the operation run, and for which the tests of cuDNN's plans make plans without a GPU.
#pragma once

#include <cupola/core/error.hpp>
#include <cupola/ops/convolution.hpp>

#include "../standard.hpp"

namespace convolution_cases {

struct Case {
    std::int64_t batch, height, width, in, out, kernel, stride;
    cupola::Padding padding = cupola::Padding::same;
    bool bias = true;
};

[[nodiscard]] inline std::string describe(const Case& c) {
    return cupola::text("batch ", c.batch, ", ", c.height, " x ", c.width, " x ", c.in, " -> ", c.out, ", kernel ",
                        c.kernel, ", stride ", c.stride, c.padding == cupola::Padding::same ? ", same" : ", valid",
                        c.bias ? ", bias" : "");
}

[[nodiscard]] inline cupola::ConvolutionShape shape_of(const Case& c) {
    return {cupola::window_axis(c.height, c.kernel, c.stride, c.padding),
            cupola::window_axis(c.width, c.kernel, c.stride, c.padding), c.in, c.out, c.bias};
}

/// Kernels and strides in all combinations; channels, sizes, batches and bias change from one to the next with periods
/// that share no factor, so that the values meet in many combinations.
[[nodiscard]] inline std::vector<Case> cases() {
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

}  // namespace convolution_cases
