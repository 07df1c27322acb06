// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/net/stopwatch.hpp
#include <cupola/net/step_times.hpp>

#include "../test.hpp"

namespace {

/// Lets the clock go on.
void wait(double seconds) {
    const double begun = monotonic_seconds();
    while (monotonic_seconds() - begun < seconds) {
    }
}

}  // namespace

TEST_CASE("a stopwatch adds its lifetime to its own entry of the current step only") {
    StepTimes times(3, 2);
    for (int i = 0; i < 2; ++i) {
        const Stopwatch watch(&times, Direction::backward, 1);
        wait(0.001);
    }
    times.end_step(0.5);
    {
        const Stopwatch watch(&times, StepPart::loss);
        wait(0.001);
    }
    times.end_step(0.25);

    CHECK(times.steps() == 2);
    CHECK(times.seconds(0) == 0.5);
    CHECK(times.seconds(1) == 0.25);
    CHECK(times.at(0, Direction::backward, 1).calls == 2);
    CHECK(times.at(0, Direction::backward, 1).seconds >= 0.002);
    CHECK(times.at(1, StepPart::loss).calls == 1);
    CHECK(times.at(1, StepPart::loss).seconds >= 0.001);
    std::int64_t calls = 0;
    for (std::size_t step = 0; step < 2; ++step) {
        for (std::size_t node = 0; node < 3; ++node) {
            calls += times.at(step, Direction::forward, node).calls + times.at(step, Direction::backward, node).calls;
        }
        for (std::size_t part = 0; part < step_parts; ++part)
            calls += times.at(step, static_cast<StepPart>(part)).calls;
    }
    CHECK(calls == 3);
}

TEST_CASE("with marks, a stopwatch marks the begin and end of its part, and adds no time itself") {
    struct Marks final : StepMarks {
        std::vector<std::size_t> begun, ended;
        void begin(std::size_t entry) override { begun.push_back(entry); }
        void end(std::size_t entry) override { ended.push_back(entry); }
    } marks;
    StepTimes times(3, 1);
    times.mark(&marks);
    {
        const Stopwatch node(&times, Direction::backward, 1);
        const Stopwatch loss(&times, StepPart::loss);
        CHECK(marks.ended.empty());
    }
    times.mark(nullptr);
    REQUIRE(marks.begun.size() == 2);
    CHECK(marks.ended == std::vector<std::size_t>{marks.begun[1], marks.begun[0]});
    CHECK(times.at(0, Direction::backward, 1).calls == 0);
    times.add(marks.begun[0], 0.25);
    times.add(marks.begun[0], 0.5);
    times.add(marks.begun[1], 2);
    CHECK(times.at(0, Direction::backward, 1).calls == 2);
    CHECK(times.at(0, Direction::backward, 1).seconds == 0.75);
    CHECK(times.at(0, StepPart::loss).seconds == 2);
}

TEST_CASE("the work of a node is kept per direction and sample") {
    StepTimes times(3, 1);
    times.set_work(times.entry(Direction::backward, 1), {.operations = 12, .cached_bytes = 8}, 4);
    CHECK(times.work(Direction::backward, 1).operations == 3);
    CHECK(times.work(Direction::backward, 1).cached_bytes == 2);
    CHECK(times.work(Direction::forward, 1).operations == 0);
    CHECK(times.work(Direction::backward, 2).operations == 0);
}

TEST_CASE("a stopwatch without times does nothing") {
    const Stopwatch part(nullptr, StepPart::data), node(nullptr, Direction::forward, 7);
}

static_assert(static_cast<std::size_t>(StepPart::statistics) + 1 == step_parts, "every part has an entry");
