// SPDX-License-Identifier: Apache-2.0
#include <cupola/optim/rate_scaling.hpp>

#include "../test.hpp"

#include <cupola/optim/epochs.hpp>

#include "golden/golden.hpp"
#include "throws_with.hpp"

TEST_CASE("the rate scales with the global batch not at all, linearly or with its square root") {
    CHECK(ScaledRate{.global_batch = 512}(0.1)(7) == 0.1);
    CHECK(ScaledRate{.scaling = RateScaling::linear, .global_batch = 512}(0.1)(7) == doctest::Approx(0.4));
    CHECK(ScaledRate{.scaling = RateScaling::square_root, .global_batch = 512}(0.1)(7) == doctest::Approx(0.2));
    CHECK(ScaledRate{.scaling = RateScaling::linear, .global_batch = 64}(0.1)(7) == doctest::Approx(0.05));
    CHECK(ScaledRate{.scaling = RateScaling::linear, .global_batch = 512, .base_batch = 256}(0.1)(7) ==
          doctest::Approx(0.2));
}

TEST_CASE("a warm-up is PyTorch's LinearLR, from the given rate to the scaled one") {
    std::size_t checked = 0;
    for (const golden::Case& golden : golden::cases("schedules")) {
        if (golden.text("kind") != "warm_up") continue;
        CAPTURE(golden.name());
        const auto n = golden.list<double>("numbers"), rates = golden.list<double>("rates");
        const auto steps = golden.list<std::int64_t>("steps");
        const Schedule schedule = ScaledRate{.scaling = RateScaling::linear,
                                             .global_batch = static_cast<std::int64_t>(128 * n[1]),
                                             .warm_up = static_cast<std::int64_t>(n[2])}(n[0]);
        for (std::size_t i = 0; i < steps.size(); ++i) {
            CHECK(schedule(steps[i]) == doctest::Approx(rates[i]).epsilon(1e-12));
        }
        CHECK(schedule(0) == n[0]);
        ++checked;
    }
    CHECK(checked == 2);
}

TEST_CASE("the underlying schedule continues during and after a warm-up") {
    const Schedule schedule =
        ScaledRate{.scaling = RateScaling::linear, .global_batch = 256, .warm_up = 10}(exponential_decay(0.1, 5, 0.5));
    CHECK(schedule(5) == doctest::Approx(0.05 * 1.5));
    CHECK(schedule(10) == doctest::Approx(0.025 * 2));
}

TEST_CASE("the description states the scaling and its factor, also without scaling") {
    CHECK(ScaledRate{.global_batch = 256}.description() ==
          "learning rate not scaled: a global batch of 256 where 128 is the base");
    CHECK(ScaledRate{.scaling = RateScaling::square_root, .global_batch = 512}.description() ==
          "learning rate times 2, square root: a global batch of 512 where 128 is the base");
    CHECK(
        ScaledRate{.scaling = RateScaling::linear, .global_batch = 256, .warm_up = 500}(epochs_decay(0.1, 50'000, 256))
            .description() ==
        "0.1, times 0.1 every 68359 steps: 350 epochs of 50000 images seen, 256 per step; learning rate times 2, linear: a "
        "global batch of 256 where 128 is the base, after a warm-up of 500 steps");
}

TEST_CASE("a scaling has a name on the command line") {
    CHECK(rate_scaling_of("none") == RateScaling::none);
    CHECK(rate_scaling_of("linear") == RateScaling::linear);
    CHECK(rate_scaling_of("square-root") == RateScaling::square_root);
    CHECK(message_of<InvalidArgument>([] { return rate_scaling_of("cube"); }) ==
          "the scaling of a learning rate must be none, linear or square-root, not \"cube\"");
}

TEST_CASE("invalid scalings are rejected") {
    const auto refusal = [](const ScaledRate& scaled) {
        return message_of<InvalidArgument>([&] { return scaled(0.1); });
    };
    CHECK(refusal({.global_batch = 0}) ==
          "a learning rate can only be scaled between batches of 1 or more samples, not from 128 to 0 samples");
    CHECK(refusal({.base_batch = -1}) ==
          "a learning rate can only be scaled between batches of 1 or more samples, not from -1 to 128 samples");
    CHECK(refusal({.scaling = RateScaling::linear, .warm_up = -3}) == "a warm-up must take 0 or more steps, not -3");
    CHECK(refusal({.warm_up = 10}) == "a warm-up of 10 steps has no effect: the learning rate is not scaled");
}
