// SPDX-License-Identifier: Apache-2.0
//
// LogEvery{10}: writes a line to standard output every 10 steps, in the format of TensorFlow's CIFAR-10 tutorial, so
// that programs that parse its logs can parse these:
//
//   2026-11-21 03:16:29.123456: step 10, loss = 4.66 (2512.3 examples/sec; 0.102 sec/batch)
//
// A loss below 1 has more decimals than the tutorial's two (train/loss_text.hpp). A validation of fit() has a line too:
//
//   2026-11-21 03:16:29.123456: step 391, epoch 1, loss = 4.01, validation loss = 1.63 (43.2 sec)
//
// examples/sec counts all replicas over the steps since the last line; sec/batch is the time of a whole step (the
// tutorial divided it by the number of replicas). Further values that LogOptions selects follow on the same line, as
// does a loss scale, "loss_scale = 32768", with " (skipped)" if the step was skipped; as JSON the line is one object.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <initializer_list>
#include <string>

#include <cupola/core/error.hpp>
#include <cupola/core/finite.hpp>
#include <cupola/io/standard_output.hpp>
#include <cupola/train/history.hpp>
#include <cupola/train/loss_averages.hpp>
#include <cupola/train/loss_text.hpp>
#include <cupola/train/run.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// The loss that a line shows: the mean over the replicas, weighted by samples, whose gradient is the averaged
/// gradient; that of the last replica (as in the tutorial); or the mean and each replica's.
enum class LossReduction : std::uint8_t { mean, last_replica, each_replica };

struct LogOptions {
    /// The number of steps between two lines, the first at step 0; 0 for no lines of steps. Validations always have
    /// lines.
    std::int64_t every = 10;
    /// The file is not closed.
    std::FILE* file = stdout;
    LossReduction loss = LossReduction::mean;
    bool learning_rate = false;
    /// Whether lines contain each part of the loss by name, raw and smoothed over the steps.
    bool parts = false;
    /// Writes one JSON object per line, with all values in it.
    bool json = false;
    LossAveragesOptions averages{};
};

class LogEvery {
public:
    explicit LogEvery(const LogOptions& options);  // misspelt? LogOptions{...} names it
    explicit LogEvery(std::int64_t steps, std::FILE* file = stdout)
        : LogEvery(LogOptions{.every = steps, .file = file}) {}

    /// The smoothed losses of the lines; a resumed run sets them, so that they continue too.
    [[nodiscard]] LossAverages& losses() { return averages_; }

    /// Writes the run's warning, if there is one.
    void on_begin(Run& run);

    void on_step(const StepReport& report, Run&);
    /// Writes a line if the record has a validation, independent of `every`.
    void on_record(const HistoryRecord& record, Run&);

private:
    /// Appends to the line.
    [[gnu::cold]] void put(std::initializer_list<impl::TextPart> parts);

    void put_date();
    [[gnu::cold]] void write_text(const StepReport& report, double rate, double time);
    [[gnu::cold]] void write_text(const HistoryRecord& record);

    [[gnu::cold]] void write_json(const StepReport& report, double rate, double time);
    [[gnu::cold]] void write_json(const HistoryRecord& record);

    /// Writes the line of this step to the file.
    [[gnu::cold]] void write_line(std::int64_t step);

    [[gnu::cold]] void put_part(const LossAverages::Entry& part);
    [[gnu::cold]] void json_part(const LossAverages::Entry& part);

    /// Writes null for an infinity or a NaN, which JSON cannot represent.
    [[gnu::cold]] void number(double value);

    LogOptions options_;
    double last_ = 0;
    std::int64_t samples_ = 0, steps_ = 0;
    LossAverages averages_;
    /// A member, so that its memory is reused.
    std::string line_;
};

}}  // namespace cupola::CUPOLA_ABI

#ifdef CUPOLA_DECL
#include <cupola/train/log_every.ipp>
#endif
