// SPDX-License-Identifier: Apache-2.0
//
// Waits for a condition by polling, with a deadline and without a blocking call of CUDA.
#pragma once

#include <ctime>

#include <cupola/core/error.hpp>
#include <cupola/core/monotonic_seconds.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

/// The number of polls before the first sleep: a sleep of 20 us took 100 us, longer than most waits.
inline constexpr int turns_before_sleep = 1000;

/// Returns when happened() returns true. Polls first, because most waits are short, and then sleeps between two polls.
/// Throws DeviceError with `message` at the deadline.
template <class Happened, class... Parts>
void wait_until(Happened&& happened, double seconds, const Parts&... message) {
    const double start = monotonic_seconds();
    for (int turn = 0; !happened(); ++turn) {
        if (turn < turns_before_sleep) continue;
        const std::timespec short_while{.tv_sec = 0, .tv_nsec = 20'000};
        nanosleep(&short_while, nullptr);
        require<DeviceError>(monotonic_seconds() - start < seconds, message...);
    }
}

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
