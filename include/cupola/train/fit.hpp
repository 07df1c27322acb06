// SPDX-License-Identifier: Apache-2.0
//
// fit(training, batches, {.steps = 1000}, callbacks...): the training loop. It returns a History (train/history.hpp);
// train/fit_options.hpp has its options: epochs, validation, early stopping, the best state.
//
// A callback is an object with any of these hooks; an object without a hook does not compile:
//
//   void on_begin(Run&)                        before the first step
//   void on_step(const StepReport&, Run&)      after each step; sets run.stop to end the run
//   void on_record(const HistoryRecord&, Run&) after each record of the history, which contains the validation
//   void on_end(Run&)                          after the last step, whatever throws
//
// It may also inspect a step, between the averaging and the update:
//
//   bool should_inspect(std::int64_t step)     whether it inspects this step
//   void inspect(const Inspection<Device>&)    called on the first device's thread; see parallel/inspection.hpp
//
// On devices that queue steps (`Cuda`), a report arrives up to two steps later, except that of an inspected step, and
// the training that on_step sees is in the state of the newest step. A callback that needs the state of the training
// exactly after a step has:
//
//   bool synchronize_after(std::int64_t step)  whether the report of this step must arrive before the next is queued
//
// With several processes and GPUs, should_inspect and synchronize_after are also called for steps up to
// max_steps_in_flight ahead, so that all processes wait for the report: their results must depend on the step only. At
// other steps a callback must not wait for queued steps on one process only, as evaluate() does.
//
// Callbacks are called in their order, on the thread that called `fit`. If one throws in on_step, the run ends, but
// every callback sees every step that was made, so their results and a checkpoint written at the end belong to the same
// step. Lvalues are not copied: the results of a callback are available afterwards.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include <cupola/core/compile_time_message.hpp>
#include <cupola/core/error.hpp>
#include <cupola/core/type_name.hpp>
#include <cupola/data/batches.hpp>
#include <cupola/loss/data_losses.hpp>
#include <cupola/tensor/require_batch.hpp>
#include <cupola/train/fit_options.hpp>
#include <cupola/train/history.hpp>
#include <cupola/train/impl/fit_loop.hpp>
#include <cupola/train/impl/fit_plan.hpp>
#include <cupola/train/impl/stated_classes.hpp>
#include <cupola/train/run.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

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

/// The error message for a type `C` that is not a callback; empty if it is one. A hook with other parameters is an
/// error, since it would never be called.
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
        message << short_type_name<C>()
                << " is not a callback: it has none of `on_begin(Run&)`, `on_step(const StepReport&, Run&)` and "
                   "`on_end(Run&)`";
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
                << " has no memory for its batches: write Prefetch batches(TrainingBatches(...)), or Prefetch around "
                   "another source";
        } else {
            message
                << short_type_name<Batches>()
                << " is not a source of batches: fit calls it with (step, replica, context) and needs a BatchView, as "
                   "from Prefetch or InMemoryBatches";
        }
    }
    return message;
}

namespace impl {

/// The losses of the data; empty for a training that does not describe them.
template <class Training>
[[nodiscard]] std::span<const LossEntry> losses_of() {
    if constexpr (requires { Training::LossType::losses; }) {
        return Training::LossType::losses;
    } else {
        return {};
    }
}

/// The epochs of `batches` in this training, with 0 samples if the batches have no epoch.
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
        epochs.per_step *= training.options.replicas * training.options.gradient_accumulation_steps;
    }
    return epochs;
}

/// The hooks of a callback, which must outlive them.
template <class C>
[[nodiscard]] CallbackHooks hooks_of(C& callback) {
    CallbackHooks hooks{.callback = const_cast<void*>(static_cast<const void*>(std::addressof(callback)))};
    if constexpr (HasOnBegin<C>) hooks.on_begin = [](void* of, Run& run) { static_cast<C*>(of)->on_begin(run); };
    if constexpr (HasOnStep<C>)
        hooks.on_step = [](void* of, const StepReport& report, Run& run) { static_cast<C*>(of)->on_step(report, run); };
    if constexpr (HasOnRecord<C>)
        hooks.on_record = [](void* of, const HistoryRecord& record, Run& run) {
            static_cast<C*>(of)->on_record(record, run);
        };
    if constexpr (HasOnEnd<C>) hooks.on_end = [](void* of, Run& run) { static_cast<C*>(of)->on_end(run); };
    if constexpr (HasShouldInspect<C>)
        hooks.should_inspect = [](void* of, std::int64_t step) -> bool {
            return static_cast<C*>(of)->should_inspect(step);
        };
    if constexpr (HasSynchronizeAfter<C>)
        hooks.synchronize_after = [](void* of, std::int64_t step) -> bool {
            return static_cast<C*>(of)->synchronize_after(step);
        };
    return hooks;
}

/// The fingerprint by which processes compare their data. Defined with the policies that span processes, in
/// processes/run/batches_fingerprint.hpp.
template <class Batches>
[[nodiscard]] std::string fingerprint_of_batches(const Batches& batches);

/// fit() for a run that `resume` continues.
template <class Training, class Batches, class... Callbacks>
[[nodiscard, gnu::cold]] History fit_from(ResumeRun resume, Training& training, Batches&& batches,
                                          const FitOptions<Training>& options, Callbacks&&... callbacks) {
    static_assert(static_assert_message<batches_diagnostic<Training, std::remove_reference_t<Batches>>()>());
    static_assert((static_assert_message<callback_diagnostic<std::remove_reference_t<Callbacks>>()>() && ...));
    if constexpr (requires {
                      training.required_columns();
                      training.options.replicas;
                  })
        require_batches(batches, training.required_columns(), training.options.replicas);
    std::string warning = check_classes(training, batches);
    FitTask task{.plan = {.steps = options.steps,
                          .epochs = options.epochs,
                          .every = options.every,
                          .patience = options.patience,
                          .min_delta = options.min_delta,
                          .quantity = options.quantity,
                          .losses = losses_of<Training>()},
                 .epochs = epochs_of(training, batches),
                 .source = short_type_name<std::remove_cvref_t<Batches>>(),
                 .validation = &options.validation.calls(),
                 .restore_best = &options.restore_best.calls(),
                 .weights = options.weights,
                 .metrics = options.metrics.feed(),
                 .resume = resume,
                 .warning = std::move(warning)};
    if constexpr (requires { training.required_columns(); }) {
        task.layers = Training::NetworkType::layers;
        task.columns = training.required_columns();
    }
    using Source = std::remove_reference_t<Batches>;
    TrainingCalls calls{.training = &training,
                        .batches = const_cast<void*>(static_cast<const void*>(std::addressof(batches))),
                        .step = [](void* of) -> std::int64_t { return static_cast<Training*>(of)->step(); },
                        .queue =
                            []([[maybe_unused]] void* of, [[maybe_unused]] void* from) {
                                if constexpr (requires(Training& to, Source& source) { to.queue(source); })
                                    static_cast<Training*>(of)->queue(*static_cast<Source*>(from));
                            },
                        .poll_report = [](void* of, std::int64_t max) -> const StepReport* {
                            return static_cast<Training*>(of)->poll_report(max);
                        },
                        .max_steps_in_flight = Training::max_steps_in_flight};
    if constexpr (requires { training.steps_in_flight(); }) calls.max_steps_in_flight = training.steps_in_flight();
    if constexpr (requires { requires Training::keeps_batches; }) {
        calls.synchronize = [](void* of) { static_cast<void>(static_cast<Training*>(of)->parameters()); };
    }
    if constexpr (requires { training.run_policy(); }) calls.policy = &training.run_policy();
    // Compiled only for trainings that may have several processes.
    constexpr bool compares = requires { requires Training::has_agreement; };
    const auto fingerprint = [&] {
        if constexpr (compares)
            return fingerprint_of_batches(batches);
        else
            return std::string();
    };
    if constexpr (compares) task.fingerprint = fingerprint;
    const std::array<CallbackHooks, sizeof...(Callbacks)> hooks{hooks_of(callbacks)...};
    if constexpr ((HasShouldInspect<std::remove_reference_t<Callbacks>> || ...)) {
        const auto inspect = [&](const auto& inspection) {
            const auto show = [&](auto& callback) {
                if constexpr (requires { callback.inspect(inspection); }) {
                    if (callback.should_inspect(inspection.step())) callback.inspect(inspection);
                }
            };
            (show(callbacks), ...);
        };
        const auto queue_inspected = [&] { training.queue(batches, inspect); };
        calls.queue_inspected = queue_inspected;
        return run_fit(task, calls, hooks);
    } else {
        return run_fit(task, calls, hooks);
    }
}

}  // namespace impl

/// Trains `options.steps` steps or `options.epochs` epochs, or until the patience is exhausted or a callback stops the
/// run. Rethrows the exception of a step or of a validation, and the first of an `on_step`, `on_record` or `on_end`,
/// after every `on_end`. Throws InvalidArgument before `on_begin` for options that are out of range or contradict
/// each other, and for training or validation batches that do not fit the training: other columns, or more classes
/// than the loss distinguishes.
template <class Training, class Batches, class... Callbacks>
History fit(Training& training, Batches&& batches,  // misspelt? FitOptions<Training>{...} names it
            const FitOptions<Training>& options,    // misspelt? FitOptions<Training>{...} names it
            Callbacks&&... callbacks) {
    return impl::fit_from({}, training, batches, options, callbacks...);
}

}}  // namespace cupola::CUPOLA_ABI
