// SPDX-License-Identifier: Apache-2.0
//
// The options of a TrainingRun, for files that only set them, such as one with a command line.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include <cupola/core/error.hpp>
#include <cupola/io/summary_sink.hpp>
#include <cupola/train/log_every.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// How the checkpoints in a run's folder are used.
enum class Resume : std::uint8_t {
    no,        ///< rejects a folder with checkpoints; nothing is deleted
    if_there,  ///< resumes from the newest valid checkpoint; starts a new run if there is none
    yes,       ///< resumes, and throws if there is no checkpoint
    anyway     ///< resumes also from a checkpoint with other settings, and prints which
};

/// The names of the options in errors and messages: a program with a command line sets them to its flags.
struct RunOptionNames {
    std::string folder = ".folder";
    std::string resume = "Resume::yes", resume_anyway = "Resume::anyway";
    std::string keep_best = ".keep_best";
    std::string max_steps = ".max_steps";
    /// The options that may differ between two parts of a run: "X and Y may change".
    std::string may_change = ".max_steps, .epochs and the options of logs, summaries and checkpoints";
};

struct TrainingRunOptions {
    /// The folder of the checkpoints, the log and the events; nothing is stored if it is empty.
    std::string folder{};
    Resume resume = Resume::no;
    /// False for all except the first of several processes: they read the folder when the run is resumed, and write
    /// nothing, including no log to standard output.
    bool writes = true;
    /// The number of steps of the whole run, including those before a resume. Must not be set if `train` has .steps or
    /// .epochs; 1000 if neither is given.
    std::optional<std::int64_t> max_steps{};

    /// The options of the lines on standard output and, written to another file, of those in the folder. With `json`
    /// every message is an object. The losses of the summaries are smoothed like those of the lines.
    LogOptions log{};

    /// The number of steps between two checkpoints; 0 for only the one at the end.
    std::int64_t checkpoint_every = 1000;
    /// The number of newest checkpoints that are kept.
    int keep_checkpoints = 5;
    /// Keeps the best checkpoint too. With a validation in `train` it is that of the best record. Otherwise evaluates
    /// at each checkpoint, with the moving averages if there are any, and keeps the one with the best accuracy, or with
    /// the lowest loss if the loss counts no predictions or the network has several outputs.
    bool keep_best = false;

    /// Opens the sink of the summaries: `event_file_in` of io/event_file.hpp for TensorBoard's file in the folder; null
    /// for no summaries.
    std::unique_ptr<SummarySink> (*events)(const std::string& folder) = nullptr;
    /// The number of steps between two summaries; 0 for no summaries.
    std::int64_t summary_every = 100;

    RunOptionNames names{};
};

/// Whether there must be a checkpoint to resume from.
[[nodiscard]] inline bool must_resume(const TrainingRunOptions& options) {
    return options.resume == Resume::yes || options.resume == Resume::anyway;
}

/// The options of a process that does not write: without a log, which would go to standard output in addition to the
/// first process's.
[[nodiscard, gnu::cold]] inline TrainingRunOptions without_second_log(TrainingRunOptions options) {
    if (options.writes || options.log.file != stdout) return options;
    static std::FILE* const nowhere = std::fopen("/dev/null", "we");
    require<DataError>(nowhere != nullptr, "/dev/null cannot be opened");
    options.log.file = nowhere;
    return options;
}

/// Throws InvalidArgument for a number that is too small and for options that exclude each other. TrainingRun calls it
/// too; a program that reads its data first may call it earlier.
[[gnu::cold]] inline void check_run_options(const TrainingRunOptions& options) {
    const RunOptionNames& names = options.names;
    const bool has_folder = !options.folder.empty();
    require(options.max_steps.value_or(0) >= 0, "a run must have 0 or more steps, not ", options.max_steps.value_or(0));
    require(options.log.every >= 0, ".log.every must be 0 (no lines) or more steps, not ", options.log.every);
    require(options.checkpoint_every >= 0,
            ".checkpoint_every must be 0 (one checkpoint at the end) or more steps, not ", options.checkpoint_every);
    require(options.keep_checkpoints >= 1, ".keep_checkpoints is 1 or more, not ", options.keep_checkpoints);
    require(options.summary_every >= 0, ".summary_every must be 0 (no summaries) or more steps, not ",
            options.summary_every);
    require(has_folder || !must_resume(options), names.resume, " needs ", names.folder, ", the folder to resume from");
    require(has_folder || !options.keep_best, names.keep_best, " needs ", names.folder, ", the folder to keep it in");
}

}}  // namespace cupola::CUPOLA_ABI
