// SPDX-License-Identifier: Apache-2.0
//
// Softmax and cross-entropy in one pass, forward and backward. With target q (1 - smoothing on the label's class plus
// smoothing / classes on every class, as in PyTorch) and p = softmax(z):
//
//   loss = sum over samples of -sum over c of q[c] log p[c],    dz = (p - q) / samples
#pragma once

#include <cstdint>

#include <cupola/core/error.hpp>
#include <cupola/ops/loss_report.hpp>
#include <cupola/ops/operation.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

/// Converts a report. Throws InvalidArgument for a label outside [0, classes).
[[nodiscard]] inline LossResult result_of(const LossReport& report, std::int64_t classes) {
    require(report.bad_target < 0, "sample ", report.bad_target, " of the batch has label ", report.bad_value,
            ", but the loss has classes 0 to ", classes - 1);
    return result_of(report);
}

}  // namespace impl

namespace ops {

/// Made as `SoftmaxCrossEntropy(context, batch, classes, smoothing)`; specialised by each backend.
///   LossResult forward(logits, labels, gradient)      gradient may be null; throws InvalidArgument for a label outside
///                                                     [0, classes)
///   void queue(logits, labels, gradient, report)      the same, queued within a step: the report holds a bad label
///   LossResult result_of(report)                      converts the report on the host; throws for a bad label
template <class Device, class T>
class SoftmaxCrossEntropy;

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
