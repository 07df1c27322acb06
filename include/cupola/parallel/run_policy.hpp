// SPDX-License-Identifier: Apache-2.0
//
// RunPolicy: what a run of fit(), its callbacks and a TrainingRun ask of the processes of a training, at the points of
// the run where these could differ. The class itself is the policy of a training in one process: it calls what it is
// given and exchanges nothing. processes/run/policy.hpp has the one of several processes, which agree at these points,
// so that all go on, or all end after the same step with the same error.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <cupola/core/function_ref.hpp>
#include <cupola/parallel/process_number.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// Settings that processes compare: names and values.
using RunSettings = std::vector<std::pair<std::string, std::string>>;

/// Whether a run stops after the step, and whether it was interrupted, for example by a signal.
struct RunEnd {
    bool stop = false, interrupted = false;
};

/// All processes of a training call the members in the same order, until one of them throws. The errors that they throw
/// are those of all processes: each process throws its own, or that of the first process that has one.
class RunPolicy {
public:
    RunPolicy() = default;
    RunPolicy(const RunPolicy&) = delete;
    RunPolicy& operator=(const RunPolicy&) = delete;
    virtual ~RunPolicy() = default;

    [[nodiscard]] virtual ProcessNumber process() const { return {}; }
    /// The number that a process had at the job's start, for messages.
    [[nodiscard]] virtual int number_at_start(int process) const { return process; }
    /// What is to be printed when the run begins at `step`, such as a loss of processes; empty for nothing.
    [[nodiscard]] virtual std::string notice(std::int64_t /*step*/) const { return {}; }

    // Before, between and after the steps. After an error of these there are no more exchanges until restart().

    /// A run begins, or a callback's `on_end` is called after an error.
    virtual void restart() {}
    /// Calls `work`; throws if it throws on any process.
    virtual void in_all(const ExchangeName& /*name*/, FunctionRef<void()> work) { work(); }
    /// Throws InvalidArgument, which names the first difference, unless all processes have the same settings.
    virtual void require_same(std::int64_t /*step*/, FunctionRef<RunSettings()> /*settings*/) {}
    /// Calls `work`. Where the devices of the processes may round differently, `values` then calls its argument with
    /// each value of its result, which becomes that of process 0.
    virtual void take_of_first(const ExchangeName& /*name*/, FunctionRef<void()> work,
                               FunctionRef<void(FunctionRef<void(double&)>)> /*values*/) {
        work();
    }
    /// This process leaves the run because of `error`. The others learn it, unless they know.
    virtual void leave(const ExchangeName& /*name*/, const std::exception_ptr& /*error*/) noexcept {}

    // The steps. `step` returns the number of the step that is queued next, which decreases if a step is rolled back.

    /// The steps from `first` on are queued, at most `in_flight` before their reports are read.
    virtual void begin_steps(std::int64_t /*first*/, std::int64_t /*in_flight*/) {}
    /// Before a step is queued: whether this process wants to end the run, and whether it has to wait for the report of
    /// the step that is `in_flight` steps later.
    virtual void before_step(bool /*ends*/, FunctionRef<bool()> /*waits_later*/) {}
    /// Calls `work`, which queues a step. Returns an error of a step that was queued, if the run has to go on until the
    /// processes agree to end; throws any other error.
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
    /// Whether the report of `step` has to be read before another step is queued; `mine`: whether a callback of this
    /// process wants it.
    [[nodiscard]] virtual bool waits_after(std::int64_t /*step*/, FunctionRef<bool()> mine) const { return mine(); }
    /// Whether no step follows; `mine`: whether this process wants that.
    [[nodiscard]] virtual bool ends(bool mine) const { return mine; }

    /// Where agree() is called: before the first step; after each step, all of whose reports have been read or not;
    /// after the reports of all steps; and after the callbacks of a record.
    enum class Point { begin, step, step_read, end, record };
    /// The processes agree on the end of the run after the step `step`. `error` is the first error of this process's
    /// callbacks, or null; it becomes that of another process, if one has an error.
    virtual RunEnd agree(Point /*point*/, std::int64_t /*step*/, RunEnd mine, std::exception_ptr& /*error*/) {
        return mine;
    }

    // For callbacks, which are called on all processes whatever becomes of them: exchanges go on after an error of
    // these.

    /// The largest of the processes' values.
    virtual int largest(const ExchangeName& /*name*/, int value) { return value; }
    /// Calls `work`; throws if it throws on any process.
    virtual void attempt(const ExchangeName& /*name*/, FunctionRef<void()> work) { work(); }
    /// The first process whose settings are not those of process 0, by its number at the start, and the name of the
    /// first of these; none if all have the same.
    [[nodiscard]] virtual std::optional<std::pair<int, std::string>> first_difference(
        const ExchangeName& /*name*/, FunctionRef<RunSettings()> /*settings*/) {
        return {};
    }
};

namespace impl {

/// The policy of a training in one process, which has no state.
[[nodiscard]] inline RunPolicy& run_policy_of_one_process() {
    static RunPolicy policy;
    return policy;
}

}  // namespace impl

}}  // namespace cupola::CUPOLA_ABI
