// SPDX-License-Identifier: Apache-2.0
//
// The loop of fit(), with the types of the training, the batches and the callbacks erased, so that src.hpp compiles it
// once.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <cupola/core/function_ref.hpp>
#include <cupola/net/table.hpp>
#include <cupola/parallel/evaluation_feed.hpp>
#include <cupola/parallel/run_policy.hpp>
#include <cupola/parallel/step_report.hpp>
#include <cupola/tensor/require_batch.hpp>
#include <cupola/train/fit_options.hpp>
#include <cupola/train/history.hpp>
#include <cupola/train/impl/fit_plan.hpp>
#include <cupola/train/run.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The hooks of a callback, which take its address; null for hooks that it does not have.
struct CallbackHooks {
    void* callback = nullptr;
    void (*on_begin)(void*, Run&) = nullptr;
    void (*on_step)(void*, const StepReport&, Run&) = nullptr;
    void (*on_record)(void*, const HistoryRecord&, Run&) = nullptr;
    void (*on_end)(void*, Run&) = nullptr;
    bool (*should_inspect)(void*, std::int64_t step) = nullptr;
    bool (*synchronize_after)(void*, std::int64_t step) = nullptr;
};

/// The functions of a training that the loop calls.
struct TrainingCalls {
    void* training = nullptr;
    void* batches = nullptr;
    std::int64_t (*step)(void* training) = nullptr;
    void (*queue)(void* training, void* batches) = nullptr;
    /// Queues a step that callbacks inspect; empty if no callback inspects steps.
    FunctionRef<void()> queue_inspected{};
    const StepReport* (*poll_report)(void* training, std::int64_t max_in_flight) = nullptr;
    std::int64_t max_steps_in_flight = 1;
    /// Ends the steps in flight; null if queue() alone calls `batches`.
    void (*synchronize)(void* training) = nullptr;
    RunPolicy* policy = &run_policy_of_one_process();
};

class FitRecorder;

/// Makes the recorder, which is planned from step 0, continue at the step of the training, after restoring the training
/// if necessary. Returns the state of the training at the best record so far, or null.
using ResumeRun = FunctionRef<std::shared_ptr<const void>(FitRecorder& recorder)>;

/// The arguments of a run of fit().
struct FitTask {
    /// `metrics`, `validates`, `averages` and `restores` are set by run_fit.
    FitPlan plan{};
    Epochs epochs{};
    /// The name of the batches' type.
    std::string_view source{};
    /// The fingerprint of the batches, for the policy; empty if unknown.
    FunctionRef<std::string()> fingerprint{};
    const ValidationCalls* validation = nullptr;
    const RestoreCalls* restore_best = nullptr;
    Weights weights = Weights::trained;
    /// Null without metrics.
    EvaluationFeed* metrics = nullptr;
    /// The layers with which the metrics begin; empty for a training without required_columns().
    std::span<const LayerInfo> layers{};
    std::span<const RequiredColumn> columns{};
    /// Called before on_begin; empty for a run that begins at the step of the training.
    ResumeRun resume{};
    /// As in Run.
    std::string warning{};
};

/// Runs `task` on `training`; see fit().
[[nodiscard, gnu::cold]] History run_fit(const FitTask& task, const TrainingCalls& training,
                                         std::span<const CallbackHooks> callbacks);

}  // namespace impl

}}  // namespace cupola::CUPOLA_ABI

#ifdef CUPOLA_DECL
#include <cupola/train/impl/fit_loop.ipp>
#endif
