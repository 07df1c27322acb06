// SPDX-License-Identifier: Apache-2.0
//
// Two-dimensional convolution (cross-correlation: the filter is not flipped), with bias and an optional fused ReLU.
//
//   y[n,i,j,o] = bias[o] + sum over a, b, c of x[n, i*s + a - pad, j*s + b - pad, c] * weight[o,a,b,c]
//
// Activations are channels last; weights are [out, height, width, in]. Parameters: 0 the weight, 1 the bias.
#pragma once

#include <cstdint>

#include <cupola/ops/operation.hpp>
#include <cupola/ops/window.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

struct ConvolutionShape {
    WindowAxis height, width;
    std::int64_t in_channels = 0, out_channels = 0;
    bool bias = true;
};

namespace ops {

/// Made as `Convolution(build, shape)`; specialised by each backend.
template <class Device, class T>
class Convolution;

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
