// SPDX-License-Identifier: Apache-2.0
//
// ReplicaLosses: what a pass queues between forward and backward: the losses of a batch and their gradients, the check
// of its ids, and after backward the mark of a step that is not finite.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include <cupola/core/element_type.hpp>
#include <cupola/core/fixed_array.hpp>
#include <cupola/net/stopwatch.hpp>
#include <cupola/ops/id_check.hpp>
#include <cupola/ops/training_step.hpp>
#include <cupola/parallel/replicas/replicas.hpp>
#include <cupola/parallel/step/batches.hpp>
#include <cupola/parallel/step/step_functions.hpp>
#include <cupola/tensor/batch.hpp>
#include <cupola/tensor/require_batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Members are called by the thread of the device, inside its queued work.
template <class D, class T>
class ReplicaLosses {
    using Kernels = typename D::Kernels;
    using Context = typename Kernels::Context;
    using State = DeviceState<D, T>;
    using BatchPass = impl::BatchPass<Kernels, T>;

public:
    /// Both must outlive the object.
    [[gnu::cold]] ReplicaLosses(const StepFunctions<D>& functions, Replicas<D, T>& replicas)
        : functions_(functions),
          replicas_(replicas),
          factors_(functions.losses.size()),
          reads_ids_(replicas.settings().reads_ids()) {
        for (std::size_t k = 0; k < functions.losses.size(); ++k) factors_[k] = functions.losses[k].entry.factor;
    }

    /// Computes the losses of a batch, and their gradients at the network's outputs. `in_own_type`: in the type of the
    /// plan, without a conversion, which the losses must take. `context` is that of the plan; for another device than
    /// `device`, `status` is its copy of the status, where the report of bad ids has been cleared.
    void queue(int device, Context& context, const BatchPass& pass, const BatchView& batch, bool in_own_type = false,
               std::byte* status = nullptr);

    /// Makes the first element of a replica's row NaN if the loss of a batch is not finite, or a step has failed.
    void poison(int device, int replica, const BatchPass& pass);

private:
    /// Checks the ids of a batch: one that is out of range makes the loss NaN, so that the step has no effect.
    void queue_id_check(int device, Context& context, std::byte* block, const BatchPass& pass, const BatchView& batch);
    /// The factor of the gradient of a loss of the batch.
    [[nodiscard]] GradientFactor factor_of(std::byte* block, const LossOfOutput& loss, const BatchView& batch) const;
    void scale_gradients(Context& context, std::byte* block, const BatchPass& pass, const BatchView& batch);

    const StepFunctions<D>& functions_;
    Replicas<D, T>& replicas_;
    /// The factors of the losses.
    FixedArray<double> factors_;
    bool reads_ids_;
};

template <class D, class T>
GradientFactor ReplicaLosses<D, T>::factor_of(std::byte* block, const LossOfOutput& loss,
                                              const BatchView& batch) const {
    double factor = replicas_.settings().constant_loss_scale();
    // The loss's gradient is that of the mean over this batch; several batches are weighted by their samples.
    if (functions_.gradient_accumulation_steps > 1) {
        factor *= static_cast<double>(batch.size) /
                  static_cast<double>(functions_.batch_size * functions_.gradient_accumulation_steps);
    }
    const bool dynamic = replicas_.settings().loss_scale.dynamic;
    return {factor * loss.entry.factor, dynamic ? &step_status(block)->loss_scale.scale : nullptr};
}

template <class D, class T>
void ReplicaLosses<D, T>::queue(int device, Context& context, const BatchPass& pass, const BatchView& batch,
                                bool in_own_type, std::byte* status) {
    State& state = replicas_.at(device);
    std::byte* const block = status == nullptr ? state.queue->status() : status;
    LossReport* const report = state.layout.report(block, pass.number);
    {
        const Stopwatch watch(state.worker.times(), StepPart::loss);
        LossReport* const reports =
            functions_.sums_losses ? state.layout.reports_of_losses(block, pass.number) : report;
        for (std::size_t k = 0; k < functions_.losses.size(); ++k) {
            const std::size_t output = functions_.losses[k].output;
            if (in_own_type) {
                functions_.queue_loss_in_own_type(context, k, pass.plan->own_output(output), batch,
                                                  pass.plan->own_output_gradient(output), reports + k,
                                                  factor_of(block, functions_.losses[k], batch));
                continue;
            }
            functions_.queue_loss(context, k, pass.plan->output(output), batch, pass.plan->output_gradient(output),
                                  reports + k);
        }
        if (functions_.sums_losses)
            ops::TrainingStep<Kernels>::sum_losses(context, {reports, functions_.losses.size()}, factors_.span(),
                                                   report);
    }
    if (reads_ids_) queue_id_check(device, context, block, pass, batch);
    if (!in_own_type) scale_gradients(context, block, pass, batch);
}

template <class D, class T>
void ReplicaLosses<D, T>::scale_gradients(Context& context, std::byte* block, const BatchPass& pass,
                                          const BatchView& batch) {
    for (const LossOfOutput& each : functions_.losses) {
        const auto [factor, by] = factor_of(block, each, batch);
        if (by == nullptr && factor == 1) continue;
        const auto count = static_cast<std::size_t>(batch.size * each.elements);
        const std::span gradient(pass.plan->output_gradient(each.output), count);
        if (by == nullptr)
            scale(context, gradient, factor);
        else
            ops::TrainingStep<Kernels>::scale(context, gradient, factor, by);
    }
}

template <class D, class T>
void ReplicaLosses<D, T>::queue_id_check(int device, Context& context, std::byte* block, const BatchPass& pass,
                                         const BatchView& batch) {
    State& state = replicas_.at(device);
    IdReport* const report = state.layout.bad_id(block, pass.number);
    if (block == state.queue->status()) state.queue->write(report, no_bad_id);
    const std::span<const RequiredColumn> required = replicas_.settings().required;
    for (std::size_t c = 0; c < required.size(); ++c) {
        if (required[c].ids == 0) continue;
        const ColumnSpec& column = required[c].column;
        ops::IdCheck<Kernels>::queue(context, batch.data<std::int32_t>(column.name), batch.size * column.shape.size(),
                                     required[c].ids, static_cast<std::int32_t>(c), report,
                                     &state.layout.report(block, pass.number)->sum);
    }
}

template <class D, class T>
void ReplicaLosses<D, T>::poison(int device, int replica, const BatchPass& pass) {
    State& state = replicas_.at(device);
    ops::TrainingStep<Kernels>::poison(state.context(), &state.layout.report(state.queue->status(), pass.number)->sum,
                                       replicas_.gradients().row(replica), failed_on_device(replicas_, device));
}

}}}  // namespace cupola::CUPOLA_ABI::impl
