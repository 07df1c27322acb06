// SPDX-License-Identifier: Apache-2.0
//
// The loss of a batch in a step: a loss's operation writes a LossReport, which the host reads when the step is
// complete. An operation that has only `forward`, as a user's own loss on `Host` may, runs on the thread of the step.
#pragma once

#include <concepts>
#include <cstdint>

#include <cupola/core/finite.hpp>
#include <cupola/ops/loss_report.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Whether the operation, which is of outputs in float, can be queued for outputs in T, and writes their gradient in
/// it.
template <class Operation, class T>
inline constexpr bool queues_type =
    !std::same_as<T, float> && requires(const Operation& operation) { operation.template in_type<T>(); };

template <class Operation, class Context, class Target>
void queue_loss(const Operation& operation, Context& context, const float* outputs, const Target* targets,
                std::int64_t batch, float* gradient, LossReport* report) {
    if constexpr (requires { operation.queue(context, outputs, targets, batch, gradient, report); }) {
        operation.queue(context, outputs, targets, batch, gradient, report);
    } else {
        const LossResult result = operation.forward(context, outputs, targets, batch, gradient);
        // A negative weight is reported with the step; the sum, which is not finite, keeps the step from changing
        // anything.
        *report = {.sum = result.weight < 0 ? not_a_number<double>() : result.sum,
                   .correct = result.correct,
                   .weight = result.weight,
                   .predictions = result.predictions,
                   .bad_target = -1,
                   .bad_value = 0};
    }
}

/// The result of a report. Throws InvalidArgument for a label that is not a class.
template <class Operation>
[[nodiscard]] LossResult result_of_loss(const Operation& operation, const LossReport& report) {
    if constexpr (requires { operation.result_of(report); }) {
        return operation.result_of(report);
    } else {
        return result_of(report);
    }
}

}}}  // namespace cupola::CUPOLA_ABI::impl
