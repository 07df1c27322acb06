// SPDX-License-Identifier: Apache-2.0
//
// StepEngine: queues one step of a training on every device, and makes its report once it is complete. The order on each
// device is the same for every device type and every kind of agreement:
//
//   wait for a slot | (batch, forward, loss, backward) x parts x replicas | agree | reduce, regularise | probe |
//   update, moving average | agree on parameters | hash | land
//
// A step whose loss or gradient is not finite, or that has a label that is not a class, is found when its report is
// read: from this step on no update changes parameters, the later steps have no effect, and the error names the step.
// Under a dynamic loss scale a step whose gradient is not finite is skipped instead, on every device alike and without
// a wait for the host, until the scale would be less than its minimum (ops/loss_scale.hpp). In the same way a step is
// skipped in which no sample counts, where the options allow it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <cupola/core/error.hpp>
#include <cupola/core/finite.hpp>
#include <cupola/core/fixed_array.hpp>
#include <cupola/core/function_ref.hpp>
#include <cupola/core/loss_scale.hpp>
#include <cupola/parallel/agreement/agreement_of.hpp>
#include <cupola/parallel/replicas/batch_results.hpp>
#include <cupola/parallel/replicas/replicas.hpp>
#include <cupola/parallel/replicas/sample_counts.hpp>
#include <cupola/parallel/replicas/status.hpp>
#include <cupola/parallel/step/check.hpp>
#include <cupola/parallel/step/finite_search.hpp>
#include <cupola/parallel/step/replica_passes.hpp>
#include <cupola/parallel/step/shared_statistics.hpp>
#include <cupola/parallel/step/step_functions.hpp>
#include <cupola/parallel/step/step_probe.hpp>
#include <cupola/parallel/step/step_reports.hpp>
#include <cupola/parallel/step/step_trace.hpp>
#include <cupola/parallel/step/step_update.hpp>
#include <cupola/parallel/step_report.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// `A` is the policy by which the replicas agree. Nothing here depends on the types of the network, the loss and the optimiser.
template <class D, class T, class A>
class StepEngine {
    using Kernels = typename D::Kernels;
    using Set = Replicas<D, T>;
    using State = DeviceState<D, T>;
    using Queue = typename D::Queue;
    using Agreement = typename AgreementOf<A, D, T>::Type;
    static_assert(impl::Agreement<Agreement, A, D, T>);
    using StepUpdate = impl::StepUpdate<D, T, Agreement>;
    using Passes = ReplicaPasses<D, T>;

public:
    [[gnu::cold]] ~StepEngine();
    using BatchSource = typename Passes::BatchSource;
    using Inspector = typename StepProbe<D, T>::Inspector;
    /// Called between the average and the update, on the first device's thread; calls show() of the engine. The engine does
    /// not call it itself, so that only programs that inspect a step compile it.
    using Probe = FunctionRef<void(StepEngine&)>;

    /// What the memory of a training depends on, before it is allocated. `elements` are those of a gradient.
    [[nodiscard]] static AgreementTraits traits(const A& averaging, std::int64_t elements) {
        return Agreement::traits(averaging, elements);
    }

    [[gnu::cold]] StepEngine(const StepFunctions<D>& functions, const A& averaging, Set& replicas,
                             std::span<const RegularizedParameter> regularized)
        : functions_(functions),
          replicas_(replicas),
          traits_(Agreement::traits(averaging, replicas.network().trained_elements)),
          agreement_(averaging, replicas),
          counts_(replicas.placement().replicas(), functions.gradient_accumulation_steps, D::max_steps_in_flight),
          passes_(functions, replicas, agreement_.peers(), counts_, traits_.takes_buckets),
          reports_(replicas, agreement_.peers(), counts_, functions, regularized),
          results_(replicas, agreement_.peers()),
          statistics_(replicas, agreement_.peers(), counts_),
          probe_(replicas),
          update_(functions, replicas, agreement_, regularized) {}

    /// Before the first step of a training whose statistics are synchronised.
    [[gnu::cold]] void run_in_step() { passes_.run_in_step(); }

    /// The number of the step that is queued next.
    [[nodiscard]] std::int64_t step() const { return step_; }
    [[nodiscard]] const Agreement& agreement() const { return agreement_; }

    /// Queues a step; `probe` may refer to nothing. Throws InvalidArgument for a batch that no plan was made for and
    /// for a learning rate that is negative or not finite, and the error of an earlier step.
    void queue(BatchSource batches, Probe probe);

    /// Inside a probe: waits, and calls `inspector` with the values of the step that the host reads. Its exception is thrown
    /// after the step.
    [[gnu::cold]] void show(Inspector inspector);

    /// The report of the oldest step whose report was not read, if there are more than `max_in_flight` such steps; null
    /// otherwise. Valid until max_steps_in_flight - 1 more steps are queued. Throws the error of that step.
    const StepReport* poll(std::int64_t max_in_flight);

    /// Waits for all steps, and returns the report of the last.
    const StepReport& last_report();

    /// Waits for all steps. Throws the error of the first that failed.
    void synchronize() {
        while (checked_ < step_) check_step();
    }

    [[nodiscard]] SharedStatistics<D, T>& statistics() { return statistics_; }

    /// The factor that makes a replica's row its gradient of the last step.
    [[nodiscard]] double factor_of_row(int replica);

    /// Waits until no work is queued any more, whether it succeeded or not. A device that failed breaks off a collective.
    [[gnu::cold]] void drain();

    /// Continues at a step with these running statistics and this state of the loss scale, after drain().
    [[gnu::cold]] void restart(std::int64_t step, std::span<const float> running, const LossScaleState& loss_scale);

    /// The state of the loss scale after the last step whose report was made.
    [[nodiscard]] const LossScaleState& loss_scale() const { return loss_scale_; }

    /// Whether the parameters are those after a whole step: false once an update was broken off, the parameters of devices
    /// differ, or a collective has failed.
    [[nodiscard]] bool healthy() const;

    /// The reason why work is queued again that could have been repeated; empty if all of it is repeated.
    [[nodiscard, gnu::cold]] std::string not_repeated() const;
    /// See DataParallel.
    [[nodiscard, gnu::cold]] std::string launches_description() const;
    /// Calls visit(recording) for each recording of a device.
    template <class Visit>
    void for_each_recording(int device, Visit&& visit) const {
        passes_.for_each_recording(device, visit);
        update_.for_each_recording(device, visit);
    }

    /// From now on `trace` is called with the names of the operations, in the order of queueing; nothing ends this.
    void trace(StepTrace trace) {
        trace_ = trace;
        passes_.trace(trace);
    }

private:
    void note(int device, const char* name) {
        if (trace_) trace_(device, name);
    }

    // Queueing a step.

    void queue_on(int device, BatchSource batches, Probe probe);

    /// Throws this device's own error, if there is one, when it leaves the job.
    static void leave(const State& state) {
        if (state.error) std::rethrow_exception(state.error);
    }

    // The update, and what follows it.

    void queue_update(int device, Probe probe);

    /// Queues the copy of the step's report to the host.
    void finish(int device);

    // Reading a step's result.

    /// Waits until a queued step is complete on a device; on its thread.
    void wait_for(int device, std::int64_t step);

    /// Called before a step is queued: its slot is that of the oldest report, which is dropped if it was not read.
    void reserve_slot() {
        if (step_ - reported_ == D::max_steps_in_flight) (void)poll(0);
    }

    /// Waits for the next step, and makes its report from the data that the devices have copied to the host.
    void check_step();
    void read_step(std::int64_t step);

    /// Calls `work`. A DeviceLost that it throws also names the steps in one of which the device failed: those before
    /// `end` that have not been found complete.
    template <class Work>
    void naming_steps(std::int64_t end, Work&& work) {
        try {
            work();
        } catch (const DeviceLost& error) {
            lose(end, error);
        }
    }
    [[noreturn, gnu::cold]] void lose(std::int64_t end, const DeviceLost& error);

    [[nodiscard]] bool checks_after(std::int64_t step) const {
        return functions_.check_every > 0 && (step + 1) % functions_.check_every == 0;
    }

    /// The step and all later ones had no effect. Finds the cause, and leaves the training in the state before the step.
    [[noreturn, gnu::cold]] void roll_back(std::int64_t step);

    [[noreturn, gnu::cold]] void find_error(std::int64_t step);
    /// Throws InvalidArgument for weights of a step that are not valid.
    [[gnu::cold]] void require_weights(std::int64_t step);
    /// "3 on replica 0, 3 on replica 1", the samples of a step.
    [[nodiscard, gnu::cold]] std::string samples_text(std::int64_t step) const;
    /// Whether targets, ids and weights of a step that was skipped are valid.
    [[nodiscard, gnu::cold]] bool valid_input(std::int64_t step);

    /// Rows that were divided in place by a weight of 0 are NaN between the parameters too, where no pass writes.
    [[gnu::cold]] void clear_rows();
    void forget_steps();

    const StepFunctions<D>& functions_;
    Set& replicas_;
    AgreementTraits traits_;
    Agreement agreement_;
    SampleCounts counts_;
    Passes passes_;
    StepReports<D, T> reports_;
    BatchResults<D, T> results_;
    SharedStatistics<D, T> statistics_;
    StepProbe<D, T> probe_;
    StepUpdate update_;
    StepTrace trace_{};
    /// The numbers of the step that is queued next, of the oldest that has not been waited for, and of the oldest whose
    /// report was not read.
    std::int64_t step_ = 0, checked_ = 0, reported_ = 0;
    bool lost_ = false;
    /// After step checked_ - 1; and the scale of that step.
    LossScaleState loss_scale_{};
    double scale_of_rows_ = 1;
};

template <class D, class T, class A>
StepEngine<D, T, A>::~StepEngine() = default;

template <class D, class T, class A>
void StepEngine<D, T, A>::queue(BatchSource batches, Probe probe) {
    reserve_slot();
    // Before anything of the step is queued: an error in its update would leave the devices with different parameters.
    // The update of a step before which more steps are skipped than known has a smaller number, which was checked.
    functions_.require_learning_rate_at(step_ - loss_scale_.skipped_steps);
    agreement_.peers().begin_step(step_);
    if constexpr (!D::host_memory) {
        // The update of an optimiser that is queued anew in each step needs its number now.
        if (replicas_.settings().may_skip() && !functions_.repeats_update) synchronize();
    }
    counts_.clear(step_);
    update_.begin_step(loss_scale_.skipped_steps, step_ - checked_);
    agreement_.begin(step_, counts_, statistics_.values());
    probe_.begin();
    naming_steps(step_ + 1, [&] { replicas_.threads().run([&](int device) { queue_on(device, batches, probe); }); });
    for (State& state : replicas_.devices()) state.updating = false;
    ++step_;
    probe_.rethrow();
}

template <class D, class T, class A>
const StepReport* StepEngine<D, T, A>::poll(std::int64_t max_in_flight) {
    if (step_ - reported_ <= max_in_flight) return nullptr;
    while (checked_ <= reported_) check_step();
    agreement_.peers().read_flags(reported_);
    return &reports_.of(reported_++);
}

template <class D, class T, class A>
const StepReport& StepEngine<D, T, A>::last_report() {
    const ReadsTogether scope(&agreement_.peers());
    synchronize();
    reported_ = step_;
    agreement_.peers().read_flags(step_ - 1);
    return reports_.of(step_ - 1);
}

template <class D, class T, class A>
double StepEngine<D, T, A>::factor_of_row(int replica) {
    // The average, and a row that its replica is updated with, are divided by the loss scale before the update.
    const bool divided =
        traits_.own_parameters ||
        replicas_.gradients().row(replica) == replicas_.gradients().average(replicas_.placement().device_of(replica));
    const double scale = divided ? 1.0 : scale_of_rows_;
    double factor = (traits_.takes_buckets && step_ > 0 ? passes_.completion(step_ - 1, replica) : 1.0) / scale;
    // A row is the gradient of the sum over the replica's samples divided by their number.
    if (!divided && replicas_.settings().weighted && step_ > 0) {
        const ReplicaReport& report = reports_.of(step_ - 1, replica);
        if (report.weight > 0) factor *= static_cast<double>(report.samples) / report.weight;
    }
    return factor;
}

template <class D, class T, class A>
void StepEngine<D, T, A>::drain() {
    replicas_.threads().run([&](int device) {
        Queue& queue = *replicas_.at(device).queue;
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

template <class D, class T, class A>
void StepEngine<D, T, A>::restart(std::int64_t step, std::span<const float> running, const LossScaleState& loss_scale) {
    step_ = step;
    loss_scale_ = loss_scale;
    scale_of_rows_ = static_cast<double>(loss_scale.scale);
    statistics_.restart(running);
    forget_steps();
    for (State& state : replicas_.devices()) state.updating = false;
}

template <class D, class T, class A>
bool StepEngine<D, T, A>::healthy() const {
    if (lost_) return false;
    for (const State& state : std::as_const(replicas_).devices()) {
        if (state.updating) return false;
    }
    return agreement_.healthy();
}

template <class D, class T, class A>
std::string StepEngine<D, T, A>::not_repeated() const {
    if (!repeats_work<D>) return {};
    if (!functions_.repeats_update) return "the update: the optimiser does not declare that it can be captured";
    std::string why;
    const auto look = [&](const auto& recording, const char* of) {
        if (const std::string refused = recording.refused(); why.empty() && !refused.empty()) why = of + refused;
    };
    for (int device = 0; device < replicas_.placement().device_count(); ++device) {
        passes_.for_each_recording(device, [&](const auto& pass) { look(pass, "the passes of a replica: "); });
        update_.for_each_recording(device, [&](const auto& update) { look(update, "the update: "); });
    }
    return why;
}

template <class D, class T, class A>
std::string StepEngine<D, T, A>::launches_description() const {
    if constexpr (requires(const Queue& queue) { queue.launches(); }) {
        const auto& counted = replicas_.at(0).queue->launches();
        if (counted.all > 0 && counted.captured)
            return text("a step queues ", counted.all, " kernels and copies, ", counted.in_graphs, " of them in ",
                        counted.graphs, counted.graphs == 1 ? " graph" : " graphs");
    }
    return {};
}

template <class D, class T, class A>
void StepEngine<D, T, A>::queue_on(int device, BatchSource batches, Probe probe) {
    State& state = replicas_.at(device);
    [[maybe_unused]] const auto team = state.worker.context().team();
    state.error = nullptr;
    state.attempt([&] { wait_for(device, step_ - (D::max_steps_in_flight - 1)); });
    note(device, "slot");
    state.attempt([&] {
        update_.set_constants(device, step_);
        agreement_.peers().queue_flags(device);
    });
    DeviceStep<D, T> step{device, step_, replicas_, counts_, state};
    if (!passes_.queue(device, step_, batches)) return leave(state);
    if (!traits_.takes_buckets) passes_.complete(device, step_);
    step.marked = passes_.marked(device);
    note(device, "agree");
    if (!agreement_.agree(step)) return leave(state);
    state.updating = true;  // from here on an error leaves the devices with different parameters
    state.attempt([&] { queue_update(device, probe); });
    agreement_.after(step);
    state.attempt([&] { finish(device); });
    leave(state);
}

template <class D, class T, class A>
void StepEngine<D, T, A>::queue_update(int device, Probe probe) {
    note(device, "reduce");
    if (probe) {
        update_.queue_around(device, step_, [&] {
            if (device == 0) {
                note(device, "probe");
                probe(*this);
            }
            note(device, "update");
        });
    } else {
        note(device, "update");
        update_.queue(device, step_);
    }
}

template <class D, class T, class A>
void StepEngine<D, T, A>::finish(int device) {
    State& state = replicas_.at(device);
    if (checks_after(step_)) {
        note(device, "hash");
        state.queue->queue([this, device] { queue_check(replicas_, device); });
    }
    note(device, "land");
    state.queue->land(step_);
}

template <class D, class T, class A>
void StepEngine<D, T, A>::show(Inspector inspector) {
    replicas_.at(0).queue->mark();
    agreement_.wait(0, step_, false);
    // The first replica that has samples; if there is none, all samples are in another process.
    int replica = replicas_.placement().first_replica(0);
    while (replicas_.placement().is_here(replica + 1) && counts_.of_replica(step_, replica) == 0) ++replica;
    const bool has_samples = counts_.of_replica(step_, replica) > 0;
    probe_.show(step_, replica, has_samples ? passes_.batches().of(replica) : TakenBatch{},
                agreement_.gradient(0, replica).values, inspector);
}

template <class D, class T, class A>
void StepEngine<D, T, A>::wait_for(int device, std::int64_t step) {
    if (step < checked_ || step >= step_) return;  // complete, or not queued
    agreement_.wait(device, step, true);
}

template <class D, class T, class A>
void StepEngine<D, T, A>::check_step() {
    naming_steps(step_, [&] { read_step(checked_); });
    ++checked_;
}

template <class D, class T, class A>
void StepEngine<D, T, A>::lose(std::int64_t end, const DeviceLost& error) {
    // A step that is queued while earlier ones run is not the one that failed if it could not be queued.
    const std::string steps =
        end - checked_ > 1 ? text("one of the steps ", checked_, " to ", end - 1) : text("step ", checked_);
    if (std::exchange(lost_, true)) throw DeviceLost(error);
    throw DeviceLost(text("a device was lost in ", steps, ": ", error.what(),
                          "; this process cannot use it again: start another one, from the last checkpoint"));
}

template <class D, class T, class A>
void StepEngine<D, T, A>::read_step(std::int64_t step) {
    bool there = true;
    for (State& state : replicas_.devices()) there = there && state.queue->finished(step);
    // A collective that failed ends the queued work too; its wait throws the error.
    if (!there || !agreement_.healthy()) replicas_.threads().run([&](int device) { wait_for(device, step); });
    agreement_.peers().read_samples(step, counts_);
    const bool finite = reports_.read(step);
    const LossScaleState before = loss_scale_, after = replicas_.at(0).landed(step).loss_scale;
    const bool skipped = after.skipped_steps != before.skipped_steps;
    if (skipped ? !reports_.healthy(step) || !valid_input(step) : !finite) roll_back(step);
    reports_.finish(step, functions_.learning_rate_at(step - before.skipped_steps), before, after);
    loss_scale_ = after;
    scale_of_rows_ = static_cast<double>(before.scale);
    if (!skipped) statistics_.update(step, functions_);
    if (checks_after(step)) {
        for (State& state : replicas_.devices()) state.updating = true;  // not healthy, unless they are equal
        check_agreement(replicas_, agreement_.peers(), step, !traits_.own_parameters, statistics_.values());
        for (State& state : replicas_.devices()) state.updating = false;
    }
}

template <class D, class T, class A>
void StepEngine<D, T, A>::roll_back(std::int64_t step) {
    replicas_.threads().run([&](int device) {
        for (std::int64_t s = step; s < step_; ++s) wait_for(device, s);
    });
    std::exception_ptr error;
    try {
        find_error(step);
    } catch (...) {
        error = std::current_exception();
    }
    step_ = step;
    if (replicas_.settings().weighted && (traits_.own_parameters || replicas_.gradients().in_place())) clear_rows();
    forget_steps();
    std::rethrow_exception(error);
}

template <class D, class T, class A>
void StepEngine<D, T, A>::find_error(std::int64_t step) {
    FixedArray<SearchedReplica> replicas(static_cast<std::size_t>(replicas_.placement().replicas()));
    for (int r = 0; r < replicas_.placement().replicas(); ++r) {
        SearchedReplica& found = replicas[static_cast<std::size_t>(r)];
        found = {.samples = counts_.of_replica(step, r),
                 .total = reports_.of(step, r).total,
                 .not_finite_element = results_.not_finite_element(step, r)};
        found.part = reports_.part_not_finite(step, r);
        found.last_part = counts_.last_part(step, r);
        if (!replicas_.placement().is_here(r)) continue;
        // A queue that copies batches still has those of the failed step, even if later steps were queued.
        const int part = std::max(found.last_part, 0);
        found.batch = passes_.batches().of(r).batch;
        found.batch.size = counts_.of(step, part, r);
        found.key = passes_.batches().key_of(step, part, r);
    }
    require_weights(step);
    FiniteSearch<D, T>(replicas_, agreement_.peers(), step, functions_.gradient_accumulation_steps, loss_scale_.scale)
        .throw_first(replicas);
}

template <class D, class T, class A>
bool StepEngine<D, T, A>::valid_input(std::int64_t step) {
    try {
        for (int r = 0; r < replicas_.placement().replicas(); ++r) static_cast<void>(reports_.part_not_finite(step, r));
        require_weights(step);
    } catch (const InvalidArgument&) {
        return false;
    }
    // Another device has not skipped a step whose loss there is not finite, although no sample counts.
    double weight = 0;
    bool finite = true;
    for (int r = 0; r < replicas_.placement().replicas(); ++r) {
        weight += reports_.of(step, r).weight;
        finite = finite && is_finite(reports_.of(step, r).total);
    }
    return weight > 0 || finite;
}

template <class D, class T, class A>
void StepEngine<D, T, A>::require_weights(std::int64_t step) {
    double weight = 0;
    bool finite = true;
    for (int r = 0; r < replicas_.placement().replicas(); ++r) {
        const double of_replica = reports_.of(step, r).weight;
        require(is_nan(of_replica) || of_replica >= 0, "the weights of the samples of replica ", r, " in step ", step,
                " add up to ", of_replica, "; a weight must be 0 or more");
        weight += of_replica;
        finite = finite && is_finite(reports_.of(step, r).total);
    }
    if (!replicas_.settings().weighted || !finite) return;
    if (!(weight > 0)) {
        require(replicas_.settings().skips_without_weight, "no sample of step ", step, " counts, of ",
                samples_text(step), ": ", functions_.reason_of_no_weight(),
                "; the option skip_steps_without_labels lets such a step pass without an update");
        return;
    }
    if (traits_.own_parameters) {
        for (int r = 0; r < replicas_.placement().replicas(); ++r) {
            const std::int64_t samples = counts_.of_replica(step, r);
            require(samples == 0 || reports_.of(step, r).weight > 0, "no sample of replica ", r, " in step ", step,
                    " counts, of ", samples, ": ", functions_.reason_of_no_weight(), "; ", A::name,
                    " updates each replica with its own samples");
        }
    }
}

template <class D, class T, class A>
std::string StepEngine<D, T, A>::samples_text(std::int64_t step) const {
    std::string all;
    for (int r = 0; r < replicas_.placement().replicas(); ++r) {
        const std::int64_t samples = counts_.of_replica(step, r);
        if (samples > 0) all += text(all.empty() ? "" : ", ", samples, " on replica ", r);
    }
    return all;
}

template <class D, class T, class A>
void StepEngine<D, T, A>::clear_rows() {
    const FixedArray<float> zeros(replicas_.elements());
    replicas_.threads().run([&](int device) {
        for (int r = replicas_.placement().first_replica(device); r < replicas_.placement().first_replica(device + 1);
             ++r)
            replicas_.at(device).worker.set(replicas_.gradients().row(r), zeros);
    });
}

template <class D, class T, class A>
void StepEngine<D, T, A>::forget_steps() {
    reported_ = checked_ = step_;
    agreement_.peers().forget();
    replicas_.threads().run([&](int device) {
        Queue& queue = *replicas_.at(device).queue;
        queue.write(&step_status(queue.status())->healthy, std::int32_t{1});
        queue.write(&step_status(queue.status())->failed, std::int32_t{0});
        queue.write(&step_status(queue.status())->loss_scale, loss_scale_);
        for (int r = 0; r < replicas_.placement().replicas(); ++r)
            queue.write(replicas_.at(device).layout.not_finite(queue.status(), r), 0ULL);
    });
}

}}}  // namespace cupola::CUPOLA_ABI::impl
