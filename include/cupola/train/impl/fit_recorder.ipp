// SPDX-License-Identifier: Apache-2.0
//
// Definitions of cupola/train/impl/fit_recorder.hpp.
#pragma once

#include <algorithm>
#include <limits>
#include <utility>

#include <cupola/core/error.hpp>
#include <cupola/core/monotonic_seconds.hpp>
#include <cupola/loss/data_losses.hpp>
#include <cupola/train/impl/fit_recorder.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

[[gnu::cold]] CUPOLA_DECL FitRecorder::FitRecorder(const FitPlan& plan, const Epochs& epochs, std::int64_t first_step,
                                                   std::string_view source)
    : plan_(plan), epochs_(epochs), origin_(first_step) {
    require(plan.steps.has_value() != plan.epochs.has_value(), "a run has .steps or .epochs, ",
            plan.steps ? "not both" : "and neither is given");
    require(plan.steps.value_or(0) >= 0, "a run must have 0 or more steps, not ", plan.steps.value_or(0));
    require(plan.epochs.value_or(0) >= 0, "a run must have 0 or more epochs, not ", plan.epochs.value_or(0));
    require(!plan.epochs || epochs.samples > 0,
            ".epochs needs batches with samples_per_epoch(), as those of a data set; ", source,
            " has none: use .steps");
    require(plan.every >= 0, ".every must be 0 or more ", plan.steps ? "steps" : "epochs", ", not ", plan.every);
    require(plan.patience >= 0, ".patience must be 0 (the run is not ended early) or more records, not ",
            plan.patience);
    require(Number(plan.min_delta).is_finite_float() && plan.min_delta >= 0, ".min_delta must be 0 or more, not ",
            plan.min_delta);
    require(plan.patience == 0 || plan.epochs || plan.every > 0,
            ".patience of a run by steps needs .every, the steps between two records");
    require(!plan.restores || plan.epochs || plan.every > 0,
            ".restore_best of a run by steps needs .every, the steps between two records");
    require(plan.min_delta == 0 || plan.patience > 0, ".min_delta is ", plan.min_delta,
            " and needs .patience, the records without a better value that end the run");
    require(!plan.averages || plan.validates, ".weights needs .validation, the batches that they are validated on");
    history_.quantity = !plan.quantity.empty() ? plan.quantity : plan.validates ? "validation_loss" : "loss";
    require(plan.metrics.empty() || plan.validates,
            ".metrics needs .validation, the batches that they are computed of");
    std::string names = plan.validates ? "loss, validation_loss" : "loss";
    bool known = history_.quantity == "loss" || (history_.quantity == "validation_loss" && plan.validates);
    if (plan.validates && plan.losses.size() > 1) {
        for (const LossEntry& each : plan.losses) {
            names += text(", ", each.name, "/loss");
            known = known || history_.quantity == text(each.name, "/loss");
        }
    }
    for (const MetricValue& each : plan.metrics) {
        names += ", " + each.name;
        if (each.larger_is_better) larger_.push_back(each.name);
        if (each.name != history_.quantity) continue;
        known = true;
        larger_is_better_ = each.larger_is_better;
    }
    require(known, ".quantity is \"", history_.quantity, "\", and the records of this run have: ", names);
    plan_.metrics = {};
    plan_.losses = {};

    std::int64_t last = 0;
    if (plan.epochs) {
        if (plan_.every == 0) plan_.every = 1;
        first_epoch_ = epochs.complete_after(first_step);
        constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
        require(*plan.epochs <= (most / epochs.samples - first_epoch_) / 2, *plan.epochs, " epochs of ", epochs.samples,
                " samples are too many to count");
        last = *plan.epochs == 0 ? first_step : epochs.steps_of(first_epoch_ + *plan.epochs);
    } else {
        require(*plan.steps <= std::numeric_limits<std::int64_t>::max() - first_step, *plan.steps, " steps from step ",
                first_step, " on are too many to count");
        last = first_step + *plan.steps;
    }
    run_ = {.first_step = first_step, .last_step = last, .started = monotonic_seconds()};
    plan_record_after(first_step);
    reference_ = std::numeric_limits<double>::infinity();
}

/// The number of steps after which a part of the run is complete, each of `.every` epochs or steps; the whole run if
/// that is 0.
CUPOLA_DECL std::int64_t FitRecorder::end_of_part(std::int64_t part) const {
    if (plan_.every == 0 || part > std::numeric_limits<std::int64_t>::max() / plan_.every) return run_.last_step;
    const std::int64_t from_start = part * plan_.every, all = plan_.epochs ? *plan_.epochs : *plan_.steps;
    if (from_start >= all) return run_.last_step;
    return plan_.epochs ? epochs_.steps_of(first_epoch_ + from_start) : origin_ + from_start;
}

CUPOLA_DECL void FitRecorder::plan_record_after(std::int64_t step) {
    std::int64_t parts = 0;
    if (plan_.every > 0) {
        const std::int64_t made = plan_.epochs ? epochs_.complete_after(step) - first_epoch_ : step - origin_;
        parts = made / plan_.every;
    }
    run_.next_record = end_of_part(parts + 1);
}

[[gnu::cold]] CUPOLA_DECL void FitRecorder::resume(std::int64_t step, const RecordProgress* progress) {
    resumable_ = true;
    run_.first_step = step_ = step;
    run_.last_step = std::max(run_.last_step, step);
    if (progress == nullptr) return plan_record_after(step);
    has_steps_ = progress->has_steps;
    weight_ = progress->weight;
    sum_ = progress->sum;
    learning_rate_ = progress->learning_rate;
    seconds_before_ = progress->seconds;
    for (const HistoryRecord& record : progress->records) {
        history_.records.push_back(record);
        for (MetricValue& each : history_.records.back().metrics)
            each.larger_is_better = std::ranges::find(larger_, each.name) != larger_.end();
        compare_last();
    }
    plan_record_after(history_.records.empty() ? origin_ : last().step);
    run_.stop = history_.stopped_early = plan_.patience > 0 && waited_ >= plan_.patience && step < run_.last_step;
}

[[gnu::cold]] CUPOLA_DECL RecordProgress FitRecorder::progress() const {
    return {.records = history_.records,
            .has_steps = has_steps_,
            .weight = weight_,
            .sum = sum_,
            .learning_rate = learning_rate_,
            .seconds = seconds_before_ + monotonic_seconds() - run_.started};
}

CUPOLA_DECL const HistoryRecord* FitRecorder::best() const {
    return history_.best ? &history_.records[*history_.best] : nullptr;
}
CUPOLA_DECL double FitRecorder::best_value() const { return -*quantity_of(*best()); }

CUPOLA_DECL void FitRecorder::add(const StepReport& report) {
    if (!report.skipped) {
        weight_ += report.weight;
        sum_ += report.loss * report.weight;
    }
    has_steps_ = true;
    step_ = report.step + 1;
    learning_rate_ = report.learning_rate;
}

CUPOLA_DECL std::optional<double> FitRecorder::quantity_of(const HistoryRecord& record) const {
    if (history_.quantity == "loss") return record.loss;
    if (history_.quantity == "validation_loss") return record.validation_loss;
    const MetricValue* const found = find_metric(record.metrics, history_.quantity);
    if (found == nullptr) return {};
    return larger_is_better_ ? -found->value : found->value;
}

CUPOLA_DECL bool FitRecorder::compare_last() {
    const std::optional<double> value = quantity_of(last());
    if (!value) return false;
    const bool is_best = is_finite(*value) && (best() == nullptr || *value < *quantity_of(*best()));
    if (is_best) history_.best = history_.records.size() - 1;
    if (!is_nan(*value) && *value < reference_ - plan_.min_delta) {
        reference_ = *value;
        waited_ = 0;
    } else {
        ++waited_;
    }
    return is_best;
}

[[gnu::cold]] CUPOLA_DECL bool FitRecorder::record(Validate validate) {
    const double begun = monotonic_seconds();
    Evaluation validation = validate ? validate() : Evaluation{};
    const double now = monotonic_seconds();
    HistoryRecord record{.step = step_,
                         .loss = sum_ / weight_,
                         .learning_rate = learning_rate_,
                         .seconds = seconds_before_ + now - run_.started,
                         .validation_seconds = now - begun};
    if (epochs_.samples > 0) record.epoch = epochs_.complete_after(step_);
    if (validate) {
        record.validation_loss = validation.loss;
        if (validation.losses.size() > 1) {
            for (const OutputEvaluation& each : validation.losses)
                record.metrics.push_back(
                    {.name = text(each.name, "/loss"), .value = each.loss, .larger_is_better = false});
        }
        for (MetricValue& each : validation.metrics) record.metrics.push_back(std::move(each));
    }
    history_.records.push_back(std::move(record));
    has_steps_ = false;
    weight_ = sum_ = 0;
    plan_record_after(step_);
    const bool is_best = compare_last();
    if (plan_.patience > 0 && waited_ >= plan_.patience && step_ < run_.last_step) {
        run_.stop = true;
        history_.stopped_early = true;
    }
    return is_best;
}

CUPOLA_DECL History FitRecorder::finish(std::int64_t steps) {
    history_.steps = steps - run_.first_step;
    return std::move(history_);
}

}}}  // namespace cupola::CUPOLA_ABI::impl
