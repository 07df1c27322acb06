// SPDX-License-Identifier: Apache-2.0
//
// AvgPool1d<window, stride = window, padding = same, options...>: the mean over each window of a sequence, per channel.
//
//   window    n
//   stride    n or stride(n)
//   padding   same, valid or pad(n), at most half of the window; ceil_mode with the last two
//   counted   the padding of `same`, and what `ceil_mode` adds at the end, is not counted; that of pad(n) counts as
//             zeros (count_padding, as in PyTorch), or does not with ignore_padding
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
struct AvgPool1d : impl::Pool1d<PoolingKind::average, window, stride, padding, options...> {};

}}  // namespace cupola::CUPOLA_ABI
