// SPDX-License-Identifier: Apache-2.0
#include <cupola/optim/schedule.hpp>

#include "../test.hpp"

#include <cupola/optim/rate_scaling.hpp>

#include "golden/golden.hpp"

namespace {

Schedule schedule_of(const golden::Case& golden) {
    const auto n = golden.list<double>("numbers");
    const std::string_view kind = golden.text("kind");
    if (kind == "cosine") return cosine(n[0], static_cast<std::int64_t>(n[2]), n[1]);
    if (kind == "piecewise") {
        const std::size_t boundaries = n.size() / 2;
        std::vector<std::int64_t> at;
        for (std::size_t i = 0; i < boundaries; ++i) at.push_back(static_cast<std::int64_t>(n[i]));
        return piecewise(at, {n.begin() + static_cast<std::ptrdiff_t>(boundaries), n.end()});
    }
    if (kind == "warm_up") {
        return ScaledRate{.scaling = RateScaling::linear,
                          .global_batch = static_cast<std::int64_t>(128 * n[1]),
                          .warm_up = static_cast<std::int64_t>(n[2])}(n[0]);
    }
    return exponential_decay(n[0], static_cast<std::int64_t>(n[2]), n[1]);
}

}  // namespace

TEST_CASE("rates are PyTorch's and the tutorial's, on both sides of each boundary") {
    REQUIRE(golden::cases("schedules").size() >= 4);
    for (const golden::Case& golden : golden::cases("schedules")) {
        CAPTURE(golden.name());
        const Schedule schedule = schedule_of(golden);
        const auto steps = golden.list<std::int64_t>("steps");
        const auto rates = golden.list<double>("rates");
        for (std::size_t i = 0; i < steps.size(); ++i) {
            CAPTURE(steps[i]);
            CHECK(schedule(steps[i]) == doctest::Approx(rates[i]).epsilon(1e-12));
        }
        CHECK_FALSE(schedule.description().empty());
    }
}

TEST_CASE("any function of the step is a schedule, and a number is a constant one") {
    CHECK(Schedule(0.25)(1'000'000) == 0.25);
    CHECK(Schedule([](std::int64_t step) { return 1.0 / static_cast<double>(step + 1); })(3) == 0.25);
    CHECK(Schedule(0.25).described("a quarter")(3) == 0.25);
    CHECK(Schedule(0.25).described("a quarter").description() == "a quarter");
    CHECK(exponential_decay(1.0, 10, 0.5, false)(5) == doctest::Approx(0.7071067811865476));
}

TEST_CASE("a stepwise decay and a smooth one have different descriptions, which a checkpoint compares") {
    CHECK(exponential_decay(0.1, 10, 0.5).description() == "0.1, times 0.5 every 10 steps");
    CHECK(exponential_decay(0.1, 10, 0.5, false).description() == "0.1, times 0.5 every 10 steps, smoothly");
}

TEST_CASE("invalid schedules are rejected") {
    CHECK_THROWS_WITH_AS(Schedule(-0.5), "a learning rate must be at least 0, not -0.5", InvalidArgument);
    CHECK_THROWS_AS(Schedule{std::numeric_limits<double>::quiet_NaN()}, InvalidArgument);
    CHECK_THROWS_WITH_AS(exponential_decay(0.1, 0, 0.1), "a schedule must decay every 1 or more steps, not every 0",
                         InvalidArgument);
    CHECK_THROWS_WITH_AS(exponential_decay(0.1, 10, -0.5), "the factor of a decay must be at least 0, not -0.5",
                         InvalidArgument);
    CHECK_THROWS_WITH_AS(exponential_decay(0.1, 10, std::numeric_limits<double>::quiet_NaN()),
                         "the factor of a decay must be at least 0, not nan", InvalidArgument);
    CHECK_THROWS_WITH_AS(exponential_decay(0.1, 10, std::numeric_limits<double>::infinity()),
                         "the factor of a decay must be at least 0, not inf", InvalidArgument);
    CHECK(exponential_decay(0.1, 10, 0)(10) == 0);
    CHECK_THROWS_AS(piecewise({10}, {0.1}), InvalidArgument);
    CHECK_THROWS_AS(piecewise({10, 10}, {0.1, 0.01, 0.001}), InvalidArgument);
    CHECK_THROWS_AS(cosine(0.1, 0), InvalidArgument);
    CHECK_THROWS_WITH_AS(exponential_decay(-1, 10, 0.1), "a learning rate must be at least 0, not -1", InvalidArgument);
    CHECK_THROWS_WITH_AS(piecewise({10}, {0.1, -2}), "a learning rate must be at least 0, not -2", InvalidArgument);
    CHECK_THROWS_WITH_AS(cosine(0.1, 10, -3), "a learning rate must be at least 0, not -3", InvalidArgument);
    CHECK_THROWS_AS(cosine(std::numeric_limits<double>::infinity(), 10), InvalidArgument);
}
