// SPDX-License-Identifier: Apache-2.0
//
// AvgPool2d<window, stride = window, padding = same>: the mean over each window, per channel. Padding is not counted
// (as in TensorFlow).
//
//   input   height x width x channels
//   output  ceil(height / stride) x ceil(width / stride) x channels with `same`; an odd padding is larger at the end
#pragma once

#include <cupola/layers/impl/pool2d.hpp>

namespace cupola::inline CUPOLA_ABI {

template <std::int64_t window, std::int64_t stride = window, Padding padding = Padding::same>
struct AvgPool2d : impl::Pool2d<PoolingKind::average, window, stride, padding> {};

}  // namespace cupola::inline CUPOLA_ABI
