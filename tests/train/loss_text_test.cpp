// SPDX-License-Identifier: Apache-2.0
#include <cupola/train/loss_text.hpp>

#include "../test.hpp"

#include "comma_locale.hpp"

TEST_CASE("a loss has two decimals from 1 on, and three significant digits below") {
    CHECK(loss_text(4.676) == "4.68");
    CHECK(loss_text(123.456) == "123.46");
    CHECK(loss_text(1) == "1.00");
    CHECK(loss_text(0.5) == "0.500");
    CHECK(loss_text(0.012345) == "0.0123");
    CHECK(loss_text(0.000123) == "0.000123");
    CHECK(loss_text(0.0001) == "0.000100");
    CHECK(loss_text(-0.0456) == "-0.0456");
    CHECK(loss_text(0) == "0.00");
}

TEST_CASE("very small and very large losses are in scientific notation") {
    CHECK(loss_text(0.0000999) == "9.99e-05");
    CHECK(loss_text(-1.2345e-7) == "-1.23e-07");
    CHECK(loss_text(std::numeric_limits<double>::denorm_min()) == "4.94e-324");
    CHECK(loss_text(9.9e11) == "990000000000.00");
    CHECK(loss_text(1.5e12) == "1.50e+12");
    CHECK(loss_text(std::numeric_limits<double>::max(), 4) == "1.80e+308");
}

TEST_CASE("more decimals are written if requested") {
    CHECK(loss_text(2.5, 4) == "2.5000");
    CHECK(loss_text(0.25, 4) == "0.2500");
    CHECK(loss_text(0.00123456, 4) == "0.00123");
}

TEST_CASE("a loss that is not finite is named") {
    CHECK(loss_text(std::numeric_limits<double>::quiet_NaN()) == "nan");
    CHECK(loss_text(-std::numeric_limits<double>::quiet_NaN()) == "nan");
    CHECK(loss_text(std::numeric_limits<double>::infinity()) == "inf");
    CHECK(loss_text(-std::numeric_limits<double>::infinity()) == "-inf");
}

TEST_CASE("a locale with a decimal comma changes no loss") {
    const CommaLocale comma;
    CHECK(loss_text(0.012345) == "0.0123");
    CHECK(loss_text(1234.5) == "1234.50");
    CHECK(loss_text(-1.2345e-7) == "-1.23e-07");
}
