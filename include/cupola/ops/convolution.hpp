// SPDX-License-Identifier: Apache-2.0
//
// Two-dimensional convolution (cross-correlation: the filter is not flipped), with bias and an optional fused ReLU or
// ReLU6.
//
//   y[n,i,j,o] = bias[o] + sum over a, b, c of x[n, i*s + a*d - pad, j*s + b*d - pad, c + g*C] * weight[o,a,b,c]
//
// with the stride s and the dilation d, each with a value for height and one for width. Input and output channels are
// divided into `groups` ranges of the same size: an output channel in range g reads the C = in / groups input channels
// of range g. Activations are channels last; weights are [out, height, width, in / groups]. Parameters: 0 the weight, 1
// the bias.
#pragma once

#include <cstdint>

#include <cupola/ops/operation.hpp>
#include <cupola/ops/window.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

struct ConvolutionShape {
    WindowAxis height, width;
    std::int64_t in_channels = 0, out_channels = 0;
    bool bias = true;
    /// A divisor of both numbers of channels.
    std::int64_t groups = 1;

    /// The input channels that an output channel reads.
    [[nodiscard]] constexpr std::int64_t group_channels() const { return in_channels / groups; }
    [[nodiscard]] constexpr std::int64_t weights() const {
        return out_channels * height.window * width.window * group_channels();
    }
    /// Whether it has neither groups nor dilation.
    [[nodiscard]] constexpr bool is_dense() const { return groups == 1 && height.dilation == 1 && width.dilation == 1; }
};

namespace ops {

/// Made as `Convolution(build, shape)`; specialised by each backend.
template <class Device, class T>
class Convolution;

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
