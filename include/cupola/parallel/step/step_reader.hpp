// SPDX-License-Identifier: Apache-2.0
//
// StepReader: the steps that are queued, until their reports are read: waits for a step, makes its report from the
// numbers that the devices have copied to the host, and updates the running statistics.
//
// A step whose loss or gradient is not finite, or that has a label that is not a class, is found when its report is
// read: from this step on no update changes parameters, the later steps have no effect, and the error names the step.
// Under a dynamic loss scale a step whose gradient is not finite is skipped instead, on every device alike and without
// a wait for the host, until the scale would be less than its minimum (ops/training_step.hpp). In the same way a step
// is skipped in which no sample counts, where the options allow it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <cupola/core/error.hpp>
#include <cupola/core/loss_scale.hpp>
#include <cupola/parallel/agreement/step_agreement.hpp>
#include <cupola/parallel/replicas/peers.hpp>
#include <cupola/parallel/replicas/replicas.hpp>
#include <cupola/parallel/replicas/sample_counts.hpp>
#include <cupola/parallel/step/batches.hpp>
#include <cupola/parallel/step/check.hpp>
#include <cupola/parallel/step/failure.hpp>
#include <cupola/parallel/step/shared_statistics.hpp>
#include <cupola/parallel/step/step_functions.hpp>
#include <cupola/parallel/step/step_reports.hpp>
#include <cupola/parallel/step_report.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Members are called by the thread that uses the training, except
/// wait_for().
template <class D, class T>
class StepReader {
    using State = DeviceState<D, T>;

public:
    /// All must outlive the object; `policy` is the name of the one by which the replicas agree.
    [[gnu::cold]] StepReader(const StepFunctions<D>& functions, Replicas<D, T>& replicas,
                             StepAgreement<D, T>& agreement, SampleCounts& counts, TakenBatches<D, T>& batches,
                             std::span<const RegularizedParameter> regularized, std::string_view policy)
        : functions_(functions),
          replicas_(replicas),
          agreement_(agreement),
          counts_(counts),
          reports_(replicas, agreement.peers(), counts, functions, regularized),
          statistics_(replicas, agreement.peers(), counts),
          failure_(functions, replicas, agreement.peers(), counts, batches, reports_, policy) {}

    /// The number of the step that is queued next, and of the oldest that has not been waited for.
    [[nodiscard]] std::int64_t next() const { return next_; }
    [[nodiscard]] std::int64_t oldest() const { return checked_; }
    /// Step next() has been queued.
    void add() { ++next_; }
    /// Before step next() is queued: its slot is that of the oldest report, which is dropped if it was not read.
    void reserve_slot() {
        if (next_ - reported_ == D::max_steps_in_flight) (void)poll(0);
    }

    /// See StepEngine.
    const StepReport* poll(std::int64_t max_in_flight);
    const StepReport& last_report();
    void synchronize() {
        while (checked_ < next_) check_step();
    }
    [[gnu::cold]] void drain();
    [[gnu::cold]] void restart(std::int64_t step, std::span<const float> running, const LossScaleState& loss_scale);

    /// Waits until a queued step is complete on a device; on its thread.
    void wait_for(int device, std::int64_t step) {
        if (step < checked_ || step >= next_) return;  // complete, or not queued
        agreement_.wait(device, step, true);
    }

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
    [[nodiscard]] bool healthy() const;
    /// `completion` is the factor that makes the row the gradient of all batches of the replica.
    [[nodiscard]] double factor_of_row(int replica, double completion);

    [[nodiscard]] SharedStatistics<D, T>& statistics() { return statistics_; }
    /// The state of the loss scale after the last step whose report was made.
    [[nodiscard]] const LossScaleState& loss_scale() const { return loss_scale_; }
    /// Whether the parameters are compared after a step.
    [[nodiscard]] bool checks_after(std::int64_t step) const {
        return functions_.check_every > 0 && (step + 1) % functions_.check_every == 0;
    }

private:
    [[noreturn, gnu::cold]] void lose(std::int64_t end, const DeviceLost& error);

    /// Waits for the next step, and makes its report.
    void check_step();
    void read_step(std::int64_t step);

    /// The step and all later ones had no effect. Finds the cause, and leaves the training in the state before the
    /// step.
    [[noreturn, gnu::cold]] void roll_back(std::int64_t step);
    void forget_steps();

    const StepFunctions<D>& functions_;
    Replicas<D, T>& replicas_;
    StepAgreement<D, T>& agreement_;
    SampleCounts& counts_;
    StepReports<D, T> reports_;
    SharedStatistics<D, T> statistics_;
    StepFailure<D, T> failure_;
    /// The numbers of the step that is queued next, of the oldest that has not been waited for, and of the oldest whose
    /// report was not read.
    std::int64_t next_ = 0, checked_ = 0, reported_ = 0;
    bool lost_ = false;
    /// After the last step whose report was made; and the scale of that step.
    LossScaleState loss_scale_{};
    double scale_of_rows_ = 1;
};

template <class D, class T>
const StepReport* StepReader<D, T>::poll(std::int64_t max_in_flight) {
    if (next_ - reported_ <= max_in_flight) return nullptr;
    while (checked_ <= reported_) check_step();
    agreement_.peers().read_flags(reported_);
    return &reports_.of(reported_++);
}

template <class D, class T>
const StepReport& StepReader<D, T>::last_report() {
    const ReadTogetherScope scope(agreement_.peers());
    synchronize();
    reported_ = next_;
    agreement_.peers().read_flags(next_ - 1);
    return reports_.of(next_ - 1);
}

template <class D, class T>
void StepReader<D, T>::restart(std::int64_t step, std::span<const float> running, const LossScaleState& loss_scale) {
    next_ = step;
    loss_scale_ = loss_scale;
    scale_of_rows_ = static_cast<double>(loss_scale.scale);
    statistics_.restart(running);
    forget_steps();
    for (State& state : replicas_.devices()) state.updating = false;
}

template <class D, class T>
void StepReader<D, T>::drain() {
    replicas_.threads().run([&](int device) {
        try {
            for (std::int64_t s = checked_; s < next_; ++s) wait_for(device, s);
            replicas_.at(device).queue->mark();
            agreement_.wait(device, next_, false);
        } catch (const Error& error) {
            agreement_.break_off(device, next_, error.what());
        }
        agreement_.end(device);
    });
}

template <class D, class T>
bool StepReader<D, T>::healthy() const {
    if (lost_) return false;
    for (const State& state : std::as_const(replicas_).devices()) {
        if (state.updating) return false;
    }
    return agreement_.healthy();
}

template <class D, class T>
double StepReader<D, T>::factor_of_row(int replica, double completion) {
    const auto& gradients = replicas_.gradients();
    // The average, and a row that its replica is updated with, are divided by the loss scale before the update.
    const bool divided = (next_ > 0 && agreement_.rows_after(next_ - 1) == RowsAfter::means) ||
                         gradients.row(replica) == gradients.average(replicas_.placement().device_of(replica));
    double factor = completion / (divided ? 1.0 : scale_of_rows_);
    // A row is the gradient of the sum over the replica's samples divided by their number.
    if (!divided && replicas_.settings().weighted && next_ > 0) {
        const ReplicaReport& report = reports_.of(next_ - 1, replica);
        if (report.weight > 0) factor *= static_cast<double>(report.samples) / report.weight;
    }
    return factor;
}

template <class D, class T>
void StepReader<D, T>::check_step() {
    naming_steps(next_, [&] { read_step(checked_); });
    ++checked_;
}

template <class D, class T>
void StepReader<D, T>::lose(std::int64_t end, const DeviceLost& error) {
    // A step that is queued while earlier ones run is not the one that failed if it could not be queued.
    const std::string steps =
        end - checked_ > 1 ? text("one of the steps ", checked_, " to ", end - 1) : text("step ", checked_);
    if (std::exchange(lost_, true)) throw DeviceLost(error);
    throw DeviceLost(text("a device was lost in ", steps, ": ", error.what(),
                          "; this process cannot use it again: start another one, from the last checkpoint"));
}

template <class D, class T>
void StepReader<D, T>::read_step(std::int64_t step) {
    bool there = true;
    for (State& state : replicas_.devices()) there = there && state.queue->finished(step);
    // A collective that failed ends the queued work too; its wait throws the error.
    if (!there || !agreement_.healthy()) replicas_.threads().run([&](int device) { wait_for(device, step); });
    agreement_.peers().read_samples(step, counts_);
    const bool finite = reports_.read(step);
    const LossScaleState before = loss_scale_, after = replicas_.at(0).landed(step).loss_scale;
    const bool skipped = after.skipped_steps != before.skipped_steps;
    if (skipped ? !reports_.healthy(step) || !failure_.valid_input(step) : !finite) roll_back(step);
    reports_.finish(step, functions_.learning_rate_at(step - before.skipped_steps), before, after);
    loss_scale_ = after;
    scale_of_rows_ = static_cast<double>(before.scale);
    if (!skipped) statistics_.update(step, functions_);
    if (checks_after(step)) {
        for (State& state : replicas_.devices()) state.updating = true;  // not healthy, unless they are equal
        check_agreement(replicas_, agreement_.peers(), step, statistics_.values());
        for (State& state : replicas_.devices()) state.updating = false;
    }
}

template <class D, class T>
void StepReader<D, T>::roll_back(std::int64_t step) {
    replicas_.threads().run([&](int device) {
        for (std::int64_t s = step; s < next_; ++s) wait_for(device, s);
    });
    std::exception_ptr error;
    try {
        failure_.find(step, loss_scale_.scale);
    } catch (...) {
        error = std::current_exception();
    }
    next_ = step;
    failure_.clear_rows();
    forget_steps();
    std::rethrow_exception(error);
}

template <class D, class T>
void StepReader<D, T>::forget_steps() {
    reported_ = checked_ = next_;
    agreement_.peers().forget();
    replicas_.threads().run([&](int device) {
        State& state = replicas_.at(device);
        typename D::Queue& queue = *state.queue;
        queue.write(&state.status()->healthy, std::int32_t{1});
        queue.write(&state.status()->failed, std::int32_t{0});
        queue.write(&state.status()->loss_scale, loss_scale_);
        for (int r = 0; r < replicas_.placement().replicas(); ++r)
            queue.write(state.layout.not_finite(queue.status(), r), 0ULL);
    });
}

}}}  // namespace cupola::CUPOLA_ABI::impl
