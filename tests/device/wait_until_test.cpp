// SPDX-License-Identifier: Apache-2.0
#include <cupola/device/wait_until.hpp>

#include "../test.hpp"

#include <cupola/core/error.hpp>

#include "throws_with.hpp"

TEST_CASE("a wait ends when its condition is true, and does not evaluate it again") {
    for (const int turns : {1, 2, 999, 1000, 1001, 1010}) {
        int asked = 0;
        impl::wait_until([&] { return ++asked == turns; }, 3600, "never");
        CHECK(asked == turns);
    }
}

TEST_CASE("a wait for a condition that stays false ends at its timeout with its message") {
    int asked = 0;
    const auto never = [&] {
        ++asked;
        return false;
    };
    CHECK(message_of<DeviceError>([&] { impl::wait_until(never, 0, "no answer in ", 0, " seconds"); }) ==
          "no answer in 0 seconds");
    CHECK(asked > 1);
}

TEST_CASE("an exception of the condition is thrown by the wait") {
    const auto fails = []() -> bool { throw InvalidArgument("a question"); };
    CHECK(message_of<InvalidArgument>([&] { impl::wait_until(fails, 1, "never"); }) == "a question");
}

namespace {

/// A clock that advances by `step` per question and by `sleep` per pause.
struct Clock {
    double step, sleep, time = 0;
    int sleeps = 0, yields = 0;
    double now() { return time += step; }
    void yield() { ++yields; }  // in place of a yield, which takes as long as the other processes of a busy machine run
    void pause() {
        ++sleeps;
        time += sleep;
    }
};

}  // namespace

TEST_CASE("a wait of at most 200 us does not sleep; a long one sleeps between any two polls, until its deadline") {
    for (const double step : {50e-9, 500e-9, 2e-6}) {
        Clock clock{.step = step, .sleep = 100e-6};
        impl::wait_until_with(
            clock, [&] { return clock.now() >= 200e-6; }, 1, "never");
        CHECK(clock.sleeps == 0);
        // From turn 1000 on it yields the core.
        CHECK((clock.yields > 0) == (step < 200e-9));
        clock.time = 0;
        CHECK(message_of<DeviceError>([&] {
                  impl::wait_until_with(
                      clock, [&] { return clock.now() < 0; }, 1, "late");
              }) == "late");
        CHECK(clock.time == doctest::Approx(1).epsilon(1e-3));
        CHECK(clock.sleeps * clock.sleep > 0.9);
    }
}
