// SPDX-License-Identifier: Apache-2.0
//
// DeviceState: the per-device state of a training: its worker and plans, its queue, and the block of numbers that its
// steps report.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>

#include <cupola/core/function_ref.hpp>
#include <cupola/ops/loss_report.hpp>
#include <cupola/ops/training_step.hpp>
#include <cupola/parallel/replicas/status.hpp>
#include <cupola/parallel/replicas/worker.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

template <class D, class T>
struct DeviceState {
    using Kernels = typename D::Kernels;

    DeviceWorker<Kernels, T> worker;
    std::unique_ptr<typename D::Queue> queue;
    /// Of the queue's status block and of its copies.
    StatusLayout layout;
    /// The exception of this device in the step that is being queued.
    std::exception_ptr error;
    /// True from the update of its parameters until every device has queued its update.
    bool updating = false;

    [[nodiscard]] typename Kernels::Context& context() { return worker.context(); }
    /// The status in the device's memory, and the copy of that after a step, which the host reads.
    [[nodiscard]] StepStatus* status() { return step_status(queue->status()); }
    [[nodiscard]] const StepStatus& landed(std::int64_t step) { return *step_status(queue->landed(step)); }

    /// The reports of all batches of a step of the device, in its memory.
    [[nodiscard]] std::span<const LossReport> reports() { return layout.reports(queue->status()); }
    /// Inside queued work, where the loss has weights: the divisor becomes `scale` times the weight of the device's
    /// samples.
    void weigh(double scale) { ops::TrainingStep<Kernels>::weigh(context(), reports(), scale, &status()->divisor); }

    /// All devices pass the same number of barriers: an exception of one is stored until they have, and the rest of its
    /// work is left out.
    [[gnu::noinline]] void attempt(FunctionRef<void()> work) {
        if (!error) attempt_always(work);
    }
    /// The same also if the device has failed before; the first exception is kept.
    [[gnu::noinline]] void attempt_always(FunctionRef<void()> work) {
        try {
            work();
        } catch (...) {
            if (!error) error = std::current_exception();
        }
    }
};

}}}  // namespace cupola::CUPOLA_ABI::impl
