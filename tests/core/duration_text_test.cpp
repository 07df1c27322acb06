// SPDX-License-Identifier: Apache-2.0
#include <cupola/core/duration_text.hpp>

#include "../test.hpp"

TEST_CASE("a duration is hours, minutes and seconds, rounded down") {
    CHECK(duration_text(0) == "0:00:00");
    CHECK(duration_text(59.999) == "0:00:59");
    CHECK(duration_text(60) == "0:01:00");
    CHECK(duration_text(3599) == "0:59:59");
    CHECK(duration_text(3723.5) == "1:02:03");
    CHECK(duration_text(360'000) == "100:00:00");
}

TEST_CASE("a number that is not a duration is printed without digits") {
    for (const double none :
         {-1.0, 1e300, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()})
        CHECK(duration_text(none) == "-:--:--");
}
