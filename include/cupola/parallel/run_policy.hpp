// SPDX-License-Identifier: Apache-2.0
//
// RunPolicy: the interface through which a run of fit(), its callbacks and a TrainingRun agree with the other processes
// of a training, at the points of the run where processes could differ. The class itself is the policy of a training in
// one process: it calls its arguments and exchanges nothing. processes/run/policy.hpp has the policy for several
// processes, which agree at these points, so that all continue, or all end after the same step with the same error.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <cupola/core/function_ref.hpp>
#include <cupola/core/process_number.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// Settings that processes compare: names and values.
using RunSettings = std::vector<std::pair<std::string, std::string>>;

/// Whether a run stops after the step, and whether it was interrupted, for example by a signal.
struct RunEnd {
    bool stop = false, interrupted = false;
};

/// All processes of a training call the members in the same order, until one of them throws. If any process has an
/// error, all of them throw: a process its own error, the others that of the first process with one.
class RunPolicy {
public:
    RunPolicy() = default;
    RunPolicy(const RunPolicy&) = delete;
    RunPolicy& operator=(const RunPolicy&) = delete;
    virtual ~RunPolicy() = default;

    [[nodiscard]] virtual ProcessNumber process() const { return {}; }
    /// The number that a process had at the start of the job, for messages.
    [[nodiscard]] virtual int number_at_start(int process) const { return process; }
    /// A message to print when the run begins at `step`, such as the loss of processes; empty for none.
    [[nodiscard]] virtual std::string notice(std::int64_t /*step*/) const { return {}; }

    // Called before, between and after the steps. After one of these throws there are no more exchanges until
    // restart().

    /// Called when a run begins, and before a callback's `on_end` is called after an error.
    virtual void restart() {}
    /// Calls `work`; throws if it throws on any process.
    virtual void in_all(const ExchangeName& /*name*/, FunctionRef<void()> work) { work(); }
    /// Throws InvalidArgument, which names the first difference, unless all processes have the same settings.
    virtual void require_same(std::int64_t /*step*/, FunctionRef<RunSettings()> /*settings*/) {}
    /// Calls `work`. If the devices of the processes may round differently, then calls `values`, which calls its
    /// argument with each value of the result of `work`; each value is replaced by that of process 0.
    virtual void take_of_first(const ExchangeName& /*name*/, FunctionRef<void()> work,
                               FunctionRef<void(FunctionRef<void(double&)>)> /*values*/) {
        work();
    }
    /// Called when this process leaves the run because of `error`. Sends the error to the others, unless they have it.
    virtual void leave(const ExchangeName& /*name*/, const std::exception_ptr& /*error*/) noexcept {}

    // Called for the steps. `step` returns the number of the step that is queued next, which decreases when a step is
    // rolled back.

    /// Called before the steps from `first` on are queued, at most `in_flight` of them before their reports are read.
    virtual void begin_steps(std::int64_t /*first*/, std::int64_t /*in_flight*/) {}
    /// Called before a step is queued: whether this process requests the end of the run, and whether it needs the
    /// report of the step that is `in_flight` steps later before another step is queued.
    virtual void before_step(bool /*ends*/, FunctionRef<bool()> /*waits_later*/) {}
    /// Calls `work`, which queues a step. Returns the error of a step that was queued, if the run must continue until
    /// the processes agree to end; throws any other error.
    [[nodiscard]] virtual std::exception_ptr queue(FunctionRef<std::int64_t()> /*step*/, FunctionRef<void()> work) {
        work();
        return nullptr;
    }
    /// Calls `work`, which reads the report of a step if there is one.
    virtual void read(FunctionRef<std::int64_t()> /*step*/, FunctionRef<void()> work) { work(); }
    /// Calls `callbacks` with the report of step `reported`; it returns the first error of the callbacks of the run.
    virtual void report(std::int64_t /*reported*/, FunctionRef<std::int64_t()> /*step*/,
                        FunctionRef<std::exception_ptr()> callbacks) {
        callbacks();
    }
    /// Whether the report of `step` must be read before another step is queued; `mine`: whether a callback of this
    /// process needs it.
    [[nodiscard]] virtual bool waits_after(std::int64_t /*step*/, FunctionRef<bool()> mine) const { return mine(); }
    /// Whether the run ends before the next step; `mine`: whether this process requests that.
    [[nodiscard]] virtual bool ends(bool mine) const { return mine; }

    /// The points at which agree() is called: before the first step; after each step, with its report not yet read or
    /// read; after the reports of all steps; and after the callbacks of a record.
    enum class Point { begin, step, step_read, end, record };
    /// The processes agree on the end of the run after step `step`. `error` is the first error of this process's
    /// callbacks, or null; it is replaced by that of another process if one has an error.
    virtual RunEnd agree(Point /*point*/, std::int64_t /*step*/, RunEnd mine, std::exception_ptr& /*error*/) {
        return mine;
    }

    // For callbacks, which are called on all processes in every case: exchanges continue after one of these throws.

    /// The maximum of the processes' values.
    virtual int largest(const ExchangeName& /*name*/, int value) { return value; }
    /// Calls `work`; throws if it throws on any process.
    virtual void attempt(const ExchangeName& /*name*/, FunctionRef<void()> work) { work(); }
    /// The first process whose settings differ from those of process 0, by its number at the start, and the name of the
    /// first difference; empty if all are equal.
    [[nodiscard]] virtual std::optional<std::pair<int, std::string>> first_difference(
        const ExchangeName& /*name*/, FunctionRef<RunSettings()> /*settings*/) {
        return {};
    }
};

namespace impl {

/// The policy of a training in one process; it has no state.
[[nodiscard]] inline RunPolicy& run_policy_of_one_process() {
    static RunPolicy policy;
    return policy;
}

}  // namespace impl

}}  // namespace cupola::CUPOLA_ABI
