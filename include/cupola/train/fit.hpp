// SPDX-License-Identifier: Apache-2.0
//
// fit(training, batches, {.steps = 1000}, callbacks...): the training loop. It returns a History (train/history.hpp);
// train/fit_options.hpp has its options: epochs, validation, early stopping, the best state.
//
// A callback is any object with any of these hooks; an object without a hook does not compile:
//
//   void on_begin(Run&)                        before the first step
//   void on_step(const StepReport&, Run&)      after each step; sets run.stop to end the run
//   void on_record(const HistoryRecord&, Run&) after each record of the history, which has the validation
//   void on_end(Run&)                          after the last step, also when a step throws
//
// and it may inspect a step, between the averaging and the update:
//
//   bool should_inspect(std::int64_t step)     whether it inspects this step
//   void inspect(const Inspection<Device>&)    on the first device's thread; see parallel/inspection.hpp
//
// Where steps are queued (`Cuda`), a report comes up to two steps later, except that of an inspected step, and the
// training that on_step sees is then in the state of the newest step. A callback that needs the training exactly as it is
// after a step has:
//
//   bool synchronize_after(std::int64_t step)  whether the report of this step has to come before the next is queued
//
// Callbacks are called in their order, on the thread that called `fit`. One that throws in on_step ends the run, but
// every callback sees every step that was made, so their results, and a checkpoint written at the end, are of the same
// step. Lvalues are not copied: the results of a callback are available afterwards.
#pragma once

#include <concepts>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <type_traits>

#include <cupola/core/compile_time_message.hpp>
#include <cupola/core/error.hpp>
#include <cupola/core/type_name.hpp>
#include <cupola/data/batches.hpp>
#include <cupola/loss/several_outputs.hpp>
#include <cupola/tensor/require_batch.hpp>
#include <cupola/train/fit_options.hpp>
#include <cupola/train/history.hpp>
#include <cupola/train/impl/fit_recorder.hpp>
#include <cupola/train/run.hpp>

namespace cupola::inline CUPOLA_ABI {

template <class C>
concept HasOnBegin = requires(C& callback, Run& run) { callback.on_begin(run); };
template <class C>
concept HasOnStep = requires(C& callback, const StepReport& report, Run& run) { callback.on_step(report, run); };
template <class C>
concept HasOnRecord = requires(C& callback, const HistoryRecord& record, Run& run) { callback.on_record(record, run); };
template <class C>
concept HasOnEnd = requires(C& callback, Run& run) { callback.on_end(run); };
template <class C>
concept HasShouldInspect = requires(C& callback, std::int64_t step) {
    { callback.should_inspect(step) } -> std::convertible_to<bool>;
};
template <class C>
concept HasSynchronizeAfter = requires(C& callback, std::int64_t step) {
    { callback.synchronize_after(step) } -> std::convertible_to<bool>;
};
template <class C>
concept Callback = HasOnBegin<C> || HasOnStep<C> || HasOnRecord<C> || HasOnEnd<C>;

/// The error message for a type `C` that is not a callback; empty if it is one. Rejects a hook with other parameters, which
/// would never be called.
template <class C>
[[nodiscard]] consteval CompileTimeMessage callback_diagnostic() {
    CompileTimeMessage message;
    if constexpr (!HasOnBegin<C> && requires { &C::on_begin; }) {
        message << short_type_name<C>() << "::on_begin cannot be called as `on_begin(Run&)`";
    } else if constexpr (!HasOnStep<C> && requires { &C::on_step; }) {
        message << short_type_name<C>() << "::on_step cannot be called as `on_step(const StepReport&, Run&)`";
    } else if constexpr (!HasOnRecord<C> && requires { &C::on_record; }) {
        message << short_type_name<C>() << "::on_record cannot be called as `on_record(const HistoryRecord&, Run&)`";
    } else if constexpr (!HasOnEnd<C> && requires { &C::on_end; }) {
        message << short_type_name<C>() << "::on_end cannot be called as `on_end(Run&)`";
    } else if constexpr (!Callback<C>) {
        message
            << short_type_name<C>()
            << " is not a callback: it has none of `on_begin(Run&)`, `on_step(const StepReport&, Run&)` and `on_end(Run&)`";
    }
    return message;
}

/// The error message for `Batches` that do not fit `Training`; empty if they do.
template <class Training, class Batches>
[[nodiscard]] consteval CompileTimeMessage batches_diagnostic() {
    CompileTimeMessage message;
    if constexpr (!requires(Training& training, Batches& batches) { training.queue(batches); }) {
        if constexpr (BatchSource<Batches>) {
            message
                << short_type_name<Batches>()
                << " has no memory for its batches: write Prefetch batches(TrainingBatches(...)), or Prefetch around another "
                   "source";
        } else {
            message
                << short_type_name<Batches>()
                << " is not a source of batches: fit calls it with (step, replica, context) and needs a BatchView, as from "
                   "Prefetch or InMemoryBatches";
        }
    }
    return message;
}

namespace impl {

/// The losses of the data; nothing of a training that does not say them.
template <class Training>
[[nodiscard]] std::span<const LossEntry> losses_of() {
    if constexpr (requires { Training::LossType::losses; }) {
        return Training::LossType::losses;
    } else {
        return {};
    }
}

/// The epochs of `batches` in this training; without samples where they have none.
template <class Training, class Batches>
[[nodiscard]] Epochs epochs_of(const Training& training, const Batches& batches) {
    Epochs epochs;
    if constexpr (requires {
                      static_cast<std::int64_t>(batches.samples_per_epoch());
                      training.options.gradient_accumulation_steps;
                  }) {
        epochs.samples = static_cast<std::int64_t>(batches.samples_per_epoch());
        epochs.per_step = training.options.batch_size;
        if constexpr (requires { static_cast<std::int64_t>(batches.batch_size()); })
            epochs.per_step = static_cast<std::int64_t>(batches.batch_size());
        epochs.per_step *= training.all_replicas() * training.options.gradient_accumulation_steps;
    }
    return epochs;
}

/// Whether other processes have replicas of the training.
template <class Training>
[[nodiscard]] bool has_several_processes([[maybe_unused]] const Training& training) {
    if constexpr (requires { training.all_replicas() > training.options.replicas; }) {
        return training.all_replicas() > training.options.replicas;
    } else {
        return false;
    }
}

}  // namespace impl

/// Trains `options.steps` steps or `options.epochs` epochs, or until the patience is over or a callback stops the run.
/// Rethrows the exception of a step or of a validation, and the first exception of an `on_step` or `on_record`, after
/// `on_end`. Throws InvalidArgument, before `on_begin`, for options that are out of range or do not fit together, and for
/// batches, of the training or the validation, that do not fit the training.
template <class Training, class Batches, class... Callbacks>
History fit(Training& training, Batches&& batches, const FitOptions<Training>& options, Callbacks&&... callbacks) {
    static_assert(static_assert_message<batches_diagnostic<Training, std::remove_reference_t<Batches>>()>());
    static_assert((static_assert_message<callback_diagnostic<std::remove_reference_t<Callbacks>>()>() && ...));
    if constexpr (requires {
                      training.required_columns();
                      training.options.replicas;
                  })
        require_batches(batches, training.required_columns(), training.options.replicas);
    options.validation.require_fitting(training, options.weights);
    impl::FitRecorder recorder({.steps = options.steps,
                                .epochs = options.epochs,
                                .every = options.every,
                                .patience = options.patience,
                                .min_delta = options.min_delta,
                                .quantity = options.quantity,
                                .validates = static_cast<bool>(options.validation),
                                .restores = static_cast<bool>(options.restore_best),
                                .several_processes = impl::has_several_processes(training),
                                .metrics = options.metrics.begun_values(training),
                                .losses = impl::losses_of<Training>()},
                               impl::epochs_of(training, batches), training.step(),
                               short_type_name<std::remove_cvref_t<Batches>>());
    Run& run = recorder.run();
    /// The state of the training at the best record.
    std::shared_ptr<const void> best;
    [[maybe_unused]] const auto begin = [&](auto& callback) {
        if constexpr (requires { callback.on_begin(run); }) callback.on_begin(run);
    };
    /// The first exception of an on_step or on_record.
    std::exception_ptr thrown;
    [[maybe_unused]] const auto after = [&](auto& callback, const StepReport& report) {
        if constexpr (requires { callback.on_step(report, run); }) {
            try {
                callback.on_step(report, run);
            } catch (...) {
                if (thrown == nullptr) thrown = std::current_exception();
            }
        }
    };
    const auto record = [&] {
        using Validate = impl::FitRecorder::Validate;
        const auto validate = [&] { return options.validation(training, options.weights, options.metrics); };
        const bool is_best = recorder.record(options.validation ? Validate(validate) : Validate());
        if (is_best && options.restore_best) best = options.restore_best.copy(training);
        [[maybe_unused]] const auto tell = [&](auto& callback) {
            if constexpr (requires { callback.on_record(recorder.last(), run); }) {
                try {
                    callback.on_record(recorder.last(), run);
                } catch (...) {
                    if (thrown == nullptr) thrown = std::current_exception();
                }
            }
        };
        (tell(callbacks), ...);
    };
    [[maybe_unused]] const auto end = [&](auto& callback) {
        if constexpr (requires { callback.on_end(run); }) callback.on_end(run);
    };
    (begin(callbacks), ...);
    [[maybe_unused]] const auto inspect = [&](const auto& inspection) {
        [[maybe_unused]] const auto show = [&](auto& callback) {
            if constexpr (requires { callback.inspect(inspection); }) {
                if (callback.should_inspect(inspection.step())) callback.inspect(inspection);
            }
        };
        (show(callbacks), ...);
    };
    [[maybe_unused]] const auto should_inspect = []<class C>(C& callback, std::int64_t step) {
        if constexpr (HasShouldInspect<C>)
            return static_cast<bool>(callback.should_inspect(step));
        else
            return false;
    };
    [[maybe_unused]] const auto synchronize_after = []<class C>(C& callback, std::int64_t step) {
        if constexpr (HasSynchronizeAfter<C>)
            return static_cast<bool>(callback.synchronize_after(step));
        else
            return false;
    };
    [[maybe_unused]] const auto report_all = [&](std::int64_t max_in_flight) {
        while (const StepReport* const report = training.poll_report(max_in_flight)) {
            recorder.add(*report);
            (after(callbacks, *report), ...);
        }
    };
    try {
        while (training.step() < run.last_step && !run.stop && thrown == nullptr) {
            const bool probed = (should_inspect(callbacks, training.step()) || ...);
            if constexpr ((HasShouldInspect<std::remove_reference_t<Callbacks>> || ...)) {
                if (probed) {
                    training.queue(batches, inspect);
                } else {
                    training.queue(batches);
                }
            } else if constexpr (requires { training.queue(batches); }) {
                training.queue(batches);
            }
            // The report of an inspected step comes before another step is inspected.
            const bool due = recorder.is_due(training.step());
            const bool stands = probed || due || (synchronize_after(callbacks, training.step() - 1) || ...);
            report_all(stands ? 0 : Training::max_steps_in_flight - 1);
            if (due && thrown == nullptr) record();
        }
        report_all(0);
        if (thrown == nullptr && recorder.has_steps()) record();
        if (thrown != nullptr) std::rethrow_exception(thrown);
    } catch (...) {
        // The first error is thrown; a later error of a callback's on_end (a full disk) is not.
        [[maybe_unused]] const auto end_quietly = [&](auto& callback) {
            try {
                end(callback);
            } catch (...) {
            }
        };
        (end_quietly(callbacks), ...);
        if (thrown != nullptr) std::rethrow_exception(thrown);
        throw;
    }
    (end(callbacks), ...);
    const std::int64_t made = training.step();
    if (best != nullptr) options.restore_best.restore(training, best.get());
    return recorder.finish(made);
}

}  // namespace cupola::inline CUPOLA_ABI
