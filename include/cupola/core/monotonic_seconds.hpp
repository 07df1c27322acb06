// SPDX-License-Identifier: Apache-2.0
//
// Seconds of a monotonic clock. (Not std::chrono: <chrono> brings <sstream> to each file that includes this.)
#pragma once

#include <ctime>

#include <cupola/core/abi.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

[[nodiscard]] inline double monotonic_seconds() {
    std::timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}}  // namespace cupola::CUPOLA_ABI
