// SPDX-License-Identifier: Apache-2.0
//
// StepUpdate: the end of a step's computation on each device, after the replicas have agreed: the average, the sums of
// squares that the regularisers report, the optimiser's update of each copy of the parameters, the moving averages, and
// the loss scale of the next step where it changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <cupola/core/fixed_array.hpp>
#include <cupola/device/queue.hpp>
#include <cupola/net/plan.hpp>
#include <cupola/net/stopwatch.hpp>
#include <cupola/ops/training_step.hpp>
#include <cupola/optim/moving_average.hpp>
#include <cupola/optim/optimizer.hpp>
#include <cupola/optim/segments_of.hpp>
#include <cupola/optim/update_parameters.hpp>
#include <cupola/parallel/agreement/step_agreement.hpp>
#include <cupola/parallel/replicas/replicas.hpp>
#include <cupola/parallel/replicas/status.hpp>
#include <cupola/parallel/step/replica_passes.hpp>
#include <cupola/parallel/step/step_functions.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Members with a `device` parameter are called by that device's thread.
template <class D, class T>
class StepUpdate {
    using Kernels = typename D::Kernels;
    using State = DeviceState<D, T>;
    using Queue = typename D::Queue;

public:
    [[gnu::cold]] StepUpdate(const StepFunctions<D>& functions, Replicas<D, T>& replicas,
                             StepAgreement<D, T>& agreement, std::span<const RegularizedParameter> regularized)
        : functions_(functions),
          replicas_(replicas),
          agreement_(agreement),
          regularized_(regularized),
          segments_(segments_of(replicas.network().layers, regularized, functions.groups)),
          recordings_(replicas.placement().device_count()) {
        agreement_.bind(segments_.span(), functions_.moving_average);
    }

    /// Before a step is queued: the steps before it that were skipped, as far as the host knows, and those in flight
    /// that may be.
    void begin_step(std::int64_t skipped, std::int64_t in_flight) {
        skipped_ = skipped;
        in_flight_ = replicas_.settings().may_skip() ? static_cast<int>(in_flight) : 0;
    }
    /// Queues the constants of a step's update, before the passes of the step.
    void set_constants(int device, std::int64_t step) {
        if constexpr (repeats_work<D>) {
            if (functions_.repeats_update) write_constants(device, step);
        }
    }
    /// Queues the update of a device's copies in a step, as one piece of work, which a queue that repeats work records.
    void queue(int device, std::int64_t step);
    /// The same in two pieces, not recorded; calls `between` after the average is queued.
    template <class Between>
    void queue_around(int device, std::int64_t step, Between&& between) {
        Queue& queue = begin(device);
        queue.queue([this, device, step] { reduce(device, step); });
        between();
        queue.queue([this, device, step] {
            apply(device, step);
            update_loss_scale(device, step);
        });
    }

    /// Calls visit(recording) for each recording of a device.
    template <class Visit>
    void for_each_recording(int device, Visit&& visit) const {
        recordings_.for_each(device, visit);
    }

private:
    /// Where the queue repeats work; defined in step/step_recordings.hpp.
    void queue_recorded(int device, std::int64_t step);
    void write_constants(int device, std::int64_t step);
    void write_constants_of(int device, std::int64_t step, std::int64_t number, ConstantsWriter& to);

    Queue& begin(int device);
    void apply(int device, std::int64_t step);
    /// After the update and what is in its kernel.
    void update_loss_scale(int device, std::int64_t step);

    /// Computes the average, and the sums of squares that the regularisers report.
    void reduce(int device, std::int64_t step);

    /// The number of a step's update, without the steps that were skipped: exact inside the work of a device whose
    /// memory the host reads, and otherwise as far as the host knows.
    [[nodiscard]] std::int64_t number_of_update(int device, std::int64_t step) {
        if constexpr (D::host_memory) {
            return step - replicas_.at(device).status()->loss_scale.skipped_steps;
        } else {
            return step - skipped_;
        }
    }
    /// `number` is that of the step's update.
    [[nodiscard]] Update<Kernels> update_of(int device, int copy, std::int64_t step, std::int64_t number);

    /// The agreement updates the moving average of a centre.
    [[nodiscard]] bool averages_copies() const {
        return functions_.moving_average.on() && !replicas_.settings().centre;
    }

    /// Updates the parameters of a device's copies with their gradients, and then their moving averages.
    void update_copies(int device, std::int64_t step, std::int64_t number);

    const StepFunctions<D>& functions_;
    Replicas<D, T>& replicas_;
    StepAgreement<D, T>& agreement_;
    std::span<const RegularizedParameter> regularized_;
    FixedArray<Segment> segments_;
    StepRecordings<typename Queue::Recording> recordings_;
    std::int64_t skipped_ = 0;
    int in_flight_ = 0;
};

template <class D, class T>
void StepUpdate<D, T>::queue(int device, std::int64_t step) {
    if constexpr (repeats_work<D>) {
        queue_recorded(device, step);
    } else {
        begin(device).queue([this, device, step] {
            reduce(device, step);
            apply(device, step);
            update_loss_scale(device, step);
        });
    }
}

template <class D, class T>
auto StepUpdate<D, T>::begin(int device) -> Queue& {
    State& state = replicas_.at(device);
    state.worker.plans().trained_parameters_changed();
    return *state.queue;
}

template <class D, class T>
void StepUpdate<D, T>::apply(int device, std::int64_t step) {
    Queue& queue = *replicas_.at(device).queue;
    std::byte* const block = queue.status();
    queue.update(&step_status(block)->healthy, [&] { update_copies(device, step, number_of_update(device, step)); });
}

template <class D, class T>
void StepUpdate<D, T>::update_loss_scale(int device, std::int64_t step) {
    if (!replicas_.settings().may_skip()) return;
    const float* const divisor = agreement_.gradient(device, replicas_.placement().first_replica(device), step).divisor;
    ops::TrainingStep<Kernels>::update_loss_scale(replicas_.context(device),
                                                  loss_scale_update(replicas_, device, divisor));
}

template <class D, class T>
void StepUpdate<D, T>::reduce(int device, std::int64_t step) {
    State& state = replicas_.at(device);
    std::byte* const block = state.queue->status();
    agreement_.reduce(device, step);
    const Stopwatch watch(state.worker.times(), StepPart::regularization);
    for (std::size_t i = 0; i < regularized_.size(); ++i) {
        // That of a centre where there is one: it is the same on all devices and in all processes.
        const std::span<const float> weights(state.worker.model() + regularized_[i].offset,
                                             static_cast<std::size_t>(regularized_[i].size));
        ops::TrainingStep<Kernels>::sum_of_squares(state.worker.context(), weights,
                                                   StatusLayout::regularization(block) + i);
    }
}

template <class D, class T>
auto StepUpdate<D, T>::update_of(int device, int copy, std::int64_t step, std::int64_t number) -> Update<Kernels> {
    auto& worker = replicas_.at(device).worker;
    return {.context = worker.context(),
            .parameters = worker.parameters(copy),
            .gradient = agreement_.gradient(device, replicas_.placement().first_replica(device) + copy, step).values,
            .state = worker.state(copy),
            .elements = replicas_.network().trained_elements,
            .segments = segments_.span(),
            .step = number};
}

template <class D, class T>
void StepUpdate<D, T>::update_copies(int device, std::int64_t step, std::int64_t number) {
    auto& worker = replicas_.at(device).worker;
    for (int copy = 0; copy < replicas_.placement().copies(device); ++copy) {
        if (!agreement_.moves(device, copy, step)) continue;
        {
            const Stopwatch watch(worker.times(), StepPart::optimizer);
            const Update<Kernels> update = update_of(device, copy, step, number);
            const ElasticForce force = agreement_.force(device, copy, step);
            functions_.update(update, agreement_.has_force(step) ? &force : nullptr);
        }
        if (!averages_copies()) continue;
        const Stopwatch watch(worker.times(), StepPart::moving_average);
        functions_.moving_average.template update<Kernels>(worker.context(), worker.averages(copy),
                                                           worker.parameters(copy),
                                                           replicas_.network().trained_elements, number + 1);
    }
}

}}}  // namespace cupola::CUPOLA_ABI::impl
