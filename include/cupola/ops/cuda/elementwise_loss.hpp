// SPDX-License-Identifier: Apache-2.0
//
// Losses of a formula per element on `Cuda`: one kernel computes the gradient and partial sums of the losses, in double
// and in an order that depends only on the number of elements, and a second adds those. Outputs and targets are in the
// device's memory.
#pragma once

#include <cstdint>
#include <span>
#include <type_traits>

#include <cupola/device/cuda.hpp>
#include <cupola/ops/cuda/impl/launch.cuh>
#include <cupola/ops/elementwise_loss.hpp>
#include <cupola/ops/impl/kernel_parts/divisor.hpp>
#include <cupola/ops/impl/kernel_parts/weight_array.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

/// A sum of losses, and the first invalid target: 1 + its index, or 0 if there is none.
struct ElementsLoss {
    double sum;
    std::int64_t bad_target;

    CUPOLA_HOST_DEVICE ElementsLoss& operator+=(const ElementsLoss& other) {
        sum += other.sum;
        if (other.bad_target > 0 && (bad_target == 0 || other.bad_target < bad_target)) bad_target = other.bad_target;
        return *this;
    }
};

/// A formula with the weight of the channel of an element.
template <class Formula, std::size_t capacity>
struct WithChannelWeight {
    Formula formula;
    Divisor channels;
    WeightArray<capacity> weights;

    struct OfElement {
        const Formula& formula;
        float weight;

        CUPOLA_HOST_DEVICE float operator()(float x, float t) const { return formula(x, t, weight); }
        CUPOLA_HOST_DEVICE float derivative(float x, float t) const { return formula.derivative(x, t, weight); }
    };
    CUPOLA_HOST_DEVICE OfElement of(std::int64_t i) const { return {formula, weights[channels.divide(i).remainder]}; }
};

/// The same formula for every element.
template <class Formula>
struct OfEveryElement {
    Formula formula;

    CUPOLA_HOST_DEVICE const Formula& of(std::int64_t) const { return formula; }
};

/// The loss of element i; writes its gradient.
template <class Formulas>
struct LossOfElement {
    Formulas formulas;
    const float* outputs;
    const float* targets;
    float fraction;
    float* gradient;

    CUPOLA_HOST_DEVICE ElementsLoss operator()(std::int64_t i, std::int64_t) const {
        const auto& formula = formulas.of(i);
        const float x = outputs[i], t = targets[i];
        if (gradient != nullptr) gradient[i] = formula.derivative(x, t) * fraction;
        return {static_cast<double>(formula(x, t)), accepts_target(formulas.formula, t) ? 0 : i + 1};
    }
};

/// Writes the report of the sum of all elements.
struct ElementsReportTo {
    const float* targets;
    std::int64_t elements, batch;
    LossReport* report;

    CUPOLA_HOST_DEVICE void operator()(std::int64_t, const ElementsLoss& loss) const {
        const std::int64_t bad = loss.bad_target - 1;
        *report = elements_report(loss.sum, elements, batch, bad,
                                  bad < 0 ? 0 : __builtin_bit_cast(std::int32_t, targets[bad]));
    }
};

}  // namespace impl

namespace ops {

template <class Formula>
class ElementwiseLoss<Cuda, Formula> {
public:
    explicit ElementwiseLoss(std::int64_t elements, const Formula& formula = {},
                             std::span<const float> channel_weights = {})
        : elements_(elements), formula_(formula), channel_weights_(channel_weights) {
        impl::require_weight_capacity(channel_weights.size());
    }

    /// Queues the loss of a batch. `report` is in the device's memory, or in pinned memory of the host.
    void queue(const CudaContext& context, const float* outputs, const float* targets, std::int64_t batch,
               float* gradient, LossReport* report) const {
        const std::int64_t count = batch * elements_;
        const auto queue_with = [&](const auto& formulas) {
            impl::reduce<impl::ElementsLoss>(
                context, count,
                impl::LossOfElement<std::remove_cvref_t<decltype(formulas)>>{
                    formulas, outputs, targets, static_cast<float>(1.0 / static_cast<double>(count)), gradient},
                impl::ElementsReportTo{targets, elements_, batch, report});
        };
        if constexpr (LossFormula<Formula>) {
            queue_with(impl::OfEveryElement<Formula>{formula_});
        } else if (channel_weights_.size() <= impl::few_weights) {
            queue_with(with_weights<impl::few_weights>());
        } else {
            queue_with(with_weights<impl::many_weights>());
        }
    }

    /// Converts a completed report. Throws InvalidArgument for an invalid target.
    [[nodiscard]] LossResult result_of(const LossReport& report) const {
        return impl::result_of_elements(report, elements_, impl::accepted_targets<Formula>());
    }

    /// Waits for the result. A captured step uses `queue`.
    LossResult forward(const CudaContext& context, const float* outputs, const float* targets, std::int64_t batch,
                       float* gradient) const {
        queue(context, outputs, targets, batch, gradient, impl::result_of_sum<LossReport>(context));
        return result_of(impl::read_result<LossReport>(context));
    }

private:
    template <std::size_t capacity>
    [[nodiscard]] auto with_weights() const {
        return impl::WithChannelWeight<Formula, capacity>{
            formula_, impl::Divisor(static_cast<std::int64_t>(channel_weights_.size())),
            impl::weight_array<capacity>(channel_weights_)};
    }

    std::int64_t elements_;
    Formula formula_;
    std::span<const float> channel_weights_;
};

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
