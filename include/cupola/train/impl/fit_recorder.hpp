// SPDX-License-Identifier: Apache-2.0
//
// FitRecorder: determines when a run of fit() ends and when it makes a record; stores the records; tracks the best of
// them and the patience.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <cupola/core/finite.hpp>
#include <cupola/core/fixed_string.hpp>
#include <cupola/core/function_ref.hpp>
#include <cupola/parallel/step_report.hpp>
#include <cupola/train/history.hpp>
#include <cupola/train/impl/fit_plan.hpp>
#include <cupola/train/run.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The part of a run's records that a checkpoint contains, with which a resumed run continues.
struct RecordProgress {
    std::vector<HistoryRecord> records{};
    /// For the steps since the last record: whether there are any, and the sums of their weights and weighted losses.
    bool has_steps = false;
    double weight = 0, sum = 0;
    /// The learning rate of the last step.
    double learning_rate = 0;
    /// The duration of the run so far.
    double seconds = 0;
};

class FitRecorder {
public:
    /// Throws InvalidArgument for options that are out of range or contradict each other; `source` is the name of the
    /// batches' type, for the error that they have no epochs.
    FitRecorder(const FitPlan& plan, const Epochs& epochs, std::int64_t first_step, std::string_view source);

    /// Continues the run, which was planned from step 0, at `step`, with the progress stored in its checkpoint; if that
    /// is null, the records begin there. Ends the run if its patience was exhausted. From then on an interrupted run
    /// makes no record at its end, so that the run that continues it makes the same records as without the
    /// interruption.
    void resume(std::int64_t step, const RecordProgress* progress);
    [[nodiscard]] RecordProgress progress() const;

    [[nodiscard]] Run& run() { return run_; }
    /// Whether a record is due after this many steps of the training.
    [[nodiscard]] bool is_due(std::int64_t steps) const { return steps >= run_.next_record; }
    /// Whether steps were made since the last record.
    [[nodiscard]] bool has_steps() const { return has_steps_; }
    /// Whether the run was interrupted and is to be resumed.
    [[nodiscard]] bool is_postponed() const { return resumable_ && run_.interrupted; }

    void add(const StepReport& report);
    /// Evaluates the validation batches; empty if there are none.
    using Validate = FunctionRef<Evaluation()>;
    /// Makes a record of the steps since the last one; returns whether it is the best so far. Sets the run's `stop`
    /// when the patience is exhausted.
    bool record(Validate validate);

    [[nodiscard]] const HistoryRecord& last() const { return history_.records.back(); }
    [[nodiscard]] const History& history() const { return history_; }
    /// The best record, or null; and its quantity, negated if smaller values are better.
    [[nodiscard]] const HistoryRecord* best() const;
    [[nodiscard]] double best_value() const;
    /// The history of a run that ended after this many steps of the training.
    [[nodiscard]] History finish(std::int64_t steps);

private:
    [[nodiscard]] std::int64_t end_of_part(std::int64_t part) const;
    /// Plans the first record after `step`.
    void plan_record_after(std::int64_t step);
    /// The quantity of a record, negated if larger values are better; empty for a record with other metrics.
    [[nodiscard]] std::optional<double> quantity_of(const HistoryRecord& record) const;
    /// Compares the last record with the previous ones; returns whether it is the best so far.
    bool compare_last();

    FitPlan plan_;
    Epochs epochs_;
    bool larger_is_better_ = false;
    /// The metrics whose larger values are better.
    std::vector<std::string> larger_{};
    Run run_{};
    History history_{};
    /// The step and the epoch from which the records are planned.
    std::int64_t origin_ = 0, first_epoch_ = 0;
    bool resumable_ = false;
    double seconds_before_ = 0;
    /// The sums over the steps since the last record.
    bool has_steps_ = false;
    double weight_ = 0, sum_ = 0;
    /// The step and the learning rate of the last report.
    std::int64_t step_ = 0;
    double learning_rate_ = 0;
    /// The quantity below which a record must be by min_delta, and the number of records since that happened.
    double reference_ = 0;
    std::int64_t waited_ = 0;
};

}}}  // namespace cupola::CUPOLA_ABI::impl

#ifdef CUPOLA_DECL
#include <cupola/train/impl/fit_recorder.ipp>
#endif
