// SPDX-License-Identifier: Apache-2.0
//
// StepEngine: queues one step of a training on every device, stage by stage: see StepEngine::stages. The order is the
// same for every device type and every way to agree. A step is complete, or has failed, when its report is read
// (StepReader).
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <cupola/core/function_ref.hpp>
#include <cupola/core/loss_scale.hpp>
#include <cupola/parallel/agreement/step_agreement.hpp>
#include <cupola/parallel/replicas/peers.hpp>
#include <cupola/parallel/replicas/replicas.hpp>
#include <cupola/parallel/replicas/sample_counts.hpp>
#include <cupola/parallel/step/check.hpp>
#include <cupola/parallel/step/replica_passes.hpp>
#include <cupola/parallel/step/shared_statistics.hpp>
#include <cupola/parallel/step/step_functions.hpp>
#include <cupola/parallel/step/step_reader.hpp>
#include <cupola/parallel/step/step_update.hpp>
#include <cupola/parallel/step_report.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Nothing here depends on the types of the network, the loss, the optimiser and the policies.
template <class D, class T>
class StepEngine {
    using State = DeviceState<D, T>;
    using Step = DeviceStep<D, T>;
    using Passes = ReplicaPasses<D, T>;

public:
    [[gnu::cold]] ~StepEngine() = default;
    using BatchSource = typename Passes::BatchSource;
    /// Called between the average and the update, on the first device's thread; calls show() of the engine. The engine
    /// does not call it itself, so that only programs that inspect a step compile it.
    using Probe = FunctionRef<void(StepEngine&)>;

    /// All must outlive the object; `policy` is the name of the one by which the replicas agree.
    [[gnu::cold]] StepEngine(const StepFunctions<D>& functions, StepAgreement<D, T>& agreement,
                             Replicas<D, T>& replicas, std::span<const RegularizedParameter> regularized,
                             std::string_view policy)
        : functions_(functions),
          replicas_(replicas),
          agreement_(agreement),
          counts_(replicas.placement().replicas(), functions.gradient_accumulation_steps, D::max_steps_in_flight),
          passes_(functions, replicas, agreement_.peers(), counts_),
          reader_(functions, replicas, agreement_, counts_, passes_.batches(), regularized, policy),
          update_(functions, replicas, agreement_, regularized) {}

    /// Before the first step of a training whose statistics are synchronised, or whose network is in parts.
    template <class Joint>
    [[gnu::cold]] void run_jointly() {
        passes_.template run_jointly<Joint>();
    }

    /// The number of the step that is queued next.
    [[nodiscard]] std::int64_t step() const { return reader_.next(); }

    /// Queues a step; `probe` may refer to nothing. Throws InvalidArgument for a batch that no plan was made for and
    /// for a learning rate that is negative or not finite, and the error of an earlier step.
    void queue(BatchSource batches, Probe probe);

    /// Inside a probe: waits, and calls `inspector` with the values of the step that the host reads. Its exception is
    /// thrown after the step. Defined in parallel/inspection.hpp.
    template <class Inspector>
    [[gnu::cold]] void show(Inspector& inspector);

    /// The report of the oldest step whose report was not read, if there are more than `max_in_flight` such steps; null
    /// otherwise. Valid until max_steps_in_flight - 1 more steps are queued. Throws the error of that step.
    const StepReport* poll(std::int64_t max_in_flight) { return reader_.poll(max_in_flight); }

    /// Waits for all steps, and returns the report of the last.
    const StepReport& last_report() { return reader_.last_report(); }

    /// Waits for all steps. Throws the error of the first that failed.
    void synchronize() { reader_.synchronize(); }

    [[nodiscard]] SharedStatistics<D, T>& statistics() { return reader_.statistics(); }

    /// The factor that makes a replica's row its gradient of the last step.
    [[nodiscard]] double factor_of_row(int replica) {
        const bool incomplete = replicas_.settings().takes_buckets && step() > 0;
        return reader_.factor_of_row(replica, incomplete ? passes_.completion(step() - 1, replica) : 1.0);
    }

    /// Waits until no work is queued any more, whether it succeeded or not. A device that failed breaks off a
    /// collective.
    [[gnu::cold]] void drain() { reader_.drain(); }

    /// Continues at a step with these running statistics and this state of the loss scale, after drain().
    [[gnu::cold]] void restart(std::int64_t step, std::span<const float> running, const LossScaleState& loss_scale) {
        reader_.restart(step, running, loss_scale);
    }
    /// The same where a state is restored that `check` refuses or `copy` copies to the devices, once no step is in
    /// flight.
    [[gnu::cold]] void restore(std::int64_t step, std::span<const float> running, const LossScaleState& loss_scale,
                               FunctionRef<void()> check, FunctionRef<void()> copy) {
        check();
        drain();
        copy();
        restart(step, running, loss_scale);
    }

    /// The state of the loss scale after the last step whose report was made.
    [[nodiscard]] const LossScaleState& loss_scale() const { return reader_.loss_scale(); }

    /// Whether the parameters are those after a whole step: false once an update was broken off, the parameters of
    /// devices differ, or a collective has failed.
    [[nodiscard]] bool healthy() const { return reader_.healthy(); }

    /// The reason why work is queued again that could have been repeated; empty if all of it is repeated.
    [[nodiscard, gnu::cold]] std::string not_repeated() const {
        if constexpr (repeats_work<D>) return why_not_repeated(functions_, replicas_, passes_, update_);
        return {};
    }
    /// See DataParallel.
    [[nodiscard, gnu::cold]] std::string launches_description() const {
        if constexpr (requires(const typename D::Queue& queue) { queue.launches(); }) return launches_text(replicas_);
        return {};
    }
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
    void note(const Step& step, const char* name) {
        if (trace_) trace_(step.device, name);
    }

    // The stages, each on every device's thread. False: every device leaves the step.

    bool slot(Step& step);
    bool constants(Step& step);
    bool passes(Step& step) { return passes_.queue(step, batches_); }
    bool agree(Step& step);
    bool update(Step& step);
    bool after(Step& step) {
        agreement_.after(step);
        return true;
    }
    bool check(Step& step);
    bool land(Step& step);

    struct Stage {
        bool (StepEngine::*run)(Step&);
        /// Whether the stage also runs on a device that has failed, because the other devices, or other processes, wait
        /// for it there.
        bool after_error;
    };
    /// A step from its beginning to its end; after each stage what it reads and writes.
    static constexpr Stage stages[8] = {
        {&StepEngine::slot, false},       // the status of the step that had the slot -> the host
        {&StepEngine::constants, false},  // the optimiser's numbers of the step -> the queue
        {&StepEngine::passes, true},      // batches, parameters -> rows, reports, numbers of samples
        {&StepEngine::agree, true},       // rows, numbers of samples -> gradient, divisor
        {&StepEngine::update, false},     // gradient, whether all is finite -> parameters, state, loss scale
        {&StepEngine::after, true},       // parameters -> parameters
        {&StepEngine::check, false},      // parameters -> hash, whether they are finite
        {&StepEngine::land, false}};      // status -> its copy for the host

    void queue_on(int device);

    const StepFunctions<D>& functions_;
    Replicas<D, T>& replicas_;
    StepAgreement<D, T>& agreement_;
    SampleCounts counts_;
    Passes passes_;
    StepReader<D, T> reader_;
    StepUpdate<D, T> update_;
    StepTrace trace_{};
    /// The batches of the step that is being queued.
    BatchSource batches_{};
    Probe probe_{};
    std::exception_ptr error_of_probe_;
};

template <class D, class T>
void StepEngine<D, T>::queue(BatchSource batches, Probe probe) {
    reader_.reserve_slot();
    const std::int64_t step = reader_.next();
    // Before anything of the step is queued: an error in its update would leave the devices with different parameters.
    // The update of a step before which more steps are skipped than known has a smaller number, which was checked.
    functions_.require_learning_rate_at(step - loss_scale().skipped_steps);
    agreement_.peers().begin_step(step);
    if constexpr (!D::host_memory) {
        // The update of an optimiser that is queued anew in each step needs its number now.
        if (replicas_.settings().may_skip() && !functions_.repeats_update) synchronize();
    }
    counts_.clear(step);
    update_.begin_step(loss_scale().skipped_steps, step - reader_.oldest());
    agreement_.begin(step, counts_, statistics().values());
    error_of_probe_ = nullptr;
    batches_ = batches;
    probe_ = probe;
    reader_.naming_steps(step + 1, [&] { replicas_.threads().run([&](int device) { queue_on(device); }); });
    for (State& state : replicas_.devices()) state.updating = false;
    reader_.add();
    if (error_of_probe_) std::rethrow_exception(std::exchange(error_of_probe_, nullptr));
}

template <class D, class T>
void StepEngine<D, T>::queue_on(int device) {
    State& state = replicas_.at(device);
    [[maybe_unused]] const auto team = state.context().team();
    state.error = nullptr;
    Step step{device, reader_.next(), replicas_, counts_, state};
    for (const Stage& stage : stages) {
        if (state.error && !stage.after_error) continue;
        bool goes_on = true;
        state.attempt_always([&] { goes_on = (this->*stage.run)(step); });
        if (!goes_on) break;
    }
    if (state.error) std::rethrow_exception(state.error);
}

template <class D, class T>
bool StepEngine<D, T>::slot(Step& step) {
    step.state.attempt([&] { reader_.wait_for(step.device, step.step - (D::max_steps_in_flight - 1)); });
    note(step, "slot");
    return true;
}

template <class D, class T>
bool StepEngine<D, T>::constants(Step& step) {
    update_.set_constants(step.device, step.step);
    agreement_.peers().queue_flags(step.device);
    return true;
}

template <class D, class T>
bool StepEngine<D, T>::agree(Step& step) {
    note(step, "agree");
    if (!agreement_.agree(step)) return false;
    step.state.updating = true;  // from here on an error leaves the devices with different parameters
    return true;
}

template <class D, class T>
bool StepEngine<D, T>::update(Step& step) {
    note(step, "reduce");
    if (probe_) {
        update_.queue_around(step.device, step.step, [&] {
            if (step.device == 0) {
                note(step, "probe");
                probe_(*this);
            }
            note(step, "update");
        });
    } else {
        note(step, "update");
        update_.queue(step.device, step.step);
    }
    return true;
}

template <class D, class T>
bool StepEngine<D, T>::check(Step& step) {
    if (!reader_.checks_after(step.step)) return true;
    note(step, "hash");
    step.state.queue->queue([this, device = step.device] { queue_check(replicas_, device); });
    return true;
}

template <class D, class T>
bool StepEngine<D, T>::land(Step& step) {
    note(step, "land");
    step.state.queue->land(step.step);
    return true;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
