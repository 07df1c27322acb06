// SPDX-License-Identifier: Apache-2.0
//
// StepUpdate: the end of a step's computation on each device, after the replicas have agreed: the average, the sums of squares
// that the regularisers report, the optimiser's update of each copy of the parameters, and the moving averages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <cupola/core/fixed_array.hpp>
#include <cupola/net/step_times.hpp>
#include <cupola/ops/training_step.hpp>
#include <cupola/optim/moving_average.hpp>
#include <cupola/optim/optimizer.hpp>
#include <cupola/optim/update_parameters.hpp>
#include <cupola/parallel/impl/replica_set.hpp>
#include <cupola/parallel/impl/segments_of.hpp>
#include <cupola/parallel/impl/step_functions.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

/// Members with a `device` parameter are called by that device's thread.
template <class D, class T, class Agreement>
class StepUpdate {
    using Kernels = typename D::Kernels;
    using State = DeviceState<D, T>;
    using Queue = typename D::Queue;

public:
    [[gnu::cold]] StepUpdate(const StepFunctions<D>& options, ReplicaSet<D, T>& set, Agreement& agreement,
                             std::span<const RegularizedParameter> regularized)
        : options_(options),
          set_(set),
          agreement_(agreement),
          regularized_(regularized),
          segments_(segments_of(set.network().layers, regularized, options.groups)),
          recordings_(static_cast<std::size_t>(set.device_count())) {}

    /// Queues the update of a device's copies in a step, as one piece of work that is recorded.
    void queue(int device, std::int64_t step);
    /// The same in two pieces, not recorded; calls `between` after the average is queued.
    template <class Between>
    void queue_around(int device, std::int64_t step, Between&& between) {
        Queue& queue = begin(device, step);
        queue.queue([this, device] { reduce(device); });
        between();
        queue.queue([this, device, step] { apply(device, step); });
    }

    [[nodiscard]] const typename Queue::Recording& recording(int device) const {
        return recordings_[static_cast<std::size_t>(device)];
    }

private:
    Queue& begin(int device, std::int64_t step);
    void apply(int device, std::int64_t step);

    /// Computes the average, and the sums of squares that the regularisers report.
    void reduce(int device);

    [[nodiscard]] Update<Kernels> update_of(int device, int copy, std::int64_t step);

    /// Writes the constants that update_copies of this step uses, in its order.
    void write_constants_of(int device, std::int64_t step, ConstantsWriter& to);

    /// Updates the parameters of a device's copies with their gradients, and then their moving averages.
    void update_copies(int device, std::int64_t step);

    const StepFunctions<D>& options_;
    ReplicaSet<D, T>& set_;
    Agreement& agreement_;
    std::span<const RegularizedParameter> regularized_;
    FixedArray<Segment> segments_;
    /// The recording of the update of each device.
    FixedArray<typename Queue::Recording> recordings_;
};

template <class D, class T, class Agreement>
void StepUpdate<D, T, Agreement>::queue(int device, std::int64_t step) {
    Queue& queue = begin(device, step);
    queue.queue(recordings_[static_cast<std::size_t>(device)], options_.repeats_update, [this, device, step] {
        reduce(device);
        apply(device, step);
    });
}

template <class D, class T, class Agreement>
auto StepUpdate<D, T, Agreement>::begin(int device, std::int64_t step) -> Queue& {
    State& state = set_.at(device);
    Queue& queue = *state.queue;
    state.worker.parameters_changed();
    if (options_.repeats_update) {
        queue.set_constants([&](auto& to) {
            const auto write = [&to](std::string_view type, std::span<const std::byte> bytes) {
                to.write(type, bytes);
            };
            ConstantsWriter writer(write);
            write_constants_of(device, step, writer);
        });
    }
    return queue;
}

template <class D, class T, class Agreement>
void StepUpdate<D, T, Agreement>::apply(int device, std::int64_t step) {
    Queue& queue = *set_.at(device).queue;
    queue.update(StatusBlock::healthy(queue.status()), [&] { update_copies(device, step); });
}

template <class D, class T, class Agreement>
void StepUpdate<D, T, Agreement>::reduce(int device) {
    State& state = set_.at(device);
    std::byte* const block = state.queue->status();
    agreement_.reduce(device, block);
    const Stopwatch watch(state.worker.times(), StepPart::regularization);
    for (std::size_t i = 0; i < regularized_.size(); ++i) {
        const std::span<const float> weights(state.worker.parameters() + regularized_[i].offset,
                                             static_cast<std::size_t>(regularized_[i].size));
        ops::TrainingStep<Kernels>::sum_of_squares(state.worker.context(), weights,
                                                   StatusBlock::regularization(block) + i);
    }
}

template <class D, class T, class Agreement>
auto StepUpdate<D, T, Agreement>::update_of(int device, int copy, std::int64_t step) -> Update<Kernels> {
    auto& worker = set_.at(device).worker;
    return {.context = worker.context(),
            .parameters = worker.parameters(copy),
            .gradient = agreement_.gradient_of(device, set_.first_replica(device) + copy),
            .state = worker.state(copy),
            .elements = set_.network().trained_elements,
            .segments = segments_,
            .step = step};
}

template <class D, class T, class Agreement>
void StepUpdate<D, T, Agreement>::write_constants_of(int device, std::int64_t step, ConstantsWriter& to) {
    for (int copy = 0; copy < set_.copies(device); ++copy) {
        options_.write_constants(update_of(device, copy, step), to);
        if (options_.moving_average.on()) to.write(options_.moving_average.constants(step + 1));
    }
}

template <class D, class T, class Agreement>
void StepUpdate<D, T, Agreement>::update_copies(int device, std::int64_t step) {
    auto& worker = set_.at(device).worker;
    for (int copy = 0; copy < set_.copies(device); ++copy) {
        {
            const Stopwatch watch(worker.times(), StepPart::optimizer);
            options_.update(update_of(device, copy, step));
        }
        if (!options_.moving_average.on()) continue;
        const Stopwatch watch(worker.times(), StepPart::moving_average);
        options_.moving_average.template update<Kernels>(worker.context(), worker.averages(copy),
                                                         worker.parameters(copy), set_.network().trained_elements,
                                                         step + 1);
    }
}

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
