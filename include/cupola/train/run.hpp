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

/// The state of a training run that callbacks can read and change.
struct Run {
    std::int64_t first_step = 0, last_step = 0;
    /// The time at which the run began, by `monotonic_seconds`.
    double started = 0;
    /// Set by a callback to end the run after this step.
    bool stop = false;
    /// Set together with `stop` if the run is not complete, as StopOnSignal does: a TrainingRun then makes no record at
    /// its end.
    bool interrupted = false;
    /// The number of training steps after which the next record of the history is made.
    std::int64_t next_record = 0;
    /// A warning that LogEvery prints before the first step, such as outputs that belong to no class.
    std::string warning{};
};

}}  // namespace cupola::CUPOLA_ABI
