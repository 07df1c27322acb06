// SPDX-License-Identifier: Apache-2.0
//
// A wait for something that a GPU does, by asking: no call of CUDA's that blocks, and never without an end.
#pragma once

#include <ctime>

#include <cupola/core/error.hpp>
#include <cupola/core/monotonic_seconds.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

/// How often a wait asks before it sleeps between two questions: a sleep of 20 us took 100 us, more than most waits.
inline constexpr int turns_before_sleep = 1000;

/// Until happened() says so; most waits are short, and the longer ones leave the processor to others. Throws
/// DeviceError with `sentence` after so many seconds.
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
