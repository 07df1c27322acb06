// SPDX-License-Identifier: Apache-2.0
//
// A loss that is a mean over elements, each of an output x and a target t. Its formula is the same for all devices and
// uses functions that compilers can vectorise (ops/math.hpp):
//
//   struct LogCosh {
//       CUPOLA_HOST_DEVICE float operator()(float x, float t) const {
//           const float d = math::abs(x - t);
//           return d + math::log1p(math::exp(-2.0F * d)) - 0.69314718F;
//       }
//       CUPOLA_HOST_DEVICE float derivative(float x, float t) const { return math::tanh(x - t); }
//   };
//
// The loss of a sample is the mean over its elements, so that of a batch is the mean over all elements. Values are
// floats, which are added in double in an order that depends only on their number. Backward writes
//
//   dx = derivative(x, t) / (batch elements)
//
// A target that is not finite is invalid. A formula that accepts fewer targets has `accepts(t)`, and a text for the
// error:
//
//   CUPOLA_HOST_DEVICE bool accepts(float t) const { return t >= 0.0F && t <= 1.0F; }
//   static constexpr std::string_view accepted = "from 0 to 1";
#pragma once

#include <concepts>
#include <cstdint>
#include <string_view>

#include <cupola/core/error.hpp>
#include <cupola/core/finite.hpp>
#include <cupola/ops/elementwise.hpp>
#include <cupola/ops/loss_report.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

template <class Formula>
concept HasLossValue = requires(const Formula& f, float output, float target) {
    { f(output, target) } -> std::same_as<float>;
};

}  // namespace impl

/// The formula of a loss per element.
template <class Formula>
concept LossFormula = impl::HasLossValue<Formula> && requires(const Formula& f, float output, float target) {
    { f.derivative(output, target) } -> std::same_as<float>;
};

/// The same with a third argument, the weight of the element's channel: the last of the extents.
template <class Formula>
concept ChannelLossFormula = requires(const Formula& f, float output, float target, float weight) {
    { f(output, target, weight) } -> std::same_as<float>;
    { f.derivative(output, target, weight) } -> std::same_as<float>;
};

namespace impl {

template <class Formula>
[[nodiscard]] CUPOLA_HOST_DEVICE bool accepts_target(const Formula& formula, const float& target) {
    if constexpr (requires { formula.accepts(target); }) {
        return (static_cast<int>(is_finite_in_memory(target)) & static_cast<int>(formula.accepts(target))) != 0;
    } else {
        return is_finite_in_memory(target);
    }
}

/// The targets that a formula accepts, for messages.
template <class Formula>
[[nodiscard]] constexpr std::string_view accepted_targets() {
    if constexpr (requires { Formula::accepted; }) {
        return Formula::accepted;
    } else {
        return "finite";
    }
}

/// The report of a batch's loss, from the sum over its elements.
[[nodiscard]] CUPOLA_HOST_DEVICE inline LossReport elements_report(double sum, std::int64_t elements,
                                                                   std::int64_t batch, std::int64_t bad_target,
                                                                   std::int32_t bad_value) {
    return {.sum = bad_target < 0 ? sum / static_cast<double>(elements) : not_a_number<double>(),
            .correct = 0,
            .weight = static_cast<double>(batch),
            .predictions = 0,
            .bad_target = bad_target,
            .bad_value = bad_value};
}

/// Converts a report. Throws InvalidArgument for an invalid target; `accepted` describes valid ones.
[[nodiscard, gnu::cold]] LossResult result_of_elements(const LossReport& report, std::int64_t elements,
                                                       std::string_view accepted);

}  // namespace impl

namespace ops {

/// Made as `ElementwiseLoss(elements, formula)`, for `elements` per sample, or for a ChannelLossFormula as
/// `ElementwiseLoss(elements, formula, weights)`, with a weight per channel in the host's memory, which must exist as
/// long as the operation; specialised by each device.
///   LossResult forward(context, outputs, targets, batch, gradient)   gradient may be null; throws InvalidArgument for
///                                                                    an invalid target
///   void queue(context, outputs, targets, batch, gradient, report)   the same, queued within a step: the report holds
///                                                                    the invalid target
///   LossResult result_of(report)                                     converts the report on the host; throws for an
///                                                                    invalid target
template <class Device, class Formula>
    requires(LossFormula<Formula> || ChannelLossFormula<Formula>)
class ElementwiseLoss;

}  // namespace ops

namespace impl {

inline LossResult result_of_elements(const LossReport& report, std::int64_t elements, std::string_view accepted) {
    require(report.bad_target < 0, "sample ", report.bad_target / elements, " of the batch has target ",
            __builtin_bit_cast(float, report.bad_value), " at element ", report.bad_target % elements,
            ", but the loss expects targets that are ", accepted);
    return result_of(report);
}

}  // namespace impl

}}  // namespace cupola::CUPOLA_ABI
