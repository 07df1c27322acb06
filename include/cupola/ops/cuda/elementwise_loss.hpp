// SPDX-License-Identifier: Apache-2.0
//
// Losses of a formula per element on `Cuda`: one kernel computes the gradient and partial sums of the losses, in double
// and in an order that depends only on the number of elements, and a second adds those. Outputs and targets are in the
// device's memory.
#pragma once

#include <cstdint>

#include <cupola/device/cuda.hpp>
#include <cupola/ops/cuda/impl/launch.cuh>
#include <cupola/ops/elementwise_loss.hpp>

namespace cupola::inline CUPOLA_ABI {

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

/// The loss of element i; writes its gradient.
template <class Formula>
struct LossOfElement {
    Formula formula;
    const float* outputs;
    const float* targets;
    float fraction;
    float* gradient;

    CUPOLA_HOST_DEVICE ElementsLoss operator()(std::int64_t i, std::int64_t) const {
        const float x = outputs[i], t = targets[i];
        if (gradient != nullptr) gradient[i] = formula.derivative(x, t) * fraction;
        return {static_cast<double>(formula(x, t)), accepts_target(formula, t) ? 0 : i + 1};
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

template <LossFormula Formula>
class ElementwiseLoss<Cuda, Formula> {
public:
    explicit ElementwiseLoss(std::int64_t elements, const Formula& formula = {})
        : elements_(elements), formula_(formula) {}

    /// Queues the loss of a batch. `report` is in the device's memory, or in pinned memory of the host.
    void queue(const CudaContext& context, const float* outputs, const float* targets, std::int64_t batch,
               float* gradient, LossReport* report) const {
        const std::int64_t count = batch * elements_;
        impl::reduce<impl::ElementsLoss>(
            context, count,
            impl::LossOfElement<Formula>{formula_, outputs, targets,
                                         static_cast<float>(1.0 / static_cast<double>(count)), gradient},
            impl::ElementsReportTo{targets, elements_, batch, report});
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
    std::int64_t elements_;
    Formula formula_;
};

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
