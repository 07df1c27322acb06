// SPDX-License-Identifier: Apache-2.0
//
// BatchNorm1d<epsilon = 1e-5, decay = 0.9>: batch normalisation per channel, over the batch and the length
// (ops/batch_norm.hpp has the formula).
//
//   input         channels, or length x channels
//   output        the same
//   weight        [channels], initially one
//   bias          [channels], initially zero
//   running_mean, running_var   [channels], buffers, initially zero and one. `decay` is the weight of the old value in
//                 the update with a batch (TensorFlow's name; PyTorch's momentum is 1 - decay)
#pragma once

#include <cupola/layers/impl/batch_norm.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

template <Number epsilon = 1e-5, Number decay = 0.9>
struct BatchNorm1d : impl::BatchNormOf<epsilon, decay, false> {};

}}  // namespace cupola::CUPOLA_ABI
