// SPDX-License-Identifier: Apache-2.0
//
// What a TrainingRun is made with, for a file that only sets it, such as one with a command line.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <cupola/core/error.hpp>
#include <cupola/io/summary_sink.hpp>
#include <cupola/train/log_every.hpp>

namespace cupola::inline CUPOLA_ABI {

/// What a run does with the checkpoints that are in its folder.
enum class Resume : std::uint8_t {
    no,        ///< a folder with checkpoints is refused: nothing is deleted
    if_there,  ///< goes on from the newest valid one, or begins where there is none
    yes,       ///< goes on, and throws where there is none
    anyway     ///< goes on from one of other settings too, and says which
};

/// How errors and messages name the options of a run: a program with a command line gives its flags.
struct RunOptionNames {
    std::string folder = ".folder";
    std::string resume = "Resume::yes", resume_anyway = "Resume::anyway";
    std::string keep_best = ".keep_best";
    std::string max_steps = ".max_steps";
    /// What may differ between two parts of a run: "X and Y may change".
    std::string may_change = ".max_steps and the options of logs, summaries and checkpoints";
};

struct TrainingRunOptions {
    /// Where checkpoints, log and events are kept; nothing is kept where it is empty.
    std::string folder{};
    Resume resume = Resume::no;
    /// False for all but the first of several processes: they read the folder where the run goes on, and write nothing.
    bool writes = true;
    /// The steps of the whole run, those before a resume included.
    std::int64_t max_steps = 1000;

    /// Of the lines on standard output, and with another file of those in the folder. With `json` every message is an
    /// object.
    LogOptions log{};

    /// Steps between two checkpoints; 0 for one at the end.
    std::int64_t checkpoint_every = 1000;
    /// The newest checkpoints that are kept.
    int keep_checkpoints = 5;
    /// Evaluates at each checkpoint, with the moving averages if there are any, and keeps the one of the largest accuracy.
    bool keep_best = false;

    /// Opens what summaries are written to, `event_file_in` of io/event_file.hpp for TensorBoard's file in the folder; null
    /// for no summaries.
    std::unique_ptr<SummarySink> (*events)(const std::string& folder) = nullptr;
    /// Steps between two summaries; 0 for none.
    std::int64_t summary_every = 100;

    RunOptionNames names{};
};

/// Whether there has to be a checkpoint to go on from.
[[nodiscard]] inline bool must_resume(const TrainingRunOptions& options) {
    return options.resume == Resume::yes || options.resume == Resume::anyway;
}

/// Throws InvalidArgument for options that do not go together. TrainingRun does so too; a program that reads its data first may
/// ask before.
[[gnu::cold]] inline void check_run_options(const TrainingRunOptions& options) {
    const RunOptionNames& names = options.names;
    const bool has_folder = !options.folder.empty();
    require(options.max_steps >= 0, "a run has 0 or more steps, not ", options.max_steps);
    require(has_folder || !must_resume(options), names.resume, " needs ", names.folder, ", the folder to go on from");
    require(has_folder || !options.keep_best, names.keep_best, " needs ", names.folder, ", the folder to keep it in");
}

}  // namespace cupola::inline CUPOLA_ABI
