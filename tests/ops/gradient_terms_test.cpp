// SPDX-License-Identifier: Apache-2.0
#include <cupola/ops/gradient_terms.hpp>

#include "../test.hpp"

TEST_CASE("without terms a gradient is unchanged, to the bit") {
    constexpr GradientAt g_at{GradientTerms{}};
    static_assert(g_at(1.5F, 1e30F) == 1.5F);
    CHECK(g_at(1e38F, -3.0F) == 1e38F);
    CHECK(g_at(-1e-30F, 3.0F) == -1e-30F);
}

TEST_CASE("the regulariser's part is scaled and clipped with the gradient, the optimiser's decay is not") {
    constexpr GradientAt scaled{GradientTerms{.l2 = 0.5F, .scale = 0.25F}};
    static_assert(scaled(2.0F, 4.0F) == 1.0F);
    constexpr GradientAt clipped{GradientTerms{.l2 = 0.5F, .scale = 0.25F, .clip = 0.75F, .weight_decay = 2.0F}};
    static_assert(clipped(2.0F, 4.0F) == 8.75F);
    static_assert(clipped(-20.0F, -4.0F) == -8.75F);
    static_assert(clipped(0.0F, 0.0F) == 0.0F);
}

TEST_CASE("a NaN stays a NaN, and infinity is clipped") {
    constexpr GradientAt clipped{GradientTerms{.clip = 1.0F}};
    CHECK(std::isnan(clipped(std::numeric_limits<float>::quiet_NaN(), 0.0F)));
    CHECK(clipped(std::numeric_limits<float>::infinity(), 0.0F) == 1.0F);
    CHECK(clipped(-std::numeric_limits<float>::infinity(), 0.0F) == -1.0F);
}

TEST_CASE("a gradient that is squared has a magnitude of at most 1e19") {
    constexpr float largest = std::numeric_limits<float>::max(), inf = std::numeric_limits<float>::infinity();
    constexpr SquareLimit squarable{};
    for (const float g : {0.0F, -0.0F, 1e-40F, 1.5F, -9.9e18F, 1e19F, -1e19F}) CHECK(squarable(g) == g);
    for (const float g : {1.1e19F, 1.9e19F, largest, inf}) {
        CHECK(squarable(g) == 1e19F);
        CHECK(squarable(-g) == -1e19F);
    }
    CHECK(std::isnan(squarable(std::numeric_limits<float>::quiet_NaN())));
}
