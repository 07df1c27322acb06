// SPDX-License-Identifier: Apache-2.0
//
// Comparison of a result with the oracle, and the random inputs of the tests. The plain loops beside this file compute in
// double from their arguments alone: they include nothing of Cupola, so an error in Cupola cannot affect them. Layouts
// are Cupola's: activations batch x height x width x channels, convolution weights [out, height, width, in], linear
// weights [out, in].
#pragma once

#include <random>
#include <ranges>

#include "../standard.hpp"

namespace reference {

using Doubles = std::vector<double>;
using Floats = std::vector<float>;

/// The tolerance of a result in float: the norm of the difference over the norm of the reference.
inline constexpr double tolerance = 1e-5;

[[nodiscard]] inline Doubles widen(std::span<const float> values) { return {values.begin(), values.end()}; }

/// The norm of the difference over the norm of the reference; the norm of the result itself where the reference is
/// zero; NaN if the result holds one (a NaN is below no tolerance) or has another size.
[[nodiscard]] inline double distance(std::span<const float> result, std::span<const double> expected) {
    if (result.size() != expected.size()) return std::numeric_limits<double>::quiet_NaN();
    double difference = 0, norm = 0;
    for (std::size_t i = 0; i < result.size(); ++i) {
        const double d = static_cast<double>(result[i]) - expected[i];
        difference += d * d;
        norm += expected[i] * expected[i];
    }
    return norm == 0 ? std::sqrt(difference) : std::sqrt(difference / norm);
}

/// The same over the norm of `scale`: for what a ReLU may leave next to nothing of.
[[nodiscard]] inline double distance_at(std::span<const double> scale, std::span<const float> result,
                                        std::span<const double> expected) {
    double norm = 0, left = 0;
    for (const double value : scale) norm += value * value;
    for (const double value : expected) left += value * value;
    const double relative = distance(result, expected);
    return left == 0 || norm == 0 ? relative : relative * std::sqrt(left / norm);
}

[[nodiscard]] inline double distance(std::span<const float> result, std::span<const float> expected) {
    return distance(result, widen(expected));
}

/// The rounding error of a sum in float, relative to the sum of the magnitudes of its terms. Each product and each addition rounds by
/// at most 2^-24 of that: 8 terms never pass this bound. The roundings of n terms of both signs have a deviation of at
/// most 0.6 times 2^-24, whatever n is; terms of one sign do not cancel.
inline constexpr double rounding_of_sums = 8 * 0x1p-24;
/// Half of the smallest Float16: what a result next to zero is rounded by.
inline constexpr double rounding_at_zero = 0x1p-25;
/// More sums than these do not all cancel by chance: 9 independent ones have a norm of 1/200 of the usual in one of
/// 10^19 runs.
inline constexpr std::size_t few_sums = 8;

/// The magnitudes of factors, to compute sums of terms' magnitudes from.
[[nodiscard]] inline Floats magnitudes(Floats values) {
    for (float& value : values) value = std::abs(value);
    return values;
}

/// `distance_at` of sums that may cancel, less what rounding may have changed in them: their error is small beside their
/// terms, but not beside themselves. `terms` are the sums of the terms' magnitudes, `rounding` is relative to those.
[[nodiscard]] inline double distance_of_sums_at(std::span<const double> scale, std::span<const float> result,
                                                std::span<const double> expected, std::span<const double> terms,
                                                double rounding = rounding_of_sums) {
    double norm = 0, changed = 0;
    for (const double value : scale) norm += value * value;
    for (const double sum : terms) changed += std::pow(rounding * sum + rounding_at_zero, 2);
    const double apart = distance_at(scale, result, expected),
                 beyond = apart - std::sqrt(norm == 0 ? changed : changed / norm);
    return beyond < 0 ? 0 : beyond;
}

/// The same of sums in float where so few are not zero that all may cancel by chance. `terms` computes those of the
/// terms' magnitudes.
template <class Terms>
    requires requires(Terms terms) { Doubles(terms()); }
[[nodiscard]] double distance_of_sums_at(std::span<const double> scale, std::span<const float> result,
                                         std::span<const double> expected, Terms terms) {
    const std::ptrdiff_t zeros = std::ranges::count(expected, 0.0);
    if (expected.size() > few_sums + static_cast<std::size_t>(zeros)) return distance_at(scale, result, expected);
    return distance_of_sums_at(scale, result, expected, std::span<const double>(terms()));
}

/// The same of what `sums` computes of its factors.
template <class Sums, class... Factors>
[[nodiscard]] double distance_of_sums(std::span<const float> result, const Sums& sums, const Factors&... factors) {
    const Doubles expected = sums(factors...);
    return distance_of_sums_at(expected, result, expected, [&] { return sums(magnitudes(factors)...); });
}

/// An oracle's sums as functions of their factors.
template <class Oracle>
[[nodiscard]] auto forward_of(const Oracle& oracle) {
    return [&oracle](const auto&... factors) { return oracle.forward(factors...); };
}
template <class Oracle>
[[nodiscard]] auto input_gradient_of(const Oracle& oracle) {
    return [&oracle](const auto&... factors) { return oracle.input_gradient(factors...); };
}
template <class Oracle>
[[nodiscard]] auto weight_gradient_of(const Oracle& oracle) {
    return [&oracle](const auto&... factors) { return oracle.weight_gradient(factors...); };
}
template <class Oracle>
[[nodiscard]] auto bias_gradient_of(const Oracle& oracle) {
    return [&oracle](const auto&... factors) { return oracle.bias_gradient(factors...); };
}
/// The sums with their first factor added.
template <class Sums>
[[nodiscard]] auto added_to_first(Sums sums) {
    return [sums](const Floats& first, const auto&... factors) {
        Doubles result = sums(factors...);
        for (std::size_t i = 0; i < result.size(); ++i) result[i] += static_cast<double>(first[i]);
        return result;
    };
}

/// Equal bit for bit, so that a NaN equals itself and -0 is not 0.
template <std::ranges::contiguous_range A, std::ranges::contiguous_range B>
[[nodiscard]] bool same_bits(const A& a, const B& b) {
    return std::size(a) == std::size(b) &&
           (std::empty(a) || std::memcmp(std::data(a), std::data(b), std::size(a) * sizeof(*std::data(a))) == 0);
}

/// Equal bit for bit, or both zero: without AVX2, oneDNN's fused ReLU writes -0 where others write 0.
[[nodiscard]] inline bool same_bits_but_zeros_sign(Floats a, Floats b) {
    for (Floats* values : {&a, &b}) {
        for (float& value : *values) value = value == 0.0F ? 0.0F : value;
    }
    return same_bits(a, b);
}

/// A seed that is fresh in each run, or the one in CUPOLA_TEST_SEED: the one that a failed check printed.
[[nodiscard]] inline std::uint64_t fresh_seed() {
    if (const char* given = std::getenv("CUPOLA_TEST_SEED")) return std::strtoull(given, nullptr, 10);
    std::random_device device;
    return device();
}

/// Random numbers for inputs.
class Random {
public:
    explicit Random(std::uint64_t seed) : engine_(seed) {}

    [[nodiscard]] Floats normal(std::int64_t count, double deviation = 1.0, double mean = 0.0) {
        std::normal_distribution<double> distribution(mean, deviation);
        Floats result(static_cast<std::size_t>(count));
        for (float& value : result) value = static_cast<float>(distribution(engine_));
        return result;
    }
    /// Few different values, half of them zero: what comes out of a ReLU, with many ties.
    [[nodiscard]] Floats ties(std::int64_t count) {
        std::uniform_int_distribution<int> distribution(-3, 3);
        Floats result(static_cast<std::size_t>(count));
        for (float& value : result) value = static_cast<float>(std::max(0, distribution(engine_)));
        return result;
    }
    [[nodiscard]] std::vector<std::int32_t> labels(std::int64_t count, std::int32_t classes) {
        std::uniform_int_distribution<std::int32_t> distribution(0, classes - 1);
        std::vector<std::int32_t> result(static_cast<std::size_t>(count));
        for (std::int32_t& label : result) label = distribution(engine_);
        return result;
    }

private:
    std::mt19937_64 engine_;
};

/// Normal random numbers of an element type, and one of them in double.
template <class T>
[[nodiscard]] std::vector<T> values(std::int64_t count, std::uint64_t seed) {
    std::vector<T> result;
    for (const float each : Random(seed).normal(count)) result.push_back(static_cast<T>(each));
    return result;
}
template <class T>
[[nodiscard]] double at(const std::vector<T>& of, std::int64_t i) {
    return static_cast<double>(static_cast<float>(of[static_cast<std::size_t>(i)]));
}

}  // namespace reference
