// SPDX-License-Identifier: Apache-2.0
//
// The loss of one batch: the result that the host computes with, and the report that a device leaves in its memory
// within a step.
//
// A sample whose loss is made of several parts, one per position or element, has the mean over them. `weight` is in the
// same unit: a batch without weights has the weight of its number of samples, and the mean loss is sum / weight. The
// gradient that a loss writes is that of sum / batch, weighted or not, so the gradients of several batches are averaged
// by their samples and then multiplied once by samples / weight.
#pragma once

#include <cstdint>

#include <cupola/core/abi.hpp>
#include <cupola/core/extents.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// The loss of one batch, as returned to the host.
struct LossResult {
    /// The sum over the samples of weight times loss.
    double sum = 0;
    /// The number of predictions whose largest logit is that of the label's class (of equal logits the first counts).
    std::int64_t correct = 0;
    /// The sum of the samples' weights; the number of samples where the loss has none.
    double weight = 0;
    /// The number of predictions that `correct` is counted among: one per label that is not ignored; 0 for a loss whose
    /// targets are not classes.
    std::int64_t predictions = 0;
};

/// The loss of one batch in memory that the host reads after the step is complete.
struct LossReport {
    /// As in LossResult; NaN where a target is invalid.
    double sum;
    std::int64_t correct;
    double weight;
    std::int64_t predictions;
    /// The index of the first invalid target among the batch's, or -1 if there is none, and its bits.
    std::int64_t bad_target;
    std::int32_t bad_value;
};

namespace impl {

/// The report of no losses.
inline constexpr LossReport no_loss{
    .sum = 0, .correct = 0, .weight = 0, .predictions = 0, .bad_target = -1, .bad_value = 0};

CUPOLA_HOST_DEVICE inline void add_report(LossReport& to, const LossReport& other) {
    to.sum += other.sum;
    to.correct += other.correct;
    to.weight += other.weight;
    to.predictions += other.predictions;
    if (other.bad_target >= 0 && (to.bad_target < 0 || other.bad_target < to.bad_target)) {
        to.bad_target = other.bad_target;
        to.bad_value = other.bad_value;
    }
}

/// By what a loss multiplies the gradient that it writes, before it rounds it to the outputs' type: factor, times *by
/// unless `by` is null, which is in the device's memory; the product is rounded to float.
struct GradientFactor {
    double factor = 1;
    const float* by = nullptr;

    [[nodiscard]] CUPOLA_HOST_DEVICE float value() const {
        return static_cast<float>(by == nullptr ? factor : factor * static_cast<double>(*by));
    }
};

/// The operation of a loss on `Device` for outputs of these extents, which the loss may not need.
template <class Device, class Loss>
[[nodiscard]] auto loss_operation(const Loss& loss, [[maybe_unused]] const Shape& output) {
    if constexpr (requires { loss.template operation<Device>(output); }) {
        return loss.template operation<Device>(output);
    } else {
        return loss.template operation<Device>();
    }
}

/// Adds a loss of the same batch times a factor: see TrainingStep::sum_losses.
CUPOLA_HOST_DEVICE inline void add_loss(LossReport& to, const LossReport& loss, double factor, bool first) {
    to.sum += factor * loss.sum;
    if (first) to.weight = loss.weight;
    if (to.predictions > 0) return;
    to.correct = loss.correct;
    to.predictions = loss.predictions;
}

/// The result of a report without an invalid target.
[[nodiscard]] inline LossResult result_of(const LossReport& report) {
    return {.sum = report.sum, .correct = report.correct, .weight = report.weight, .predictions = report.predictions};
}

}  // namespace impl

}}  // namespace cupola::CUPOLA_ABI
