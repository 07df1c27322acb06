// SPDX-License-Identifier: Apache-2.0
//
// Definitions of cupola/train/impl/fit_loop.hpp.
#pragma once

#include <cstddef>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/train/impl/fit_loop.hpp>
#include <cupola/train/impl/fit_recorder.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

class FitLoop {
public:
    FitLoop(const FitTask& task, const TrainingCalls& training, std::span<const CallbackHooks> callbacks,
            std::span<const MetricValue> metrics)
        : task_(task),
          training_(training),
          callbacks_(callbacks),
          recorder_(plan_of(task, metrics), task.epochs, task.resume ? 0 : step(), task.source) {
        run_.warning = task.warning;
    }

    [[nodiscard]] History run() {
        if (task_.resume) policy().in_all({begins, step()}, [&] { best_ = task_.resume(recorder_); });
        policy().require_same(-1, [&] { return position(); });
        policy().begin_steps(run_.first_step, training_.max_steps_in_flight);
        for (const CallbackHooks& each : callbacks_) {
            if (each.on_begin != nullptr)
                policy().in_all({begins, step()}, [&] { each.on_begin(each.callback, run_); });
        }
        std::exception_ptr error;
        try {
            make_steps();
        } catch (...) {
            error = thrown_ != nullptr ? thrown_ : std::current_exception();
            policy().leave({ends, step()}, error);
            end_steps();
        }
        end_all(error);
        const std::int64_t made = step();
        if (best_ != nullptr && !recorder_.is_postponed()) task_.restore_best->restore(training_.training, best_.get());
        return recorder_.finish(made);
    }

private:
    using Point = RunPolicy::Point;

    [[nodiscard]] static FitPlan plan_of(const FitTask& task, std::span<const MetricValue> metrics) {
        FitPlan plan = task.plan;
        plan.validates = static_cast<bool>(*task.validation);
        plan.averages = task.weights == Weights::averages;
        plan.restores = static_cast<bool>(*task.restore_best);
        plan.metrics = metrics;
        return plan;
    }
    [[nodiscard]] std::int64_t step() const { return training_.step(training_.training); }
    [[nodiscard]] RunPolicy& policy() const { return *training_.policy; }

    /// The names of exchanges, for errors about a process that does not respond.
    static constexpr std::string_view begins = "the beginning of the run", ends = "the end of the run",
                                      records = "the record";

    /// The position at which a resumed run continues: the same step with the same records on all processes.
    [[nodiscard]] RunSettings position() const {
        return {{"first step", text(step())},
                {"last step", text(run_.last_step - 1)},
                {"number of records", text(recorder_.history().records.size())}};
    }
    /// The last record, because decisions that depend on it, such as the end of the run, must be the same on all
    /// processes.
    [[nodiscard]] RunSettings last_record() const {
        const HistoryRecord& last = recorder_.last();
        const std::string after = text(" after ", last.step, last.step == 1 ? " step" : " steps");
        RunSettings settings{{"loss" + after, exact_text(last.loss)}};
        if (last.validation_loss) settings.emplace_back("validation_loss" + after, exact_text(*last.validation_loss));
        for (const MetricValue& each : last.metrics) settings.emplace_back(each.name + after, exact_text(each.value));
        return settings;
    }

    void make_steps() {
        reported_ = step();
        // Callbacks have seen the beginning of the run; a resumed run may already be complete.
        agree(Point::begin);
        // A resumed run first makes the record that was due when the run was stopped.
        if (recorder_.has_steps() && recorder_.is_due(step())) record();
        while (step() < run_.last_step && !policy().ends(wants_end())) {
            const std::int64_t at = step();
            policy().before_step(wants_end(), [&] { return waits_after(at + training_.max_steps_in_flight); });
            queue_step();
            const bool due = recorder_.is_due(step());
            const bool waits = due || policy().waits_after(at, [&] { return waits_after(at); });
            report_all(waits ? 0 : training_.max_steps_in_flight - 1);
            agree(waits ? Point::step_read : Point::step);
            if (due && thrown_ == nullptr && !recorder_.is_postponed()) record();
        }
        report_all(0);
        agree(Point::end);
        if (thrown_ == nullptr && recorder_.has_steps() && !recorder_.is_postponed()) record();
        if (thrown_ != nullptr) std::rethrow_exception(thrown_);
    }

    [[nodiscard]] bool wants_end() const { return run_.stop || thrown_ != nullptr; }
    /// The run ends after the same step on all processes, and with the same error.
    void agree(Point point) {
        const RunEnd all = policy().agree(point, step() - 1, {run_.stop, run_.interrupted}, thrown_);
        run_.stop = all.stop;
        run_.interrupted = all.interrupted;
    }
    /// Whether a callback of this process needs the report of this step before another step is queued: that of an
    /// inspected step arrives before another one is inspected.
    [[nodiscard]] bool waits_after(std::int64_t at) {
        return any(&CallbackHooks::should_inspect, at) || any(&CallbackHooks::synchronize_after, at);
    }

    void queue_step() {
        const auto next = [&] { return step(); };
        const bool probed = any(&CallbackHooks::should_inspect, step());
        const std::exception_ptr error = policy().queue(next, [&] {
            if (probed) {
                training_.queue_inspected();
            } else {
                training_.queue(training_.training, training_.batches);
            }
        });
        if (thrown_ == nullptr) thrown_ = error;
    }

    /// Whether any callback's hook is true. An exception ends the run after the step on all processes, as in on_step.
    [[nodiscard]] bool any(bool (*CallbackHooks::*hook)(void*, std::int64_t), std::int64_t at_step) {
        for (const CallbackHooks& each : callbacks_) {
            try {
                if (each.*hook != nullptr && (each.*hook)(each.callback, at_step)) return true;
            } catch (...) {
                keep_exception();
            }
        }
        return false;
    }

    void report_all(std::int64_t max_in_flight) {
        const auto next = [&] { return step(); };
        while (true) {
            const StepReport* report = nullptr;
            policy().read(next, [&] { report = training_.poll_report(training_.training, max_in_flight); });
            if (report == nullptr) return;
            reported_ = report->step + 1;
            recorder_.add(*report);
            policy().report(report->step, next, [&] {
                for (const CallbackHooks& each : callbacks_) {
                    if (each.on_step == nullptr) continue;
                    try {
                        each.on_step(each.callback, *report, run_);
                    } catch (...) {
                        keep_exception();
                    }
                }
                return thrown_;
            });
        }
    }

    /// After an error: the caller may destroy the batches then. Errors of steps in flight come after the first one.
    void end_steps() noexcept {
        try {
            if (training_.synchronize != nullptr && reported_ < step()) training_.synchronize(training_.training);
        } catch (...) {
        }
    }

    [[nodiscard]] Evaluation validate() {
        const ValidationCalls& validation = *task_.validation;
        Evaluation result;
        const auto evaluate = [&] {
            result = validation.evaluate(training_.training, validation.batches, task_.weights, task_.metrics);
        };
        const auto for_each_value = [&](FunctionRef<void(double&)> use) {
            use(result.loss);
            for (OutputEvaluation& each : result.losses) use(each.loss);
            for (MetricValue& each : result.metrics) use(each.value);
        };
        policy().take_of_first({records, step()}, evaluate, for_each_value);
        return result;
    }

    void record() {
        const auto evaluate = [&] { return validate(); };
        policy().in_all({records, step()}, [&] {
            const bool is_best =
                recorder_.record(*task_.validation ? FitRecorder::Validate(evaluate) : FitRecorder::Validate());
            if (is_best && *task_.restore_best) best_ = task_.restore_best->copy(training_.training);
        });
        policy().require_same(step(), [&] { return last_record(); });
        for (const CallbackHooks& each : callbacks_) {
            if (each.on_record == nullptr) continue;
            try {
                each.on_record(each.callback, recorder_.last(), run_);
            } catch (...) {
                keep_exception();
            }
        }
        agree(Point::record);
    }

    void keep_exception() {
        if (thrown_ == nullptr) thrown_ = std::current_exception();
    }
    void end(const CallbackHooks& callback) {
        if (callback.on_end == nullptr) return;
        policy().in_all({ends, step()}, [&] { callback.on_end(callback.callback, run_); });
    }
    /// Calls on_end of every callback, also after an error: one may write the last checkpoint. Throws the first error.
    void end_all(std::exception_ptr error) {
        for (const CallbackHooks& each : callbacks_) {
            if (error) policy().restart();
            try {
                end(each);
            } catch (...) {
                if (!error) error = std::current_exception();
            }
        }
        if (error) std::rethrow_exception(error);
    }

    const FitTask& task_;
    const TrainingCalls& training_;
    std::span<const CallbackHooks> callbacks_;
    FitRecorder recorder_;
    Run& run_ = recorder_.run();
    /// The state of the training at the best record.
    std::shared_ptr<const void> best_;
    /// The first exception of a hook of a callback.
    std::exception_ptr thrown_;
    /// The step after the last one whose report was read.
    std::int64_t reported_ = 0;
};

/// The options of the run that must be the same on all processes.
[[gnu::cold]] CUPOLA_DECL RunSettings settings_of(const FitTask& task) {
    const FitPlan& plan = task.plan;
    const auto number = [](const std::optional<std::int64_t>& value) { return value ? text(*value) : "none"; };
    const auto given = [](bool is) { return std::string(is ? "given" : "none"); };
    return {{".steps", number(plan.steps)},
            {".epochs", number(plan.epochs)},
            {".every", text(plan.every)},
            {".patience", text(plan.patience)},
            {".min_delta", exact_text(plan.min_delta)},
            {".quantity", std::string(plan.quantity)},
            {".validation", given(static_cast<bool>(*task.validation))},
            {".weights", task.weights == Weights::averages ? "averages" : "trained"},
            {".restore_best", given(static_cast<bool>(*task.restore_best))},
            {"number of samples per epoch", text(task.epochs.samples)},
            {"number of samples per step", text(task.epochs.per_step)},
            {"content of the batches", task.fingerprint ? task.fingerprint() : std::string()}};
}

CUPOLA_DECL History run_fit(const FitTask& task, const TrainingCalls& training,
                            std::span<const CallbackHooks> callbacks) {
    std::optional<FitLoop> loop;
    training.policy->restart();
    training.policy->require_same(-1, [&] { return settings_of(task); });
    training.policy->in_all({"the beginning of the run"}, [&] {
        const ValidationCalls& validation = *task.validation;
        if (validation.require_fitting != nullptr) {
            require(validation.require_fitting(training.training, validation.batches, task.weights) > 0,
                    ".validation has no batches, and so no loss");
        }
        std::vector<MetricValue> metrics;
        if (task.metrics != nullptr && !task.columns.empty()) {
            // The values of no batch, for their names, and whether larger or smaller ones are better.
            task.metrics->begin(task.layers, task.columns);
            metrics = task.metrics->values();
        }
        loop.emplace(task, training, callbacks, metrics);
    });
    return loop->run();
}

}}}  // namespace cupola::CUPOLA_ABI::impl
