// SPDX-License-Identifier: Apache-2.0
#include <cupola/ops/square_root.hpp>

#include "../test.hpp"

TEST_CASE("roots are precise to the last bits of float, over all normal numbers") {
    double worst = 0, worst_inverse = 0;
    // Every 4099th float from the least normal one to the largest.
    for (std::uint32_t bits = 0x00800000; bits < 0x7F800000; bits += 4099) {
        const float x = std::bit_cast<float>(bits);
        const double root = std::sqrt(static_cast<double>(x));
        worst = std::max(worst, std::abs(static_cast<double>(square_root(x)) / root - 1));
        worst_inverse = std::max(worst_inverse, std::abs(static_cast<double>(inverse_square_root(x)) * root - 1));
    }
    CHECK(worst < 1.2e-7);
    CHECK(worst_inverse < 2.4e-7);
}

TEST_CASE("the root of 0 is 0, and its inverse is finite") {
    CHECK(square_root(0.0F) == 0.0F);
    CHECK(std::isfinite(inverse_square_root(0.0F)));
}
