// SPDX-License-Identifier: Apache-2.0
//
// ReplicaPasses: queues the batches of a step on every device: they are taken (TakenBatches) and run forward, through the
// loss and backward, one replica after another, and the gradients are added up in the replicas' rows.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include <cupola/core/fixed_array.hpp>
#include <cupola/core/function_ref.hpp>
#include <cupola/net/step_times.hpp>
#include <cupola/ops/id_check.hpp>
#include <cupola/ops/training_step.hpp>
#include <cupola/parallel/replicas/loss_scaling.hpp>
#include <cupola/parallel/replicas/peers.hpp>
#include <cupola/parallel/replicas/replicas.hpp>
#include <cupola/parallel/replicas/sample_counts.hpp>
#include <cupola/parallel/step/batches.hpp>
#include <cupola/parallel/step/pass_recordings.hpp>
#include <cupola/parallel/step/step_functions.hpp>
#include <cupola/parallel/step/step_trace.hpp>
#include <cupola/parallel/step/sync_batch_norm_group.hpp>
#include <cupola/tensor/batch.hpp>
#include <cupola/tensor/require_batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Members with a `device` parameter are called by that device's thread.
template <class D, class T>
class ReplicaPasses {
    using Kernels = typename D::Kernels;
    using Context = typename Kernels::Context;
    using State = DeviceState<D, T>;
    using Queue = typename D::Queue;
    using NetworkPlan = Plan<Kernels, T>;
    using Batches = TakenBatches<D, T>;
    using BatchToRun = impl::BatchToRun<Kernels, T>;

public:
    [[gnu::cold]] ~ReplicaPasses();
    using BatchSource = typename Batches::BatchSource;

    /// With `marks_buckets` the device's last backward of a step marks each bucket of the gradient in the queue.
    [[gnu::cold]] ReplicaPasses(const StepFunctions<D>& functions, Replicas<D, T>& replicas, Peers& peers,
                                SampleCounts& counts, bool marks_buckets);

    /// From now on the replicas of all devices run in step, for statistics that are synchronised. A program that does not
    /// call this does not compile how they do.
    [[gnu::cold]] void run_in_step();

    /// Queues the batches of all replicas of a device. An exception of a replica is stored in the device's state, and the
    /// rest of the device's work is left out. Returns false if the replicas run in step and another device has failed.
    bool queue(int device, std::int64_t step, BatchSource batches);
    /// Whether the last backward of the step that was queued has marked the buckets.
    [[nodiscard]] bool marked(int device) const { return marked_[static_cast<std::size_t>(device)] != 0; }

    /// Queues, for each replica of the device, the scaling of a gradient whose batches were smaller than the full batches
    /// that they were weighted as parts of.
    void complete(int device, std::int64_t step);
    /// The factor that makes a replica's row the gradient of its mean loss: each of several batches is weighted as a part
    /// of full batches.
    [[nodiscard]] double completion(std::int64_t step, int replica) const;

    /// The batches that were taken last.
    [[nodiscard]] Batches& batches() { return batches_; }

    /// Calls visit(recording) for each recording of a device.
    template <class Visit>
    void for_each_recording(int device, Visit&& visit) const {
        recordings_.for_each(device, visit);
    }
    void trace(StepTrace trace) { trace_ = trace; }

private:
    void note(int device, const char* name) {
        if (trace_) trace_(device, name);
    }
    void for_each_replica(int device, FunctionRef<void(int replica)> work) {
        for (int replica = replicas_.placement().first_replica(device);
             replica < replicas_.placement().first_replica(device + 1); ++replica) {
            replicas_.at(device).attempt([&] { work(replica); });
        }
    }

    void queue_batch(int device, int replica, std::int64_t step, int part, BatchSource batches);

    /// Computes the losses of a batch, and their gradients at the network's outputs.
    /// `in_own_type`: in the type of the plan, without a conversion; see takes_own_type().
    void queue_loss_of(int device, const BatchToRun& begun, const BatchView& batch, bool in_own_type = false);
    /// Whether the losses read outputs and write gradients in the plan's type, and nothing scales the gradients in float.
    [[nodiscard]] bool takes_own_type(int device) const;

    /// Checks the ids of a batch: one that is out of range makes the loss NaN, so that the step has no effect.
    void queue_id_check(int device, const BatchToRun& begun, const BatchView& batch);

    /// Makes the first element of a replica's row NaN if the loss of a batch is not finite, or a step has failed.
    void poison(int device, int replica, const BatchToRun& begun);

    /// Runs the replicas of all devices in step: they stop wherever the network merges statistics of the whole global
    /// batch. Returns false if a device has failed.
    bool queue_together(int device, std::int64_t step, int part, BatchSource batches);

    /// All-reduces the replicas' sums on all devices: each device merges them for itself. Returns false if one failed.
    bool all_reduce(int device, std::int64_t step, Direction direction, std::size_t k, std::size_t turn,
                    const double*& merged);

    const StepFunctions<D>& functions_;
    Replicas<D, T>& replicas_;
    Peers& peers_;
    SampleCounts& counts_;
    bool marks_buckets_;
    Batches batches_;
    PassRecordings<typename Queue::Recording> recordings_;
    /// Whether the step's last backward has marked the buckets, per device; not bool, as devices write side by side.
    FixedArray<char> marked_;
    /// queue_together, or null where each replica runs alone.
    bool (ReplicaPasses::*queue_together_)(int, std::int64_t, int, BatchSource) = nullptr;
    SyncBatchNormGroup<Kernels, T> sync_batch_norm_;
    FixedArray<BatchToRun> begun_together_;
    /// The factors of the losses.
    FixedArray<double> factors_;
    /// Whether the network reads ids.
    bool reads_ids_ = false;
    /// Pooled sums of the replicas that run in step, per device.
    FixedArray<FixedArray<double>> merged_;
    StepTrace trace_{};
};

template <class D, class T>
ReplicaPasses<D, T>::~ReplicaPasses() = default;

template <class D, class T>
ReplicaPasses<D, T>::ReplicaPasses(const StepFunctions<D>& functions, Replicas<D, T>& replicas, Peers& peers,
                                   SampleCounts& counts, bool marks_buckets)
    : functions_(functions),
      replicas_(replicas),
      peers_(peers),
      counts_(counts),
      marks_buckets_(marks_buckets),
      batches_(functions, replicas, counts),
      recordings_(replicas.placement().device_count()),
      marked_(static_cast<std::size_t>(replicas.placement().device_count())),
      factors_(functions.losses.size()) {
    for (std::size_t k = 0; k < functions.losses.size(); ++k) factors_[k] = functions.losses[k].entry.factor;
    for (const RequiredColumn& each : replicas.settings().required) reads_ids_ = reads_ids_ || each.ids > 0;
}

template <class D, class T>
void ReplicaPasses<D, T>::run_in_step() {
    queue_together_ = &ReplicaPasses::queue_together;
    sync_batch_norm_.make(replicas_.placement().replicas(), replicas_.at(0).worker.plans().first());
    begun_together_ = FixedArray<BatchToRun>(static_cast<std::size_t>(replicas_.placement().replicas()));
    merged_ = FixedArray<FixedArray<double>>(marked_.size());
    for (auto& merged : merged_) merged = FixedArray<double>(sync_batch_norm_.largest());
}

template <class D, class T>
bool ReplicaPasses<D, T>::queue(int device, std::int64_t step, BatchSource batches) {
    marked_[static_cast<std::size_t>(device)] = 0;
    for (int part = 0; part < functions_.gradient_accumulation_steps; ++part) {
        if (queue_together_ != nullptr) {
            if (!(this->*queue_together_)(device, step, part, batches)) return false;
        } else {
            for_each_replica(device, [&](int replica) { queue_batch(device, replica, step, part, batches); });
        }
    }
    return true;
}

template <class D, class T>
void ReplicaPasses<D, T>::complete(int device, std::int64_t step) {
    for_each_replica(device, [&](int replica) {
        const double factor = completion(step, replica);
        if (factor == 1) return;
        replicas_.at(device).queue->queue([this, device,
                                           row = std::span(replicas_.gradients().row(replica), replicas_.elements()),
                                           factor] { scale(replicas_.context(device), row, factor); });
    });
}

template <class D, class T>
double ReplicaPasses<D, T>::completion(std::int64_t step, int replica) const {
    const std::int64_t samples = counts_.of_replica(step, replica),
                       expected = functions_.batch_size * functions_.gradient_accumulation_steps;
    if (functions_.gradient_accumulation_steps == 1 || samples == 0) return 1;
    return static_cast<double>(expected) / static_cast<double>(samples);
}

template <class D, class T>
void ReplicaPasses<D, T>::queue_batch(int device, int replica, std::int64_t step, int part, BatchSource batches) {
    note(device, "batch");
    const BatchToRun begun = batches_.take(device, replica, step, part, batches);
    if (begun.plan == nullptr) return;
    note(device, "forward");
    note(device, "loss");
    note(device, "backward");
    const bool marks = marks_buckets_ && begun.last;
    if (marks) marked_[static_cast<std::size_t>(device)] = 1;
    replicas_.at(device).queue->queue(
        recordings_.of(device, begun), true,
        [this, begun, marks, batch = batches_.of(replica).batch, key = batches_.of(replica).key, device, replica] {
            State& here = replicas_.at(device);
            Context& context = here.worker.context();
            const float* const parameters = replicas_.parameters(replica);
            std::byte* const block = here.queue->status();
            if (begun.packs) begun.plan->prepare(context, parameters, here.worker.buffers());
            const bool own_type = takes_own_type(device);
            const PassBuffers buffers{.running = here.worker.buffers(),
                                      .batch = replicas_.at(device).layout.statistics(block, begun.number),
                                      .batch_is_converted = begun.converted,
                                      .keeps_outputs = own_type};
            static_cast<void>(begun.plan->forward(context, batch, parameters, key, buffers));
            queue_loss_of(device, begun, batch, own_type);
            // The last bucket is sent together with the weight of the device's samples.
            if (marks && replicas_.settings().weighted)
                replicas_.at(device).weigh(replicas_.settings().constant_loss_scale());
            const std::size_t buckets = begun.plan->buckets().size();
            const auto ready = [&](std::size_t k) {
                if (k + 1 < buckets) here.queue->mark_bucket(k);
            };
            using BucketReady = typename NetworkPlan::BucketReady;
            begun.plan->backward(context, batch, parameters, replicas_.gradients().row(replica), key, begun.accumulates,
                                 marks ? BucketReady(ready) : BucketReady(), own_type);
            // Element 0 is in the last bucket, so a loss that is not finite is sent with that bucket.
            poison(device, replica, begun);
            if (marks) here.queue->mark_bucket(buckets - 1);
        });
}

template <class D, class T>
bool ReplicaPasses<D, T>::takes_own_type(int device) const {
    bool takes = std::same_as<T, BFloat16> && functions_.queues_bfloat16() &&
                 replicas_.settings().constant_loss_scale() == 1 && scale_on_device(replicas_, device) == nullptr &&
                 functions_.gradient_accumulation_steps == 1;
    for (const LossOfOutput& each : functions_.losses) takes = takes && each.entry.factor == 1;
    return takes;
}

template <class D, class T>
void ReplicaPasses<D, T>::queue_loss_of(int device, const BatchToRun& begun, const BatchView& batch,
                                        [[maybe_unused]] bool in_own_type) {
    State& state = replicas_.at(device);
    Context& context = state.worker.context();
    std::byte* const block = state.queue->status();
    LossReport* const report = replicas_.at(device).layout.report(block, begun.number);
    {
        const Stopwatch watch(state.worker.times(), StepPart::loss);
        LossReport* const reports =
            functions_.sums_losses ? replicas_.at(device).layout.reports_of_losses(block, begun.number) : report;
        for (std::size_t k = 0; k < functions_.losses.size(); ++k) {
            const std::size_t output = functions_.losses[k].output;
            if constexpr (std::same_as<T, BFloat16>) {
                if (in_own_type) {
                    functions_.queue_loss_in_bfloat16(context, k, begun.plan->own_output(output), batch,
                                                      begun.plan->own_output_gradient(output), reports + k);
                    continue;
                }
            }
            functions_.queue_loss(context, k, begun.plan->output(output), batch, begun.plan->output_gradient(output),
                                  reports + k);
        }
        if (functions_.sums_losses)
            ops::TrainingStep<Kernels>::sum_losses(context, {reports, functions_.losses.size()}, factors_, report);
    }
    if (reads_ids_) queue_id_check(device, begun, batch);
    // The loss's gradient is that of the mean over this batch; several batches are weighted by their samples.
    double weight = replicas_.settings().constant_loss_scale();
    if (functions_.gradient_accumulation_steps > 1) {
        weight *= static_cast<double>(batch.size) /
                  static_cast<double>(functions_.batch_size * functions_.gradient_accumulation_steps);
    }
    for (const LossOfOutput& each : functions_.losses) {
        const float* const by = scale_on_device(replicas_, device);
        if (by == nullptr && weight * each.entry.factor == 1) continue;
        const auto count = static_cast<std::size_t>(batch.size * each.elements);
        const std::span gradient(begun.plan->output_gradient(each.output), count);
        if (by == nullptr)
            scale(context, gradient, weight * each.entry.factor);
        else
            ops::TrainingStep<Kernels>::scale(context, gradient, weight * each.entry.factor, by);
    }
}

template <class D, class T>
void ReplicaPasses<D, T>::queue_id_check(int device, const BatchToRun& begun, const BatchView& batch) {
    State& state = replicas_.at(device);
    std::byte* const block = state.queue->status();
    IdReport* const report = replicas_.at(device).layout.bad_id(block, begun.number);
    state.queue->write(report, no_bad_id);
    const std::span<const RequiredColumn> required = replicas_.settings().required;
    for (std::size_t c = 0; c < required.size(); ++c) {
        if (required[c].ids == 0) continue;
        const ColumnSpec& column = required[c].column;
        ops::IdCheck<Kernels>::queue(state.worker.context(), batch.data<std::int32_t>(column.name),
                                     batch.size * column.shape.size(), required[c].ids, static_cast<std::int32_t>(c),
                                     report, &replicas_.at(device).layout.report(block, begun.number)->sum);
    }
}

template <class D, class T>
void ReplicaPasses<D, T>::poison(int device, int replica, const BatchToRun& begun) {
    State& state = replicas_.at(device);
    ops::TrainingStep<Kernels>::poison(state.worker.context(),
                                       &replicas_.at(device).layout.report(state.queue->status(), begun.number)->sum,
                                       replicas_.gradients().row(replica), failed_on_device(replicas_, device));
}

template <class D, class T>
bool ReplicaPasses<D, T>::queue_together(int device, std::int64_t step, int part, BatchSource batches) {
    State& state = replicas_.at(device);
    Context& context = state.worker.context();
    const std::size_t all_reduces = sync_batch_norm_.all_reduces();
    const int first = replicas_.placement().first_replica(device);
    for (int replica = first; replica < replicas_.placement().first_replica(device + 1); ++replica)
        sync_batch_norm_.plan(replica) = nullptr;
    for_each_replica(device, [&](int replica) {
        const auto workspace = static_cast<std::size_t>(replica - first);
        BatchToRun& begun = begun_together_[static_cast<std::size_t>(replica)];
        note(device, "batch");
        begun = batches_.take(device, replica, step, part, batches, workspace);
        if (begun.packs) begun.plan->prepare(context, replicas_.parameters(replica), state.worker.buffers());
        sync_batch_norm_.plan(replica) = begun.plan;
    });
    // Calls visit(replica, plan, begun, batch) for the replicas that have samples.
    const auto for_each_plan = [&](auto&& visit) {
        for_each_replica(device, [&](int replica) {
            NetworkPlan* const plan = sync_batch_norm_.plan(replica);
            if (plan == nullptr) return;
            visit(replica, *plan, begun_together_[static_cast<std::size_t>(replica)], batches_.of(replica));
        });
    };
    note(device, "forward");
    const double* merged = nullptr;
    for (std::size_t k = 0; k <= all_reduces; ++k) {
        for_each_plan([&](int replica, NetworkPlan& plan, const BatchToRun& begun, const TakenBatch& batch) {
            const PassBuffers buffers{
                .running = state.worker.buffers(),
                .batch = replicas_.at(device).layout.statistics(state.queue->status(), begun.number)};
            static_cast<void>(plan.forward_segment(context, k, batch.batch, replicas_.parameters(replica), batch.key,
                                                   buffers, merged, sync_batch_norm_.partial(k, replica)));
            if (k == all_reduces) queue_loss_of(device, begun, batch.batch);
        });
        if (k < all_reduces && !all_reduce(device, step, Direction::forward, k, k, merged)) return false;
    }
    note(device, "loss");
    note(device, "backward");
    for (std::size_t k = 0; k <= all_reduces; ++k) {
        for_each_plan([&](int replica, NetworkPlan& plan, const BatchToRun& begun, const TakenBatch& batch) {
            plan.backward_segment(context, k, batch.batch, replicas_.parameters(replica),
                                  replicas_.gradients().row(replica), batch.key, begun.accumulates, merged,
                                  sync_batch_norm_.partial(all_reduces + k, replica));
            if (k == all_reduces) poison(device, replica, begun);
        });
        if (k < all_reduces && !all_reduce(device, step, Direction::backward, k, all_reduces + k, merged)) return false;
    }
    return true;
}

template <class D, class T>
bool ReplicaPasses<D, T>::all_reduce(int device, std::int64_t step, Direction direction, std::size_t k,
                                     std::size_t turn, const double*& merged) {
    State& state = replicas_.at(device);
    const int first = replicas_.placement().first_replica(device),
              last = replicas_.placement().first_replica(device + 1);
    for (int replica = first; replica < last; ++replica) sync_batch_norm_.contribute(turn, replica, !state.error);
    bool all_here = replicas_.arrive_and_wait(device);
    if (peers_.exchanges_sums()) {
        // A process that has failed takes part too, so that the others leave the step with it.
        if (device == 0) {
            replicas_.at(0).attempt_always([&] {
                peers_.exchange_sums(step, replicas_.first_error(), sync_batch_norm_.sums(turn),
                                     sync_batch_norm_.largest(), sync_batch_norm_.contributions(turn));
            });
        }
        all_here = replicas_.arrive_and_wait(device);
    }
    if (!all_here) return false;
    FixedArray<double>& sums = merged_[static_cast<std::size_t>(device)];
    state.attempt([&] { sync_batch_norm_.merge(direction, k, turn, first, last, sums); });
    merged = sums.data();
    return true;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
