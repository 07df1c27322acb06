// SPDX-License-Identifier: Apache-2.0
//
// The state that `fit` shares with its callbacks.
#pragma once

#include <cstdint>
#include <string>

#include <cupola/core/abi.hpp>
#include <cupola/core/monotonic_seconds.hpp>
#include <cupola/parallel/step_report.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// A training run as callbacks see it.
struct Run {
    std::int64_t first_step = 0, last_step = 0;
    /// The time of the run's beginning, by `monotonic_seconds`.
    double started = 0;
    /// Set by a callback to end the run after this step.
    bool stop = false;
    /// Set beside `stop` where the run is not over, as StopOnSignal does: a TrainingRun then makes no record at its
    /// end.
    bool interrupted = false;
    /// The number of the training's steps after which the next record of the history is made.
    std::int64_t next_record = 0;
    /// What is no error but worth a line before the first step, such as outputs that are of no class; LogEvery prints
    /// it.
    std::string warning{};
};

}}  // namespace cupola::CUPOLA_ABI
