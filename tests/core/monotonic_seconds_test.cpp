// SPDX-License-Identifier: Apache-2.0
#include <cupola/core/monotonic_seconds.hpp>

#include "../test.hpp"

#include <ctime>

namespace {

double seconds_of(const std::timespec& time) {
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

TEST_CASE("the seconds are those of the monotonic clock") {
    for (int i = 0; i < 100; ++i) {
        std::timespec before{}, after{};
        clock_gettime(CLOCK_MONOTONIC, &before);
        const double now = monotonic_seconds();
        clock_gettime(CLOCK_MONOTONIC, &after);
        CHECK(now >= seconds_of(before));
        CHECK(now <= seconds_of(after));
    }
}

TEST_CASE("a pause of two milliseconds is at least as many seconds long") {
    const std::timespec pause{.tv_sec = 0, .tv_nsec = 2'000'000};
    const double begin = monotonic_seconds();
    clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, nullptr);
    CHECK(monotonic_seconds() - begin >= 0.0019);
}
