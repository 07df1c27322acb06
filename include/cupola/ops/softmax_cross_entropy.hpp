// SPDX-License-Identifier: Apache-2.0
//
// Softmax and cross-entropy in one pass, forward and backward. With target q (1 - smoothing on the label's class plus
// smoothing / classes on each, PyTorch's rule) and p = softmax(z):
//
//   loss = sum over samples of -sum over c of q[c] log p[c],    dz = (p - q) / samples
#pragma once

#include <cstdint>

#include <cupola/ops/operation.hpp>

namespace cupola::inline CUPOLA_ABI {

/// What a loss says of one batch.
struct LossResult {
    /// The sum over the samples.
    double sum = 0;
    /// How many samples had their label's class on top (no other class has a larger logit, ties going to the first).
    std::int64_t correct = 0;
};

namespace ops {

/// Made as `SoftmaxCrossEntropy(context, batch, classes, smoothing)`; specialised by each backend.
///   LossResult forward(logits, labels, gradient)   gradient may be null
/// Throws InvalidArgument for a label outside [0, classes).
template <class Device, class T>
class SoftmaxCrossEntropy;

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
