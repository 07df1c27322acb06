// SPDX-License-Identifier: Apache-2.0
//
// What `fit` and its callbacks share.
#pragma once

#include <cstdint>
#include <ctime>

#include <cupola/core/abi.hpp>
#include <cupola/parallel/step_report.hpp>

namespace cupola::inline CUPOLA_ABI {

/// Seconds of a clock that is never set. (Not std::chrono: <chrono> brings <sstream> to each file that includes this.)
[[nodiscard]] inline double monotonic_seconds() {
    std::timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// A training run as callbacks see it.
struct Run {
    std::int64_t first_step = 0, last_step = 0;
    /// When it began, by `monotonic_seconds`.
    double started = 0;
    /// Set by a callback: the run ends after this step.
    bool stop = false;
};

}  // namespace cupola::inline CUPOLA_ABI
