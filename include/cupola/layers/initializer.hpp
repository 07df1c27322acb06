// SPDX-License-Identifier: Apache-2.0
//
// The initial values of parameters. An initialiser is a template argument of a layer, `Conv2d<64, 5,
// weights(truncated_normal(0.05))>`, or an entry of a list passed at construction.
//
// Element i of a parameter is a function of the seed, the parameter's number in the network and i alone.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include <cupola/core/fixed_string.hpp>
#include <cupola/core/philox.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

enum class Distribution : std::uint8_t {
    constant,
    uniform,
    normal,
    truncated_normal,
    glorot_uniform,
    he_normal,
    he_normal_fan_out,
    fan_in_uniform
};

/// A distribution and its one argument.
struct Initializer {
    Distribution distribution = Distribution::constant;
    Number value = 0.0;
    bool operator==(const Initializer&) const = default;
};

[[nodiscard]] constexpr Initializer constant(double value) { return {Distribution::constant, value}; }
/// Uniform in [-limit, limit).
[[nodiscard]] constexpr Initializer uniform_within(double limit) { return {Distribution::uniform, limit}; }
[[nodiscard]] constexpr Initializer normal(double deviation) { return {Distribution::normal, deviation}; }
/// Normal with this standard deviation; values beyond two standard deviations are drawn again (as in TensorFlow). The
/// resulting standard deviation is 0.8796 of the argument.
[[nodiscard]] constexpr Initializer truncated_normal(double deviation) {
    return {Distribution::truncated_normal, deviation};
}
/// Uniform in [-limit, limit) with limit = sqrt(6 / (fan in + fan out)) (Glorot, Bengio 2010).
[[nodiscard]] constexpr Initializer glorot_uniform() { return {Distribution::glorot_uniform, 0.0}; }
/// Normal with standard deviation sqrt(2 / fan in) (He et al. 2015).
[[nodiscard]] constexpr Initializer he_normal() { return {Distribution::he_normal, 0.0}; }
/// The same with fan out in place of fan in: PyTorch's kaiming_normal_(mode="fan_out", nonlinearity="relu").
[[nodiscard]] constexpr Initializer he_normal_fan_out() { return {Distribution::he_normal_fan_out, 0.0}; }
/// Uniform in [-limit, limit) with limit = 1 / sqrt(fan in): PyTorch's default for the weight and the bias of a linear
/// layer or a convolution.
[[nodiscard]] constexpr Initializer fan_in_uniform() { return {Distribution::fan_in_uniform, 0.0}; }

/// The error in an initialiser, completing "layer 3 (Linear<10>) ..."; null if there is none.
[[nodiscard]] constexpr const char* problem_of(const Initializer& initializer) {
    const double value = initializer.value;
    if (!Number(value).is_finite_float()) return "has an initialiser with a value that is not a finite float";
    if (initializer.distribution != Distribution::constant && value < 0)
        return "has an initialiser with a deviation or a limit below 0";
    return nullptr;
}

/// Writes the initial values of parameter number `parameter` of the network.
void initialize(std::span<float> values, const Initializer& initializer, std::int64_t fan_in, std::int64_t fan_out,
                std::uint64_t seed, std::uint32_t parameter);

inline void initialize(std::span<float> values, const Initializer& initializer, std::int64_t fan_in,
                       std::int64_t fan_out, std::uint64_t seed, std::uint32_t parameter) {
    const double value = initializer.value;
    for (std::size_t i = 0; i < values.size(); ++i) {
        const RandomStream stream(seed, RngDomain::initialization, parameter, i);
        const auto signed_unit = [&] { return 2.0 * static_cast<double>(uniform(stream.words(0)[0])) - 1.0; };
        const auto gaussian = [&](double limit) {
            for (std::uint32_t draw = 0;; ++draw) {
                const auto words = stream.words(draw);
                const double sample = standard_normal(words[0], words[1]);
                if (std::abs(sample) <= limit) return sample;
            }
        };
        constexpr double no_limit = 1e9;
        double result = value;
        switch (initializer.distribution) {
            case Distribution::constant: break;
            case Distribution::uniform: result = value * signed_unit(); break;
            case Distribution::normal: result = value * gaussian(no_limit); break;
            case Distribution::truncated_normal: result = value * gaussian(2.0); break;
            case Distribution::glorot_uniform:
                result = std::sqrt(6.0 / static_cast<double>(fan_in + fan_out)) * signed_unit();
                break;
            case Distribution::he_normal:
                result = std::sqrt(2.0 / static_cast<double>(fan_in)) * gaussian(no_limit);
                break;
            case Distribution::he_normal_fan_out:
                result = std::sqrt(2.0 / static_cast<double>(fan_out)) * gaussian(no_limit);
                break;
            case Distribution::fan_in_uniform: result = signed_unit() / std::sqrt(static_cast<double>(fan_in)); break;
        }
        values[i] = static_cast<float>(result);
    }
}

}}  // namespace cupola::CUPOLA_ABI
