// SPDX-License-Identifier: Apache-2.0
//
// How parameters start: each distribution's bounds and moments, and that an element is a function of the seed, the
// parameter and its place alone.
#include "../test.hpp"

#include <cupola/layers/initializer.hpp>

namespace {

constexpr std::size_t count = 200'000;

std::vector<float> draw(const Initializer& initializer, std::uint64_t seed = 1, std::uint32_t parameter = 0,
                        std::int64_t fan_in = 75, std::int64_t fan_out = 1600, std::size_t size = count) {
    std::vector<float> values(size, std::nanf(""));
    initialize(values, initializer, fan_in, fan_out, seed, parameter);
    return values;
}

struct Moments {
    double mean = 0, deviation = 0, largest = 0;
};

Moments moments(const std::vector<float>& values) {
    Moments m;
    for (const float value : values) m.mean += static_cast<double>(value);
    m.mean /= static_cast<double>(values.size());
    for (const float value : values) {
        const double d = static_cast<double>(value) - m.mean;
        m.deviation += d * d;
        m.largest = std::max(m.largest, std::abs(static_cast<double>(value)));
    }
    m.deviation = std::sqrt(m.deviation / static_cast<double>(values.size()));
    return m;
}

/// Six deviations of the estimate of a mean, of numbers with this deviation.
double mean_bound(double deviation) { return 6 * deviation / std::sqrt(static_cast<double>(count)); }

static_assert(constant(0.1) == Initializer{Distribution::constant, 0.1});
static_assert(constant(0.1) != constant(0.2) && normal(0.1) != truncated_normal(0.1));
static_assert(Initializer{} == constant(0.0));

}  // namespace

TEST_CASE("a constant initialiser gives the same value everywhere") {
    CHECK(draw(constant(0.1)) == std::vector<float>(count, 0.1F));
    CHECK(draw(constant(0.0)) == std::vector<float>(count, 0.0F));
}

TEST_CASE("uniform values lie within the limit and fill it evenly") {
    const std::vector<float> values = draw(uniform_within(0.3));
    const Moments m = moments(values);
    CHECK(m.largest <= 0.3F);
    CHECK(m.largest > 0.299);
    CHECK(std::abs(m.mean) < mean_bound(0.3 / std::sqrt(3)));
    CHECK(m.deviation == doctest::Approx(0.3 / std::sqrt(3)).epsilon(0.01));
}

TEST_CASE("normal values have the given standard deviation") {
    const Moments m = moments(draw(normal(0.2)));
    CHECK(std::abs(m.mean) < mean_bound(0.2));
    CHECK(m.deviation == doctest::Approx(0.2).epsilon(0.01));
    CHECK(m.largest > 3 * 0.2);
}

TEST_CASE("truncated normal values stay within two standard deviations, and have 0.8796 of the given deviation") {
    const std::vector<float> values = draw(truncated_normal(0.05));
    const Moments m = moments(values);
    CHECK(m.largest <= 2 * 0.05 + 1e-9);
    CHECK(m.largest > 1.99 * 0.05);
    CHECK(std::abs(m.mean) < mean_bound(0.05 * 0.8796));
    CHECK(m.deviation == doctest::Approx(0.05 * 0.8796).epsilon(0.01));
    // Drawn again, not cut: no pile of values at the edge.
    CHECK(std::count_if(values.begin(), values.end(), [](float v) { return std::abs(v) > 0.0999F; }) < 200);
}

TEST_CASE("He's values have the standard deviation sqrt(2 / fan in)") {
    const Moments m = moments(draw(he_normal(), 1, 0, 75, 1600));
    CHECK(m.deviation == doctest::Approx(std::sqrt(2.0 / 75)).epsilon(0.01));
    CHECK(std::abs(m.mean) < mean_bound(std::sqrt(2.0 / 75)));
}

TEST_CASE("He's values by fan out have the standard deviation sqrt(2 / fan out)") {
    const Moments m = moments(draw(he_normal_fan_out(), 1, 0, 75, 1600));
    CHECK(m.deviation == doctest::Approx(std::sqrt(2.0 / 1600)).epsilon(0.01));
    CHECK(std::abs(m.mean) < mean_bound(std::sqrt(2.0 / 1600)));
    CHECK(m.largest > 3 * std::sqrt(2.0 / 1600));
}

TEST_CASE("values that are uniform by fan in lie within 1 / sqrt(fan in)") {
    const double limit = std::sqrt(1.0 / 75);
    const Moments m = moments(draw(fan_in_uniform(), 1, 0, 75, 1600));
    CHECK(m.largest <= limit + 1e-9);
    CHECK(m.largest > 0.999 * limit);
    CHECK(m.deviation == doctest::Approx(limit / std::sqrt(3)).epsilon(0.01));
}

TEST_CASE("Glorot's values are uniform within sqrt(6 / (fan in + fan out))") {
    const double limit = std::sqrt(6.0 / (75 + 1600));
    const Moments m = moments(draw(glorot_uniform(), 1, 0, 75, 1600));
    CHECK(m.largest <= limit + 1e-9);
    CHECK(m.largest > 0.999 * limit);
    CHECK(m.deviation == doctest::Approx(limit / std::sqrt(3)).epsilon(0.01));
}

TEST_CASE("an element depends only on the seed, the parameter and its position") {
    for (const Initializer& initializer : {uniform_within(1.0), normal(1.0), truncated_normal(1.0), glorot_uniform(),
                                           he_normal(), he_normal_fan_out(), fan_in_uniform()}) {
        CAPTURE(static_cast<int>(initializer.distribution));
        const std::vector<float> values = draw(initializer, 1, 0, 9, 9, 1000);
        CHECK(draw(initializer, 1, 0, 9, 9, 1000) == values);
        const std::vector<float> shorter = draw(initializer, 1, 0, 9, 9, 100);
        CHECK(std::equal(shorter.begin(), shorter.end(), values.begin()));

        const auto equal_places = [&](const std::vector<float>& other) {
            int alike = 0;
            for (std::size_t i = 0; i < values.size(); ++i) alike += values[i] == other[i] ? 1 : 0;
            return alike;
        };
        CHECK(equal_places(draw(initializer, 2, 0, 9, 9, 1000)) < 5);
        CHECK(equal_places(draw(initializer, 1, 1, 9, 9, 1000)) < 5);
    }
}

TEST_CASE("neighbouring elements and parameters are uncorrelated") {
    const std::vector<float> a = draw(normal(1.0), 1, 0), b = draw(normal(1.0), 1, 1);
    double along = 0, across = 0;
    for (std::size_t i = 0; i + 1 < count; ++i) {
        along += static_cast<double>(a[i]) * static_cast<double>(a[i + 1]);
        across += static_cast<double>(a[i]) * static_cast<double>(b[i]);
    }
    const double bound = 6 * std::sqrt(static_cast<double>(count));
    CHECK(std::abs(along) < bound);
    CHECK(std::abs(across) < bound);
}
