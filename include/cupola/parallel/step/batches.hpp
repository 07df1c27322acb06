// SPDX-License-Identifier: Apache-2.0
//
// TakenBatches: fetches the replicas' batches of a step, checks and counts them, and has the device take them.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#include <cupola/core/error.hpp>
#include <cupola/core/fixed_array.hpp>
#include <cupola/core/function_ref.hpp>
#include <cupola/net/stopwatch.hpp>
#include <cupola/ops/id_check.hpp>
#include <cupola/ops/loss_report.hpp>
#include <cupola/parallel/replicas/replicas.hpp>
#include <cupola/parallel/step/step_functions.hpp>
#include <cupola/tensor/batch.hpp>
#include <cupola/tensor/require_batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// A replica's last batch of the step, at the address that the device reads, for a probe and for the finite search.
struct TakenBatch {
    BatchView batch{};
    RngKey key{};
    const float* statistics = nullptr;
};

/// The forward and backward pass of a batch that has been taken.
template <class Kernels, class T>
struct BatchPass {
    /// Null if the batch has no samples.
    Plan<Kernels, T>* plan = nullptr;
    /// The weights of the plan with whose packing the pass begins, and whether backward adds to the replica's row.
    Packing packs = Packing::none;
    bool accumulates = false;
    /// Whether the batch has been converted to the plan's type.
    bool converted = false;
    /// Whether this is the last batch of the device's last replica, whose backward makes the gradients final.
    bool last = false;
    /// Its number among those of the device in a step.
    std::size_t number = 0;
};

/// Members with a `device` parameter are called by that device's thread.
template <class D, class T>
class TakenBatches {
    using Kernels = typename D::Kernels;
    using Context = typename Kernels::Context;
    using State = DeviceState<D, T>;

public:
    /// Returns batch number `place` of a replica; called on the thread of the replica's device.
    using BatchSource = FunctionRef<BatchView(std::int64_t place, int replica, Context&)>;

    [[gnu::cold]] TakenBatches(const StepFunctions<D>& functions, Replicas<D, T>& replicas)
        : functions_(functions),
          replicas_(replicas),
          taken_(static_cast<std::size_t>(replicas.placement().replicas())) {}

    /// Fetches and takes a replica's batch number `part` of the step; the plan is one that uses `workspace`. Throws
    /// InvalidArgument for a batch of another shape, or of a size without a plan.
    BatchPass<Kernels, T> take(DeviceStep<D, T>& step, int replica, int part, BatchSource source,
                               std::size_t workspace = 0) {
        return take_with(step, replica, part, source, [&](std::int64_t size) {
            return step.state.worker.plans().take(replicas_.settings().plan_options(size),
                                                  replicas_.parameters(replica), workspace);
        });
    }
    /// The same with the plan that `plan_of` returns for a number of samples.
    using PlanOfSize = FunctionRef<typename Plans<Kernels, T>::Taken(std::int64_t size)>;
    BatchPass<Kernels, T> take_with(DeviceStep<D, T>& step, int replica, int part, BatchSource source,
                                    PlanOfSize plan_of);

    /// Calls work(replica) for the replicas of the device, until it has an error.
    void for_each_replica(DeviceStep<D, T>& step, FunctionRef<void(int replica)> work) {
        const ReplicaPlacement& placement = replicas_.placement();
        for (int r = placement.first_replica(step.device); r < placement.first_replica(step.device + 1); ++r)
            step.state.attempt([&] { work(r); });
    }

    [[nodiscard]] TakenBatch& of(int replica) { return taken_[static_cast<std::size_t>(replica)]; }
    [[nodiscard]] RngKey key_of(std::int64_t step, int part, int replica) const;

private:
    using Queue = typename D::Queue;
    /// Whether the queue converts a batch as it takes it.
    static constexpr bool converts =
        !std::same_as<T, float> && requires(Queue& queue, const BatchView& batch, T* to) { queue.take(0, batch, to); };
    [[nodiscard]] static BatchView take(Queue& queue, int replica, const BatchView& batch,
                                        [[maybe_unused]] const Plan<Kernels, T>& plan) {
        if constexpr (converts) {
            return queue.take(replica, batch, plan.place_of_batch());
        } else {
            return queue.take(replica, batch);
        }
    }

    /// Clears what a batch reports of its targets and ids, where there are no samples that would write it.
    void clear_reports(State& state, std::size_t number);

    [[nodiscard]] std::int64_t place_of(std::int64_t step, int part) const {
        return step * functions_.gradient_accumulation_steps + part;
    }

    const StepFunctions<D>& functions_;
    Replicas<D, T>& replicas_;
    FixedArray<TakenBatch> taken_;
};

template <class D, class T>
auto TakenBatches<D, T>::take_with(DeviceStep<D, T>& step, int replica, int part, BatchSource source,
                                   PlanOfSize plan_of) -> BatchPass<Kernels, T> {
    State& state = step.state;
    Context& context = state.context();
    const BatchView given = [&] {
        const Stopwatch watch(state.worker.times(), StepPart::data);
        return source(place_of(step.step, part), step.samples_for(replica), context);
    }();
    require_batch(given, replicas_.settings().required);
    const std::size_t number = replicas_.placement().batch_number(replica, part);
    std::byte* const block = state.queue->status();
    if (replicas_.settings().gathers_blocks()) state.queue->write(state.layout.samples(block, number), given.size);
    if (given.size == 0) {
        if (replicas_.settings().weighted || replicas_.settings().may_skip())
            state.queue->write(state.layout.report(block, number), no_loss);
        if (replicas_.settings().may_skip()) clear_reports(state, number);
        return {};
    }
    const auto [plan, packs] = plan_of(given.size);
    require(plan != nullptr, "a batch has ", given.size, given.size == 1 ? " sample" : " samples",
            ", and plans were made for batch_size ", functions_.batch_size, " and other_batch_sizes only");
    // Each batch's gradient is weighted by its samples before the replicas' sums are merged: equal weights cancel.
    require(!replicas_.settings().synchronized || functions_.gradient_accumulation_steps == 1 ||
                given.size == functions_.batch_size,
            "with synchronised statistics and accumulation every batch has batch_size samples, ", functions_.batch_size,
            ", or none, not ", given.size);
    const bool accumulates = step.samples.of_replica(step.step, step.samples_for(replica)) > 0;
    step.samples.of(step.step, part, step.samples_for(replica)) = given.size;
    const RngKey key = key_of(step.step, part, step.samples_for(replica));
    state.queue->write(&step_status(block)->step, key.step);
    of(replica) = {take(*state.queue, replicas_.placement().local(replica), given, *plan), key,
                   state.layout.statistics(block, number)};
    const bool last = replica + 1 == replicas_.placement().first_replica(step.device + 1) &&
                      part + 1 == functions_.gradient_accumulation_steps;
    return {plan, packs, accumulates, converts && plan->place_of_batch() != nullptr, last, number};
}

template <class D, class T>
void TakenBatches<D, T>::clear_reports(State& state, std::size_t number) {
    typename D::Queue& queue = *state.queue;
    for (std::size_t k = 0; k < replicas_.settings().losses; ++k)
        queue.write(state.layout.reports_of_losses(queue.status(), number) + k, no_loss);
    queue.write(state.layout.bad_id(queue.status(), number), no_bad_id);
}

template <class D, class T>
RngKey TakenBatches<D, T>::key_of(std::int64_t step, int part, int replica) const {
    return {.seed = functions_.seed,
            .step = static_cast<std::uint32_t>(place_of(step, part)),
            .first_sample = replica * functions_.batch_size};
}

}}}  // namespace cupola::CUPOLA_ABI::impl
