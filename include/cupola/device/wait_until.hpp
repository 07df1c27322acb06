// SPDX-License-Identifier: Apache-2.0
//
// Waits for a condition by polling, with a deadline and without a blocking call of CUDA.
#pragma once

#include <ctime>
#include <thread>

#include <cupola/core/error.hpp>
#include <cupola/core/monotonic_seconds.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The number of polls and the seconds of polling before the first sleep: a sleep of 20 us took 100 us, and most waits
/// end within 200 us.
inline constexpr int turns_before_sleep = 1000, max_turns_before_sleep = 20'000;
inline constexpr double seconds_before_sleep = 500e-6;

/// Whether a wait sleeps after poll number `turn`, `waited` seconds after its begin. A poll may take 50 ns or 2 us, so
/// neither number alone is enough; a longer wait must leave the core to other threads.
[[nodiscard]] constexpr bool sleeps_after(int turn, double waited) {
    return turn >= turns_before_sleep && (waited >= seconds_before_sleep || turn >= max_turns_before_sleep);
}

/// The clock of wait_until().
struct WaitClock {
    double now() { return monotonic_seconds(); }
    void yield() { std::this_thread::yield(); }
    void pause() {
        const std::timespec short_while{.tv_sec = 0, .tv_nsec = 20'000};
        nanosleep(&short_while, nullptr);
    }
};

/// Returns when happened() returns true. Polls first, because most waits are short, and then sleeps between two polls.
/// Throws DeviceError with `message` at the deadline.
template <class Clock, class Happened, class... Parts>
void wait_until_with(Clock&& clock, Happened&& happened, double seconds, const Parts&... message) {
    const double start = clock.now();
    for (int turn = 0; !happened(); turn += turn < max_turns_before_sleep ? 1 : 0) {
        if (turn < turns_before_sleep) continue;
        const double waited = clock.now() - start;
        if (!sleeps_after(turn, waited)) {
            clock.yield();
            continue;
        }
        require<DeviceError>(waited < seconds, message...);
        clock.pause();
    }
}
template <class Happened, class... Parts>
void wait_until(Happened&& happened, double seconds, const Parts&... message) {
    wait_until_with(WaitClock{}, happened, seconds, message...);
}

}}}  // namespace cupola::CUPOLA_ABI::impl
