// SPDX-License-Identifier: Apache-2.0
//
// StepEngine: one step of a training on every device, queued, and its report once it is complete. The order on each
// device, the same for every device type and every kind of agreement:
//
//   wait for a slot | (batch, forward, loss, backward) x parts x replicas | agree | reduce, regularise | probe |
//   update, moving average | agree on parameters | hash | land
//
// A step whose loss or gradient is not finite, or that has a label that is no class, is found when its report is read:
// no update changes parameters from it on, the steps behind it come to nothing, and the error names the step.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <cupola/core/function_ref.hpp>
#include <cupola/loss/queue_loss.hpp>
#include <cupola/net/step_times.hpp>
#include <cupola/ops/training_step.hpp>
#include <cupola/optim/moving_average.hpp>
#include <cupola/optim/optimizer.hpp>
#include <cupola/parallel/impl/agreement_check.hpp>
#include <cupola/parallel/impl/agreement_of.hpp>
#include <cupola/parallel/impl/finite_search.hpp>
#include <cupola/parallel/impl/flushed_denormals.hpp>
#include <cupola/parallel/impl/replica_set.hpp>
#include <cupola/parallel/impl/sample_counts.hpp>
#include <cupola/parallel/impl/segments_of.hpp>
#include <cupola/parallel/impl/step_report_builder.hpp>
#include <cupola/parallel/impl/step_trace.hpp>
#include <cupola/parallel/impl/sync_batch_norm_group.hpp>
#include <cupola/parallel/inspection.hpp>
#include <cupola/parallel/statistics.hpp>
#include <cupola/parallel/step_report.hpp>
#include <cupola/tensor/batch.hpp>
#include <cupola/tensor/require_batch.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

/// Options has the members of TrainingOptions; nothing here depends on the network's type.
template <class D, class T, class Options>
class StepEngine {
    using Kernels = typename D::Kernels;
    using Context = typename Kernels::Context;
    using Set = ReplicaSet<D, T>;
    using State = DeviceState<D, T>;
    using Queue = typename D::Queue;
    using Agreement = typename AgreementOf<decltype(Options::averaging), D, T>::Type;
    using Optimizer = decltype(Options::optimizer);

public:
    /// Gives batch number `place` of a replica, on the thread of the replica's device.
    using BatchSource = FunctionRef<BatchView(std::int64_t place, int replica, Context&)>;
    /// Looks into a step, between the average and the update.
    using Probe = FunctionRef<void(const Inspection<Kernels>&)>;

    static constexpr bool separate_average = Agreement::separate_average, own_parameters = Agreement::own_parameters;
    [[nodiscard]] static std::int64_t sums(std::int64_t elements) { return Agreement::sums(elements); }
    [[nodiscard]] static std::int64_t bucket_elements(const Options& options) {
        return Agreement::bucket_elements(options.averaging);
    }
    /// Whether an update may be repeated without its function being called: see Optimizer.
    static constexpr bool repeats_update = requires { requires Optimizer::captured; };

    [[gnu::cold]] StepEngine(const Options& options, Set& set, std::string_view loss_name,
                             std::span<const RegularizedParameter> regularized, bool synchronized)
        : options_(options),
          set_(set),
          agreement_(options.averaging, set),
          regularized_(regularized.begin(), regularized.end()),
          segments_(segments_of(set.network().layers, regularized)),
          statistics_layers_(running_statistics(set.network().layers)),
          counts_(set.replicas(), options.gradient_accumulation_steps, D::max_steps_in_flight),
          taken_(static_cast<std::size_t>(set.replicas())),
          recordings_(static_cast<std::size_t>(set.device_count())),
          marked_(recordings_.size(), -1),
          tallies_(static_cast<std::size_t>(D::max_steps_in_flight),
                   StepReportBuilder(set.replicas(), loss_name, regularized)),
          regularization_(regularized.size()),
          synchronized_(synchronized) {
        statistics_rows_.reserve(taken_.size());
        if (!synchronized) return;
        sync_batch_norm_.make(set.replicas(), set.at(0).worker.first_plan());
        begun_together_.resize(taken_.size());
        merged_.resize(recordings_.size());
        for (auto& merged : merged_) merged.resize(sync_batch_norm_.largest());
    }

    /// The step that is queued next.
    [[nodiscard]] std::int64_t step() const { return step_; }
    [[nodiscard]] Agreement& agreement() { return agreement_; }
    [[nodiscard]] const Agreement& agreement() const { return agreement_; }

    /// Queues a step; `probe` may refer to nothing. Throws InvalidArgument for a batch that no plan was made for, and what
    /// became of an earlier step.
    void queue(BatchSource batches, Probe probe) {
        reserve_slot();
        counts_.clear(step_);
        probe_error_ = nullptr;
        set_.threads().run([&](int device) { queue_on(device, batches, probe); });
        for (State& state : set_.devices()) state.updating = false;
        ++step_;
        if (probe_error_) std::rethrow_exception(std::exchange(probe_error_, nullptr));
    }

    /// The report of the oldest step that was not collected, if more than `max_in_flight` steps are not; else null. Valid
    /// until max_steps_in_flight - 1 more steps are queued. Throws what became of that step.
    const StepReport* poll(std::int64_t max_in_flight) {
        if (step_ - reported_ <= max_in_flight) return nullptr;
        while (checked_ <= reported_) check_step();
        return &tally_of(reported_++).report();
    }

    /// Waits for all steps, and returns the report of the last.
    const StepReport& last_report() {
        synchronize();
        reported_ = step_;
        return tally_of(step_ - 1).report();
    }

    /// Waits for all steps. Throws what became of them.
    void synchronize() {
        while (checked_ < step_) check_step();
    }

    /// The running statistics, which the host keeps, on every device.
    void share_statistics() {
        if (running_.empty() || !running_changed_) return;
        set_.threads().run([&](int device) {
            auto& worker = set_.at(device).worker;
            worker.set(worker.buffers(), running_);
        });
        running_changed_ = false;
    }
    [[nodiscard]] const std::vector<float>& running_statistics_now() const { return running_; }

    /// Waits until nothing is queued any more, whatever became of it. A device that failed breaks a collective's sums off.
    [[gnu::cold]] void drain() {
        set_.threads().run([&](int device) {
            Queue& queue = *set_.at(device).queue;
            try {
                for (std::int64_t s = checked_; s < step_; ++s) wait_for(device, s);
                queue.mark();
                agreement_.wait(device, step_, false);
            } catch (const Error& error) {
                agreement_.break_off(device, step_, error.what());
            }
            agreement_.end(device);
        });
    }

    /// Goes on at a step with these running statistics, after drain().
    [[gnu::cold]] void restart(std::int64_t step, const std::vector<float>& running) {
        step_ = step;
        running_ = running;
        running_changed_ = false;
        forget_steps();
        for (State& state : set_.devices()) state.updating = false;
    }

    /// Whether the parameters are those after a whole step: false once an update was broken off, devices' parameters have
    /// parted, or a collective has failed.
    [[nodiscard]] bool healthy() const {
        for (const State& state : std::as_const(set_).devices()) {
            if (state.updating) return false;
        }
        return agreement_.healthy();
    }

    /// Why work is queued piece by piece that could have been repeated; empty where all of it is repeated.
    [[nodiscard, gnu::cold]] std::string not_repeated() const {
        if (!repeats_update) return "the update: the optimiser does not say that it may be captured";
        for (const Recordings& recordings : recordings_) {
            for (const auto& batch : recordings.passes) {
                for (const PassRecording& pass : batch) {
                    if (std::string why = pass.recording.refused(); !why.empty())
                        return text("the passes of a replica: ", why);
                }
            }
            if (std::string why = recordings.update.refused(); !why.empty()) return text("the update: ", why);
        }
        return {};
    }
    /// Calls visit(recording) for each recording of a device.
    template <class Visit>
    void for_each_recording(int device, Visit&& visit) const {
        const Recordings& recordings = recordings_[static_cast<std::size_t>(device)];
        for (const auto& batch : recordings.passes) {
            for (const PassRecording& pass : batch) visit(pass.recording);
        }
        visit(recordings.update);
    }

    /// The names of what a device queues, in order, go to `trace` from now on, until that is null.
    void trace(StepTrace* trace) { trace_ = trace; }

private:
    struct PassRecording {
        const void* plan = nullptr;
        bool packs = false, accumulates = false;
        typename Queue::Recording recording{};
    };
    struct Recordings {
        /// Of each batch of a step, in the order of their numbers.
        std::vector<std::deque<PassRecording>> passes;
        typename Queue::Recording update;
    };
    /// A replica's last batch of the step, where the device reads it, for the search of what is not finite.
    struct TakenBatch {
        BatchView batch{};
        RngKey key{};
        const float* statistics = nullptr;
    };

    [[nodiscard]] StepReportBuilder& tally_of(std::int64_t step) {
        return tallies_[static_cast<std::size_t>(step % D::max_steps_in_flight)];
    }
    [[nodiscard]] TakenBatch& taken(int replica) { return taken_[static_cast<std::size_t>(replica)]; }
    void note(int device, const char* name) {
        if (trace_ != nullptr) trace_->note(device, name);
    }
    [[nodiscard]] float* parameters_of(int replica) {
        return set_.at(set_.device_of(replica)).worker.parameters(set_.copy_of(replica));
    }

    // A step, queued.

    void queue_on(int device, BatchSource batches, Probe probe) {
        State& state = set_.at(device);
        [[maybe_unused]] const auto team = state.worker.context().team();
        state.error = nullptr;
        marked_[static_cast<std::size_t>(device)] = -1;  // a step that is made again has its number
        state.attempt([&] { wait_for(device, step_ - (D::max_steps_in_flight - 1)); });
        note(device, "slot");
        for (int part = 0; part < options_.gradient_accumulation_steps; ++part) {
            if (synchronized_) {
                if (!queue_together(device, part, batches)) return leave(state);
            } else {
                for_each_replica(device, [&](int replica) { queue_batch(device, replica, part, batches); });
            }
        }
        if (!Agreement::takes_buckets) for_each_replica(device, [&](int replica) { weigh(device, replica); });
        note(device, "agree");
        if (!agreement_.agree(device, counts_, step_, marked_[static_cast<std::size_t>(device)] == step_))
            return leave(state);
        state.updating = true;  // from here on an error leaves the parameters of devices apart
        state.attempt([&] { queue_update(device, probe); });
        agreement_.after_update(device, step_);
        state.attempt([&] { finish(device); });
        leave(state);
    }

    /// Leaves the job after a failure of this device's own by throwing it.
    static void leave(const State& state) {
        if (state.error) std::rethrow_exception(state.error);
    }

    template <class Work>
    void for_each_replica(int device, Work&& work) {
        for (int replica = set_.first_replica(device); replica < set_.first_replica(device + 1); ++replica) {
            set_.at(device).attempt([&] { work(replica); });
        }
    }

    /// What begin_batch has found for a replica's batch.
    struct Begun {
        Plan<Kernels, T>* plan = nullptr;
        bool packs = false, accumulates = false;
        /// Whether this is the last batch of the device's last replica, whose backward makes the gradients final.
        bool last = false;
        std::size_t number = 0;
    };

    /// Fetches a replica's batch number `part` of this step; without a plan if there is nothing to compute.
    Begun begin_batch(int device, int replica, int part, BatchSource batches, std::size_t slot = 0) {
        State& state = set_.at(device);
        Context& context = state.worker.context();
        const std::int64_t place = step_ * options_.gradient_accumulation_steps + part;
        note(device, "batch");
        const BatchView given = [&] {
            const Stopwatch watch(state.worker.times(), StepPart::data);
            return batches(place, replica, context);
        }();
        require_batch(given, set_.network().input);
        if (given.size == 0) return {};
        const auto [plan, packs] = state.worker.take_plan(set_.plan_options(given.size), parameters_of(replica), slot);
        require(plan != nullptr, "a batch has ", given.size, " samples, and plans were made for batch_size ",
                options_.batch_size, " and other_batch_sizes only");
        // Each batch's gradient is weighed by its samples before the replicas' sums are merged: equal weights cancel.
        require(!synchronized_ || options_.gradient_accumulation_steps == 1 || given.size == options_.batch_size,
                "with synchronised statistics and accumulation every batch has batch_size samples, ",
                options_.batch_size, ", or none, not ", given.size);
        const bool accumulates = counts_.of_replica(step_, replica) > 0;
        counts_.of(step_, part, replica) = given.size;
        const std::size_t number = batch_number(replica, part);
        std::byte* const block = state.queue->status();
        const RngKey key = key_of(place, replica);
        state.queue->write(StatusBlock::step(block), key.step);
        taken(replica) = {state.queue->take(set_.local(replica), given), key,
                          set_.status(device).statistics(block, number)};
        const bool last =
            replica + 1 == set_.first_replica(device + 1) && part + 1 == options_.gradient_accumulation_steps;
        return {plan, packs, accumulates, last, number};
    }

    void queue_batch(int device, int replica, int part, BatchSource batches) {
        const Begun begun = begin_batch(device, replica, part, batches);
        if (begun.plan == nullptr) return;
        State& state = set_.at(device);
        note(device, "forward");
        note(device, "loss");
        note(device, "backward");
        if (begun.last) marked_[static_cast<std::size_t>(device)] = step_;
        state.queue->queue(
            recording_of(device, begun), true,
            [this, begun, batch = taken(replica).batch, key = taken(replica).key, device, replica] {
                State& here = set_.at(device);
                Context& context = here.worker.context();
                const float* const parameters = parameters_of(replica);
                std::byte* const block = here.queue->status();
                if (begun.packs) begun.plan->prepare(context, parameters, here.worker.buffers());
                const PassBuffers buffers{.running = here.worker.buffers(),
                                          .batch = set_.status(device).statistics(block, begun.number)};
                const float* const logits = begun.plan->forward(context, batch.samples, parameters, key, buffers);
                queue_loss_of(device, begun, batch, logits);
                const std::size_t buckets = begun.plan->buckets().size();
                const bool marks = Agreement::takes_buckets && begun.last;
                const auto ready = [&](std::size_t k) {
                    if (k + 1 < buckets) here.queue->mark_bucket(k);
                };
                begun.plan->backward(
                    context, batch.samples, parameters, set_.row(replica), key, begun.accumulates,
                    marks ? typename Plan<Kernels, T>::BucketReady(ready) : typename Plan<Kernels, T>::BucketReady());
                // Element 0 is in the last bucket, so a loss that is not finite travels with that.
                ops::TrainingStep<Kernels>::poison(context, &set_.status(device).report(block, begun.number)->sum,
                                                   set_.row(replica));
                if (marks) here.queue->mark_bucket(buckets - 1);
            });
    }

    /// The loss of a batch, and its gradient where backward begins.
    void queue_loss_of(int device, const Begun& begun, const BatchView& batch, const float* logits) {
        State& state = set_.at(device);
        Context& context = state.worker.context();
        {
            const Stopwatch watch(state.worker.times(), StepPart::loss);
            queue_loss(options_.loss.data.template operation<Kernels>(), context, logits, batch.labels, batch.size,
                       begun.plan->output_gradient(), set_.status(device).report(state.queue->status(), begun.number));
        }
        // The loss's gradient is that of the mean over this batch; several batches count by their samples.
        double weight = static_cast<double>(set_.network().loss_scale);
        if (options_.gradient_accumulation_steps > 1) {
            weight *= static_cast<double>(batch.size) /
                      static_cast<double>(options_.batch_size * options_.gradient_accumulation_steps);
        }
        if (weight == 1) return;
        const std::int64_t count = batch.size * set_.network().output_elements;
        scale(context, std::span(begun.plan->output_gradient(), static_cast<std::size_t>(count)), weight);
    }

    /// The replicas of all devices in step: they stop wherever the network merges statistics of the whole global batch.
    /// False where a device has failed.
    bool queue_together(int device, int part, BatchSource batches) {
        State& state = set_.at(device);
        Context& context = state.worker.context();
        const std::size_t all_reduces = sync_batch_norm_.all_reduces();
        const int first = set_.first_replica(device);
        for (int replica = first; replica < set_.first_replica(device + 1); ++replica)
            sync_batch_norm_.plan(replica) = nullptr;
        for_each_replica(device, [&](int replica) {
            const auto slot = static_cast<std::size_t>(replica - first);
            Begun& begun = begun_together_[static_cast<std::size_t>(replica)];
            begun = begin_batch(device, replica, part, batches, slot);
            if (begun.packs) begun.plan->prepare(context, parameters_of(replica), state.worker.buffers());
            sync_batch_norm_.plan(replica) = begun.plan;
        });
        note(device, "forward");
        const double* merged = nullptr;
        for (std::size_t k = 0; k <= all_reduces; ++k) {
            for_each_replica(device, [&](int replica) {
                Plan<Kernels, T>* const plan = sync_batch_norm_.plan(replica);
                if (plan == nullptr) return;
                const Begun& begun = begun_together_[static_cast<std::size_t>(replica)];
                const TakenBatch& batch = taken(replica);
                const PassBuffers buffers{.running = state.worker.buffers(),
                                          .batch = set_.status(device).statistics(state.queue->status(), begun.number)};
                const float* const logits =
                    plan->forward_segment(context, k, batch.batch.samples, parameters_of(replica), batch.key, buffers,
                                          merged, sync_batch_norm_.partial(k, replica));
                if (k == all_reduces) queue_loss_of(device, begun, batch.batch, logits);
            });
            if (k < all_reduces && !all_reduce(device, Direction::forward, k, k, merged)) return false;
        }
        note(device, "loss");
        note(device, "backward");
        for (std::size_t k = 0; k <= all_reduces; ++k) {
            for_each_replica(device, [&](int replica) {
                Plan<Kernels, T>* const plan = sync_batch_norm_.plan(replica);
                if (plan == nullptr) return;
                const Begun& begun = begun_together_[static_cast<std::size_t>(replica)];
                const TakenBatch& batch = taken(replica);
                plan->backward_segment(context, k, batch.batch.samples, parameters_of(replica), set_.row(replica),
                                       batch.key, begun.accumulates, merged,
                                       sync_batch_norm_.partial(all_reduces + k, replica));
                if (k < all_reduces) return;
                ops::TrainingStep<Kernels>::poison(
                    context, &set_.status(device).report(state.queue->status(), begun.number)->sum, set_.row(replica));
            });
            if (k < all_reduces && !all_reduce(device, Direction::backward, k, all_reduces + k, merged)) return false;
        }
        return true;
    }

    /// An all-reduce of the replicas' sums on all devices: each device merges them for itself. False where one failed.
    bool all_reduce(int device, Direction direction, std::size_t k, std::size_t turn, const double*& merged) {
        State& state = set_.at(device);
        const int first = set_.first_replica(device), last = set_.first_replica(device + 1);
        for (int replica = first; replica < last; ++replica) sync_batch_norm_.contribute(turn, replica, !state.error);
        if (!arrive_and_wait(state)) return false;
        std::vector<double>& sums = merged_[static_cast<std::size_t>(device)];
        state.attempt([&] { sync_batch_norm_.merge(direction, k, turn, first, last, sums); });
        merged = sums.data();
        return true;
    }

    bool arrive_and_wait(State& state) {
        const Stopwatch watch(state.worker.times(), StepPart::waiting);
        return set_.threads().arrive_and_wait(state.error == nullptr);
    }

    /// Completes a replica's gradient where its batches were smaller than they were weighed for.
    void weigh(int device, int replica) {
        const std::int64_t samples = counts_.of_replica(step_, replica),
                           expected = options_.batch_size * options_.gradient_accumulation_steps;
        if (options_.gradient_accumulation_steps == 1 || samples == 0 || samples == expected) return;
        const double factor = static_cast<double>(expected) / static_cast<double>(samples);
        set_.at(device).queue->queue([this, device, row = std::span(set_.row(replica), set_.elements()), factor] {
            scale(set_.context(device), row, factor);
        });
    }

    // The update.

    void queue_update(int device, Probe probe) {
        State& state = set_.at(device);
        Queue& queue = *state.queue;
        const auto reduce = [this, device] { reduce_gradient(device); };
        const auto apply = [this, device, step = step_] {
            Queue& here = *set_.at(device).queue;
            here.update(StatusBlock::healthy(here.status()), [&] { update_parameters(device, step); });
        };
        if (repeats_update) queue.gather_constants([this, device, step = step_] { update_parameters(device, step); });
        note(device, "reduce");
        if (probe) {
            queue.queue(reduce);
            if (device == 0) {
                note(device, "probe");
                show(probe);
            }
            note(device, "update");
            queue.queue(apply);
        } else {
            note(device, "update");
            queue.queue(recordings_[static_cast<std::size_t>(device)].update, repeats_update, [reduce, apply] {
                reduce();
                apply();
            });
        }
        state.worker.parameters_changed();
    }

    /// The average, and the sums of the squares that the regularisers report.
    void reduce_gradient(int device) {
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

    /// The parameters of a device's copies by their gradients, and then their moving averages.
    void update_parameters(int device, std::int64_t step) {
        auto& worker = set_.at(device).worker;
        for (int copy = 0; copy < set_.copies(device); ++copy) {
            {
                const Stopwatch watch(worker.times(), StepPart::optimizer);
                options_.optimizer.update(
                    Update<Kernels>{.context = worker.context(),
                                    .parameters = worker.parameters(copy),
                                    .gradient = agreement_.gradient_of(device, set_.first_replica(device) + copy),
                                    .state = worker.state(copy),
                                    .elements = set_.network().parameter_elements,
                                    .segments = segments_,
                                    .step = step});
            }
            if (!options_.moving_average.on()) continue;
            const Stopwatch watch(worker.times(), StepPart::moving_average);
            options_.moving_average.template update<Kernels>(worker.context(), worker.averages(copy),
                                                             worker.parameters(copy), set_.network().parameter_elements,
                                                             step + 1);
        }
    }

    /// What the step reports, on its way to the host.
    void finish(int device) {
        State& state = set_.at(device);
        if (checks_after(step_)) {
            note(device, "hash");
            state.queue->queue([this, device] { queue_check(set_, device); });
        }
        note(device, "land");
        state.queue->land(step_);
    }

    /// Waits, and shows a probe what the host reads of the step. What it throws comes out after the step.
    [[gnu::cold]] void show(Probe probe) {
        State& state = set_.at(0);
        Queue& queue = *state.queue;
        Context& context = state.worker.context();
        queue.mark();
        agreement_.wait(0, step_, false);
        std::vector<std::int32_t> flag;
        if (queue.on_host(context, StatusBlock::healthy(queue.status()), 1, flag)[0] == 0) return;
        // The first replica that has samples; without one, another process has them all.
        int replica = 0;
        while (replica + 1 < set_.replicas() && counts_.of_replica(step_, replica) == 0) ++replica;
        TakenBatch batch = taken(replica);
        if (counts_.of_replica(step_, replica) == 0) batch = {};
        if (set_.device_of(replica) != 0) batch.batch = queue.bring(batch.batch);
        std::vector<float> parameters, gradient, samples;
        std::vector<std::int32_t> labels;
        const float* const weights = state.worker.parameters();
        probed_ = {replica, batch.batch.samples};
        const auto size = static_cast<std::size_t>(batch.batch.size);
        BatchView shown = batch.batch;
        shown.samples = queue
                            .on_host(context, batch.batch.samples,
                                     size * static_cast<std::size_t>(set_.network().input_elements), samples)
                            .data();
        shown.labels = queue.on_host(context, batch.batch.labels, size, labels).data();
        const Inspection<Kernels> inspection(
            step_, context, queue.on_host(context, weights, set_.elements(), parameters),
            queue.on_host(context, agreement_.gradient_of(0, replica), set_.elements(), gradient), shown, batch.key,
            this,
            [](void* object, const BatchView& view, const RngKey& key, void* visitor,
               typename Inspection<Kernels>::VisitOutput visit) {
                static_cast<StepEngine*>(object)->visit_outputs(view, key, visitor, visit);
            });
        try {
            probe(inspection);
        } catch (...) {
            probe_error_ = std::current_exception();
        }
    }

    void visit_outputs(const BatchView& view, const RngKey& key, void* visitor,
                       typename Inspection<Kernels>::VisitOutput visit) {
        if (view.size == 0) return;
        State& state = set_.at(0);
        state.queue->write(StatusBlock::step(state.queue->status()), key.step);
        state.worker.inspect(
            set_.inspection_plan(0, view.size), state.worker.parameters(), probed_.samples, key,
            synchronized_ ? taken(probed_.replica).statistics : nullptr,
            [&](std::size_t layer, std::span<const float> values) {
                std::vector<float> copy;
                visit(visitor, layer, state.queue->on_host(state.worker.context(), values.data(), values.size(), copy));
            });
    }

    // What has become of a step.

    /// Until a step that was queued is complete on a device; on its thread.
    void wait_for(int device, std::int64_t step) {
        if (step < checked_ || step >= step_) return;  // complete, or not queued
        agreement_.wait(device, step, true);
    }

    /// Before a step is queued: its slot is that of the oldest report, which is dropped if nobody asked for it.
    void reserve_slot() {
        if (step_ - reported_ == D::max_steps_in_flight) (void)poll(0);
    }

    /// Waits for the next step, and makes its report of what landed.
    void check_step() {
        const std::int64_t step = checked_;
        bool there = true;
        for (State& state : set_.devices()) there = there && state.queue->finished(step);
        // A collective that failed ends what was queued too: its wait says so.
        if (!there || !agreement_.healthy()) set_.threads().run([&](int device) { wait_for(device, step); });
        bool healthy = true;
        for (int r = 0; r < set_.replicas(); ++r) healthy = read_report(step, r) && healthy;
        for (State& state : set_.devices()) {
            healthy = healthy && *StatusBlock::healthy(state.queue->landed(step)) != 0;
        }
        if (!healthy) roll_back(step);
        tally_of(step).finish(step, options_.optimizer.learning_rate_at(step));
        if (!running_.empty()) update_statistics(step);
        if (checks_after(step)) {
            for (State& state : set_.devices()) state.updating = true;  // not healthy, unless they are equal
            check_agreement(set_, step, !own_parameters, running_);
            for (State& state : set_.devices()) state.updating = false;
        }
        ++checked_;
    }

    [[nodiscard]] bool checks_after(std::int64_t step) const {
        return options_.check_every > 0 && (step + 1) % options_.check_every == 0;
    }

    /// Makes a replica's report of what landed; false if its loss is not finite.
    bool read_report(std::int64_t step, int replica) {
        const int device = set_.device_of(replica);
        std::byte* const landed = set_.at(device).queue->landed(step);
        StepReportBuilder& report_builder = tally_of(step);
        report_builder.begin(replica);
        ReplicaReport& report = report_builder.of(replica);
        bool finite = true;
        for (int part = 0; part < options_.gradient_accumulation_steps; ++part) {
            if (counts_.of(step, part, replica) == 0) continue;
            const LossReport& of_batch = *set_.status(device).report(landed, batch_number(replica, part));
            report.correct += of_batch.correct;
            report.parts[0].value += of_batch.sum;
            finite = finite && std::isfinite(of_batch.sum);
        }
        for (std::size_t i = 0; i < regularized_.size(); ++i) {
            regularization_[i] = 0.5 * regularized_[i].coefficient * StatusBlock::regularization(landed)[i];
        }
        const std::int64_t samples = counts_.of_replica(step, replica);
        if (samples > 0) report_builder.complete(replica, samples, regularization_);
        return finite && std::isfinite(report.total);
    }

    /// Every device has the same running statistics, so the host updates them, in the order of the steps, and shares them
    /// before they are used.
    void update_statistics(std::int64_t step) {
        const Stopwatch watch(set_.at(0).worker.times(), StepPart::statistics);
        const FlushedDenormals scope;
        for (int part = 0; part < options_.gradient_accumulation_steps; ++part) {
            statistics_rows_.clear();
            for (int r = 0; r < set_.replicas(); ++r) {
                const int device = set_.device_of(r);
                statistics_rows_.add(
                    set_.status(device).statistics(set_.at(device).queue->landed(step), batch_number(r, part)),
                    counts_.of(step, part, r));
            }
            if (statistics_rows_.rows().empty()) continue;
            options_.statistics.update(StatisticsUpdate{.running = running_.data(),
                                                        .layers = statistics_layers_,
                                                        .rows = statistics_rows_.rows(),
                                                        .samples = statistics_rows_.samples()});
        }
        running_changed_ = true;
    }

    /// The step came to nothing, and so did those after it. Finds out why, and leaves the training as it was before.
    [[noreturn, gnu::cold]] void roll_back(std::int64_t step) {
        set_.threads().run([&](int device) {
            for (std::int64_t s = step; s < step_; ++s) wait_for(device, s);
        });
        std::exception_ptr error;
        try {
            find_error(step);
        } catch (...) {
            error = std::current_exception();
        }
        step_ = step;
        forget_steps();
        std::rethrow_exception(error);
    }

    [[noreturn, gnu::cold]] void find_error(std::int64_t step) {
        std::vector<SearchedReplica> replicas;
        for (int r = 0; r < set_.replicas(); ++r) {
            SearchedReplica found{.samples = counts_.of_replica(step, r), .total = tally_of(step).of(r).total};
            for (int part = 0; part < options_.gradient_accumulation_steps; ++part) {
                if (counts_.of(step, part, r) == 0) continue;
                const int device = set_.device_of(r);
                const LossReport& report =
                    *set_.status(device).report(set_.at(device).queue->landed(step), batch_number(r, part));
                // Throws for a label that is no class.
                const LossResult result = result_of_loss(options_.loss.data.template operation<Kernels>(), report);
                if (!std::isfinite(result.sum) && found.part < 0) found.part = part;
            }
            found.last_part = counts_.last_part(step, r);
            // A queue that copies batches keeps those of the failed step, whatever was queued after it.
            const int part = std::max(found.last_part, 0);
            found.batch = taken(r).batch;
            found.batch.size = counts_.of(step, part, r);
            found.key = key_of(step * options_.gradient_accumulation_steps + part, r);
            replicas.push_back(found);
        }
        FiniteSearch<D, T>(set_, step, options_.gradient_accumulation_steps).throw_first(replicas);
    }

    void forget_steps() {
        reported_ = checked_ = step_;
        set_.threads().run([&](int device) {
            Queue& queue = *set_.at(device).queue;
            queue.write(StatusBlock::healthy(queue.status()), std::int32_t{1});
        });
    }

    // Names and numbers.

    [[nodiscard]] std::size_t batch_number(int replica, int part) const {
        const int device = set_.device_of(replica);
        const int here = set_.first_replica(device + 1) - set_.first_replica(device);
        return static_cast<std::size_t>(part * here + set_.local(replica));
    }
    [[nodiscard]] RngKey key_of(std::int64_t place, int replica) const {
        return {.seed = options_.seed,
                .step = static_cast<std::uint32_t>(place),
                .first_sample = (agreement_.first_replica() + replica) * options_.batch_size};
    }
    [[nodiscard]] typename Queue::Recording& recording_of(int device, const Begun& begun) {
        auto& batches = recordings_[static_cast<std::size_t>(device)].passes;
        if (begun.number >= batches.size()) batches.resize(begun.number + 1);
        auto& passes = batches[begun.number];
        for (PassRecording& known : passes) {
            if (known.plan == begun.plan && known.packs == begun.packs && known.accumulates == begun.accumulates)
                return known.recording;
        }
        passes.push_back({.plan = begun.plan, .packs = begun.packs, .accumulates = begun.accumulates});
        return passes.back().recording;
    }

    const Options& options_;
    Set& set_;
    Agreement agreement_;
    std::vector<RegularizedParameter> regularized_;
    std::vector<Segment> segments_;
    std::vector<RunningStatistics> statistics_layers_;
    SampleCounts counts_;
    std::vector<TakenBatch> taken_;
    std::vector<Recordings> recordings_;
    /// The step whose last backward marks the buckets on each device.
    std::vector<std::int64_t> marked_;
    std::vector<StepReportBuilder> tallies_;
    std::vector<double> regularization_;
    WeightedRows statistics_rows_;
    std::vector<float> running_;
    bool running_changed_ = false, synchronized_ = false;
    SyncBatchNormGroup<Kernels, T> sync_batch_norm_;
    std::vector<Begun> begun_together_;
    /// Pooled sums of the replicas that run in step, per device.
    std::vector<std::vector<double>> merged_;
    struct {
        int replica = 0;
        const float* samples = nullptr;
    } probed_;
    std::exception_ptr probe_error_;
    StepTrace* trace_ = nullptr;
    /// The step that is queued next, the oldest that has not been waited for, and the oldest whose report was not
    /// collected.
    std::int64_t step_ = 0, checked_ = 0, reported_ = 0;
};

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
