// SPDX-License-Identifier: Apache-2.0
//
// Definitions of cupola/train/log_every.hpp.
#pragma once

#include <cupola/train/log_every.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

CUPOLA_DECL LogEvery::LogEvery(const LogOptions& options) : options_(options), averages_(options.averages) {
    require(options.every >= 0, "a line must be logged every 0 (never) or more steps, not ", options.every);
}

CUPOLA_DECL void LogEvery::on_begin(Run& run) {
    if (!run.warning.empty())
        StandardOutput(options_.json, options_.file).print_message(text("warning: ", run.warning));
    last_ = run.started;
}

CUPOLA_DECL void LogEvery::on_step(const StepReport& report, Run&) {
    samples_ += report.samples;
    ++steps_;
    if (options_.parts || options_.json) averages_.update(report);
    if (options_.every == 0 || report.step % options_.every != 0) return;
    const double now = monotonic_seconds(), seconds = now - last_;
    line_.clear();
    const double rate = static_cast<double>(samples_) / seconds, time = seconds / static_cast<double>(steps_);
    if (options_.json) {
        write_json(report, rate, time);
    } else {
        write_text(report, rate, time);
    }
    write_line(report.step);
    last_ = now;
    samples_ = steps_ = 0;
}

CUPOLA_DECL void LogEvery::on_record(const HistoryRecord& record, Run&) {
    if (!record.validation_loss) return;
    line_.clear();
    if (options_.json) {
        write_json(record);
    } else {
        write_text(record);
    }
    write_line(record.step);
    last_ += record.validation_seconds;  // not part of the time per step
}

CUPOLA_DECL void LogEvery::write_line(std::int64_t step) {
    put({"\n"});
    if (const int error = impl::write_error(options_.file, line_); error != 0)
        impl::throw_joined<DataError>({"the log line of step ", step, " could not be written: ", std::strerror(error)});
}

CUPOLA_DECL void LogEvery::put(std::initializer_list<impl::TextPart> parts) {
    for (const impl::TextPart& part : parts) part.append_to(line_);
}

CUPOLA_DECL void LogEvery::put_date() {
    std::timespec now{};
    std::timespec_get(&now, TIME_UTC);
    std::tm local{};
    localtime_r(&now.tv_sec, &local);
    char date[32], microseconds[24];
    std::strftime(date, sizeof date, "%Y-%m-%d %H:%M:%S", &local);
    std::snprintf(microseconds, sizeof microseconds, ".%06ld: ", now.tv_nsec / 1000);
    put({date, microseconds});
}

CUPOLA_DECL void LogEvery::write_text(const StepReport& report, double rate, double time) {
    put_date();
    const double loss = options_.loss == LossReduction::last_replica ? report.replicas.back().total : report.loss;
    put({"step ", report.step, ", loss = ", loss_text(loss), " (", Decimals{rate, 1}, " examples/sec; ",
         Decimals{time, 3}, " sec/batch)"});
    if (options_.learning_rate) put({", learning_rate = ", report.learning_rate});
    if (report.loss_scale != 1 || report.skipped_steps > 0)
        put({", loss_scale = ", report.loss_scale, report.skipped ? " (skipped)" : ""});
    if (options_.loss == LossReduction::each_replica) {
        put({", losses ="});
        for (const ReplicaReport& replica : report.replicas) put({" ", loss_text(replica.total)});
    }
    if (!options_.parts) return;
    for (const LossAverages::Entry& part : averages_.parts()) put_part(part);
    put_part(averages_.total());
}

CUPOLA_DECL void LogEvery::write_text(const HistoryRecord& record) {
    put_date();
    put({"step ", record.step, ", "});
    if (record.epoch) put({"epoch ", *record.epoch, ", "});
    put({"loss = ", loss_text(record.loss), ", validation loss = ", loss_text(*record.validation_loss)});
    for (const MetricValue& each : record.metrics) put({", ", each.name, " = ", loss_text(each.value, 3)});
    put({" (", Decimals{record.seconds, 1}, " sec)"});
}

CUPOLA_DECL void LogEvery::write_json(const StepReport& report, double rate, double time) {
    put({R"({"step":)", report.step, R"(,"loss":)"});
    number(report.loss);
    put({R"(,"learning_rate":)"});
    number(report.learning_rate);
    if (report.loss_scale != 1 || report.skipped_steps > 0)
        put({R"(,"loss_scale":)", SignificantDigits{report.loss_scale, 9}, R"(,"skipped":)", report.skipped,
             R"(,"skipped_steps":)", report.skipped_steps});
    put({R"(,"examples":)", report.samples, R"(,"examples_per_second":)"});
    number(rate);
    put({R"(,"seconds_per_step":)"});
    number(time);
    put({R"(,"replicas":[)"});
    for (const ReplicaReport& replica : report.replicas) {
        if (&replica != &report.replicas.front()) put({","});
        number(replica.total);
    }
    put({R"(],"parts":{)"});
    for (const LossAverages::Entry& part : averages_.parts()) {
        json_part(part);
        put({","});
    }
    json_part(averages_.total());
    put({"}}"});
}

CUPOLA_DECL void LogEvery::write_json(const HistoryRecord& record) {
    put({R"({"step":)", record.step, ","});
    if (record.epoch) put({R"("epoch":)", *record.epoch, ","});
    put({R"("training_loss":)"});
    number(record.loss);
    put({R"(,"validation_loss":)"});
    number(*record.validation_loss);
    put({R"(,"metrics":{)"});
    for (const MetricValue& each : record.metrics) {
        if (&each != &record.metrics.front()) put({","});
        append_as_json(line_, each.name);
        put({":"});
        number(each.value);
    }
    put({R"(},"learning_rate":)"});
    number(record.learning_rate);
    put({R"(,"seconds":)"});
    number(record.seconds);
    put({"}"});
}

CUPOLA_DECL void LogEvery::put_part(const LossAverages::Entry& part) {
    put({", ", part.name, " = ", loss_text(part.raw, 4), " (smoothed ", loss_text(part.smoothed, 4), ")"});
}

CUPOLA_DECL void LogEvery::json_part(const LossAverages::Entry& part) {
    append_as_json(line_, part.name);
    put({R"(:{"raw":)"});
    number(part.raw);
    put({R"(,"smoothed":)"});
    number(part.smoothed);
    put({"}"});
}

CUPOLA_DECL void LogEvery::number(double value) {
    if (impl::is_finite(value)) {
        put({SignificantDigits{value, 9}});
    } else {
        put({"null"});
    }
}

}}  // namespace cupola::CUPOLA_ABI
