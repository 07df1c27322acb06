// SPDX-License-Identifier: Apache-2.0
//
// MaxPool1d<window, stride = window, padding = same, options...>: the maximum over each window of a sequence, per
// channel. Padding is never the maximum.
//
//   window    n
//   stride    n or stride(n)
//   padding   same, valid or pad(n), at most half of the window; ceil_mode with the last two
//
//   input     length x channels
//   output    ceil(length / stride) x channels with `same`; odd padding is larger at the end. With `valid`,
//             (length - window) / stride + 1 positions, rounded down. pad(n) is `valid` after n positions at each end.
//             With `ceil_mode` the quotient is rounded up, unless the last window would begin behind the input, as in
//             PyTorch
#pragma once

#include <cupola/layers/impl/pool1d.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

template <auto window, auto stride = window, auto padding = Padding::same, auto... options>
struct MaxPool1d : impl::Pool1d<PoolingKind::max, window, stride, padding, options...> {};

}}  // namespace cupola::CUPOLA_ABI
