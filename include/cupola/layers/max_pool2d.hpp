// SPDX-License-Identifier: Apache-2.0
//
// MaxPool2d<window, stride = window, padding = same, options...>: the maximum over each
// window, per channel. Padding is never the maximum.
//
//   window    n, or window(height, width) where they differ
//   stride    n, or stride(height, width)
//   padding   same, valid, pad(n) or pad(height, width), at most half of the window; ceil_mode with the last three
//
//   input     height x width x channels
//   output    with `same`, ceil(height / stride) x ceil(width / stride) x channels; odd padding is larger at the end.
//             With `valid`, (height - window) / stride + 1 rows, rounded down, and likewise columns. pad(n) is `valid`
//             after n rows and columns on each side. With `ceil_mode` the quotient is rounded up, unless the last
//             window would begin behind the input, as in PyTorch
#pragma once

#include <cupola/layers/impl/pool2d.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

template <auto window, auto stride = window, auto padding = Padding::same, auto... options>
struct MaxPool2d : impl::Pool2d<PoolingKind::max, window, stride, padding, options...> {};

}}  // namespace cupola::CUPOLA_ABI
