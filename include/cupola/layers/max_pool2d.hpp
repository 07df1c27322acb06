// SPDX-License-Identifier: Apache-2.0
//
// MaxPool2d<window, stride = window, padding = same>: the maximum over each window, per channel. Padding is
// never the maximum.
//
//   input   height x width x channels
//   output  with `same`, ceil(height / stride) x ceil(width / stride) x channels; odd padding is larger at the end.
//           With `valid`, (height - window) / stride + 1 rows, rounded down, and likewise columns. pad(n) is `valid`
//           after n rows and columns on each side, at most half of the window
#pragma once

#include <cupola/layers/impl/pool2d.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

template <std::int64_t window, std::int64_t stride = window, auto padding = Padding::same>
struct MaxPool2d : impl::Pool2d<PoolingKind::max, window, stride, padding> {};

}}  // namespace cupola::CUPOLA_ABI
