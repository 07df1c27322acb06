// SPDX-License-Identifier: Apache-2.0
#include <cupola/io/histogram.hpp>

#include "../test.hpp"

#include <cupola/core/philox.hpp>

namespace {

/// Values of both signs over many magnitudes, zeros among them.
std::vector<float> spread_values(std::size_t count) {
    std::vector<float> values;
    for (std::uint64_t i = 0; values.size() < count; ++i) {
        const auto words = RandomStream(1, RngDomain::user, 0, i).words(0);
        const float magnitude = std::ldexp(0.5F + uniform(words[0]), static_cast<int>(words[1] % 12) - 6);
        values.push_back(words[2] % 5 == 0 ? 0.0F : (words[3] % 3 == 0 ? -magnitude : magnitude));
    }
    return values;
}

/// Counts by looking at every bucket for every value.
std::vector<double> counted(const std::vector<float>& values, const std::vector<double>& limits) {
    std::vector<double> counts(limits.size());
    for (const float v : values) {
        std::size_t i = 0;
        while (i + 1 < limits.size() && (v < 0 ? v > limits[i] : !(v < limits[i]))) ++i;
        ++counts[i];
    }
    return counts;
}

}  // namespace

TEST_CASE("a histogram counts every value once, in the bucket whose limits enclose it") {
    for (const std::size_t count : {1U, 3U, 15U, 16U, 17U, 2047U, 2049U, 10001U}) {
        const std::vector<float> values = spread_values(count);
        const Histogram histogram = HistogramMaker{}(values);
        CAPTURE(count);
        CHECK(histogram.count == static_cast<std::int64_t>(count));
        CHECK(std::accumulate(histogram.counts.begin(), histogram.counts.end(), 0.0) == static_cast<double>(count));
        CHECK(histogram.counts == counted(values, histogram.limits));
        CHECK(std::is_sorted(histogram.limits.begin(), histogram.limits.end()));
        CHECK(histogram.counts.front() > 0);
        CHECK(histogram.limits.front() >= histogram.minimum);
        CHECK(histogram.counts.back() > 0);
        CHECK(histogram.limits.back() >= histogram.maximum);
        CHECK(histogram.minimum == static_cast<double>(*std::min_element(values.begin(), values.end())));
        CHECK(histogram.maximum == static_cast<double>(*std::max_element(values.begin(), values.end())));
        CHECK(histogram.zeros == std::count(values.begin(), values.end(), 0.0F));
        const double sum = std::accumulate(values.begin(), values.end(), 0.0);
        const double squares =
            std::inner_product(values.begin(), values.end(), values.begin(), 0.0, std::plus<>{},
                               [](float a, float b) { return static_cast<double>(a) * static_cast<double>(b); });
        CHECK(histogram.sum == doctest::Approx(sum).epsilon(1e-5));
        CHECK(histogram.sum_of_squares == doctest::Approx(squares).epsilon(1e-5));
    }
}

TEST_CASE("buckets are at most an eighth wide, and values near zero share two buckets") {
    const Histogram histogram = HistogramMaker{}(spread_values(100000));
    const double largest = std::max(-histogram.minimum, histogram.maximum);
    CHECK(histogram.limits.size() > 80);
    for (std::size_t i = 1; i < histogram.limits.size(); ++i) {
        const double inner = std::min(std::abs(histogram.limits[i - 1]), std::abs(histogram.limits[i]));
        const double width = histogram.limits[i] - histogram.limits[i - 1];
        if (histogram.counts[i] > 0) CHECK(width <= std::max(inner / 8, largest / 512));
    }
}

static_assert(sizeof(HistogramMaker) < 1024, "a thread with a small stack can make one");

TEST_CASE("a histogram starts empty for each span") {
    HistogramMaker maker;
    (void)maker(spread_values(1000));
    const std::vector<float> ones{1, 1, 1};
    const Histogram histogram = maker(ones);
    CHECK(histogram.count == 3);
    CHECK(std::accumulate(histogram.counts.begin(), histogram.counts.end(), 0.0) == 3.0);
    CHECK(histogram.minimum == 1.0);
    CHECK(histogram.maximum == 1.0);
}

TEST_CASE("non-finite values are counted by kind and do not affect the rest") {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    const std::vector<float> values{1, infinity, -2, std::nanf(""), -infinity, 4, -std::nanf("")};
    const Histogram histogram = HistogramMaker{}(values);
    CHECK(histogram.not_finite == 4);
    CHECK(histogram.count == 3);
    CHECK(histogram.minimum == -2.0);
    CHECK(histogram.maximum == 4.0);
    CHECK(histogram.sum == 3.0);
    CHECK(histogram.sum_of_squares == 21.0);
    CHECK(std::accumulate(histogram.counts.begin(), histogram.counts.end(), 0.0) == 3.0);
    const std::vector<float> none{infinity};
    CHECK(HistogramMaker{}(none).count == 0);
}

TEST_CASE("zeros alone, the largest floats, the smallest, and no value at all") {
    HistogramMaker maker;
    const std::vector<float> zeros(100, 0.0F);
    CHECK(maker(zeros).zeros == 100);
    CHECK(maker(zeros).counts.back() == 100.0);
    constexpr float largest = std::numeric_limits<float>::max(), smallest = std::numeric_limits<float>::denorm_min();
    const std::vector<float> extremes{largest, -largest, smallest, -smallest, -0.0F};
    const Histogram histogram = maker(extremes);
    CHECK(std::accumulate(histogram.counts.begin(), histogram.counts.end(), 0.0) == 5.0);
    CHECK(histogram.limits.back() == static_cast<double>(largest));
    CHECK(histogram.zeros == 1);
    CHECK(maker({}).count == 0);
    CHECK(maker({}).limits.empty());
}
