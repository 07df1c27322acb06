// SPDX-License-Identifier: Apache-2.0
//
// Local response normalisation over channels (Krizhevsky, Sutskever, Hinton 2012), with TensorFlow's parameters:
//
//   s[c] = sum of x[c']^2 over c' in [c - radius, c + radius], inside the channels
//   y[c] = x[c] / (bias + alpha * s[c])^beta
//
// `alpha` multiplies each square; cuDNN, oneDNN and PyTorch divide theirs by the window's size.
#pragma once

#include <cstdint>

#include <cupola/ops/operation.hpp>

namespace cupola::inline CUPOLA_ABI {

struct LocalResponseNormShape {
    std::int64_t channels = 0;
    std::int64_t radius = 0;
    float bias = 1.0F, alpha = 1.0F, beta = 0.5F;
};

namespace ops {

/// Made as `LocalResponseNorm(build, shape)`; specialised by each backend.
template <class Device, class T>
class LocalResponseNorm;

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
