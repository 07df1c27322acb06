// SPDX-License-Identifier: Apache-2.0
//
// Upsampling by repetition ("nearest"): each pixel becomes a square of factor x factor equal pixels. Backward adds the
// gradients of each square, row by row, in float.
//
//   y[n,i,j,c] = x[n, i / factor, j / factor, c]
#pragma once

#include <cstdint>

#include <cupola/ops/operation.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// Height, width and channels are those of the input.
struct UpsamplingShape {
    std::int64_t height = 0, width = 0, channels = 0, factor = 1;
};

namespace ops {

/// Made as `Upsampling(build, shape)`; specialised by each backend.
template <class Device, class T>
class Upsampling;

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
