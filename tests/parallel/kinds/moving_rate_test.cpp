// SPDX-License-Identifier: Apache-2.0
#include <cupola/parallel/kinds/moving_rate.hpp>

#include "test.hpp"

#include "throws_with.hpp"

using namespace cupola;

static_assert(MovingRate(0.225).of(4, 16) == 0.225);
static_assert(MovingRate::paper(0.5).of(4, 16) == 0.125);
static_assert(MovingRate::tensorflow(0.5).of(4, 16) == 0.0078125);
static_assert(MovingRate::tensorflow(0.5).of(4, 1) == MovingRate::paper(0.5).of(4, 1));
static_assert(synchronous_moving_rate_bound(1) == 1.0 && synchronous_moving_rate_bound(3) == 0.5);
static_assert(asynchronous_moving_rate_bound() == 1.0);

TEST_CASE("a moving rate is the number itself, the paper's share of a replica, or TensorFlow's of a replica and step") {
    CHECK(MovingRate::paper(0.9).of(4, 16) == doctest::Approx(0.225).epsilon(1e-15));
    CHECK(MovingRate::tensorflow(0.9).of(4, 16) == doctest::Approx(0.0140625).epsilon(1e-15));
    CHECK(MovingRate::tensorflow(0.9).of(4, 64) == doctest::Approx(0.003515625).epsilon(1e-15));
    CHECK(MovingRate(0.225).description() == "moving rate 0.225");
    CHECK(MovingRate::paper(0.9).description() == "moving rate 0.9 / replicas");
    CHECK(MovingRate::tensorflow(0.9).description() == "moving rate 0.9 / replicas / period");
    const MovingRate assigned = 0.5;
    CHECK(assigned.of(7, 3) == 0.5);
}

TEST_CASE("a moving rate of 0 or below, or that is not finite, is rejected in every convention") {
    constexpr double nan = std::numeric_limits<double>::quiet_NaN();
    const auto refusal = [](const MovingRate& rate) { return message_of<InvalidArgument>([&] { rate.check(); }); };
    CHECK(refusal(0.0) == "the moving rate must be more than 0, not 0");
    CHECK(refusal(-0.5) == "the moving rate must be more than 0, not -0.5");
    CHECK(refusal(MovingRate::paper(nan)) == "the moving rate must be more than 0, not nan");
    CHECK(refusal(MovingRate::tensorflow(1e39)) == "the moving rate must be more than 0, not 1e+39");
    CHECK(refusal(1e-50) == "the moving rate must be more than 0, not 1e-50");  // 0 as a float
    CHECK(refusal(MovingRate::paper(0.9)) == "(no exception)");
    CHECK(refusal(1.5) == "(no exception)");
}

TEST_CASE("a moving rate at its bound or above is a warning with the bound, and below it none") {
    CHECK(synchronous_moving_rate_warning(MovingRate::paper(0.9), 4, 16).empty());
    CHECK(synchronous_moving_rate_warning(0.3999, 4, 1).empty());
    CHECK(synchronous_moving_rate_warning(0.4, 4, 1) ==
          "the moving rate 0.4 is not below 0.4 = 2 / (4 replicas + 1): elastic averaging is not stable");
    CHECK(synchronous_moving_rate_warning(MovingRate::paper(3), 4, 16) ==
          "the moving rate 0.75 is not below 0.4 = 2 / (4 replicas + 1): elastic averaging is not stable");
    CHECK(synchronous_moving_rate_warning(MovingRate::tensorflow(3), 4, 16).empty());
    CHECK(asynchronous_moving_rate_warning(0.75, 4, 16).empty());
    CHECK(asynchronous_moving_rate_warning(MovingRate::paper(4), 4, 16) ==
          "the moving rate 1 is not below 1: asynchronous elastic averaging is not stable");
}
