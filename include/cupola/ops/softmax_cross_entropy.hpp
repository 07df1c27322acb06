// SPDX-License-Identifier: Apache-2.0
//
// Softmax and cross-entropy in one pass, forward and backward. With target q (1 - smoothing on the label's class plus
// smoothing / classes on each, PyTorch's rule) and p = softmax(z):
//
//   loss = sum over samples of -sum over c of q[c] log p[c],    dz = (p - q) / samples
#pragma once

#include <cstdint>

#include <cupola/core/error.hpp>
#include <cupola/ops/operation.hpp>

namespace cupola::inline CUPOLA_ABI {

/// What a loss says of one batch.
struct LossResult {
    /// The sum over the samples.
    double sum = 0;
    /// How many samples had their label's class on top (no other class has a larger logit, ties going to the first).
    std::int64_t correct = 0;
};

/// What a loss leaves of one batch in memory that the host reads when the step is complete.
struct LossReport {
    /// The sum over the samples; not a number where a label is no class.
    double sum;
    std::int64_t correct;
    /// The first sample whose label is no class, -1 where there is none, and that label.
    std::int64_t bad_sample;
    std::int32_t bad_label;
};

namespace impl {

/// The result in a report. Throws InvalidArgument for a label that is no class.
[[nodiscard]] inline LossResult result_of(const LossReport& report, std::int64_t classes) {
    require(report.bad_sample < 0, "sample ", report.bad_sample, " of the batch has label ", report.bad_label,
            ", and the loss has classes 0 to ", classes - 1);
    return {.sum = report.sum, .correct = report.correct};
}

}  // namespace impl

namespace ops {

/// Made as `SoftmaxCrossEntropy(context, batch, classes, smoothing)`; specialised by each backend.
///   LossResult forward(logits, labels, gradient)      gradient may be null; throws InvalidArgument for a label outside
///                                                     [0, classes)
///   void queue(logits, labels, gradient, report)      the same in a step, which may run later: a bad label is in the report
///   LossResult result_of(report)                      what the host reads of it; throws for a bad label
template <class Device, class T>
class SoftmaxCrossEntropy;

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
