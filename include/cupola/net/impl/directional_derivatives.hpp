// SPDX-License-Identifier: Apache-2.0
//
// Directional derivatives along several directions, from differences and from backward, and a description of their
// disagreement.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <cupola/core/element_type.hpp>
#include <cupola/core/error.hpp>
#include <cupola/core/extents.hpp>
#include <cupola/core/finite.hpp>
#include <cupola/core/philox.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Normally distributed random numbers for check number `stream`.
[[nodiscard]] inline std::vector<float> check_normal(std::uint64_t seed, std::uint32_t stream, std::int64_t count) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < values.size(); ++i) {
        const auto words = RandomStream(seed, RngDomain::user, stream, i).words(0);
        values[i] = static_cast<float>(standard_normal(words[0], words[1]));
    }
    return values;
}

/// `count` values of an input, stored in the first bytes of the floats: random numbers, ids in [0, ids), or bytes.
[[nodiscard]] inline std::vector<float> check_input(ElementType type, std::int64_t ids, std::uint64_t seed,
                                                    std::uint32_t stream, std::int64_t count) {
    if (type == ElementType::float32) return check_normal(seed, stream, count);
    std::vector<float> values(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < values.size(); ++i) {
        const std::uint32_t word = RandomStream(seed, RngDomain::user, stream, i).words(0)[0];
        auto* const to = reinterpret_cast<std::byte*>(values.data());
        if (type == ElementType::int32) {
            const std::uint32_t id = uniform_below(word, static_cast<std::uint32_t>(ids));
            std::memcpy(to + i * sizeof id, &id, sizeof id);
        } else {
            to[i] = static_cast<std::byte>(word >> 24);
        }
    }
    return values;
}

/// The root mean square; 1 where all values are zero, so that a step has a positive size.
[[nodiscard]] inline double check_size(const std::vector<float>& values) {
    double squares = 0;
    for (const float value : values) squares += static_cast<double>(value) * static_cast<double>(value);
    return squares > 0 ? std::sqrt(squares / static_cast<double>(values.size())) : 1.0;
}

class DirectionalDerivatives {
public:
    /// `noise` bounds the effect of rounding on `numeric`.
    void add(double numeric, double analytic, double noise) {
        numeric_ += numeric * numeric;
        analytic_ += analytic * analytic;
        product_ += numeric * analytic;
        difference_ += (numeric - analytic) * (numeric - analytic);
        noise_ += noise * noise;
    }

    /// The norm of the difference over the norm of the numeric derivatives (of the analytic ones where the numeric ones
    /// are noise).
    [[nodiscard]] double error() const {
        return difference_ == 0 ? 0.0 : std::sqrt(difference_ / (numeric_ > noise_ ? numeric_ : analytic_));
    }
    [[nodiscard]] bool agree(double tolerance) const {
        return is_finite(difference_) && std::sqrt(difference_) <= tolerance * std::sqrt(numeric_) + std::sqrt(noise_);
    }

    /// Whether rounding is at most this fraction of the derivatives.
    [[nodiscard]] bool clear(double fraction) const { return std::sqrt(noise_) <= fraction * std::sqrt(numeric_); }

    /// Completes "the gradient of weight ...".
    [[nodiscard]] std::string diagnosis(double tolerance) const {
        if (!is_finite(difference_)) return "is not a number";
        if (analytic_ == 0) return "is zero, but the result depends on it";
        if (numeric_ <= noise_) return "is not zero, but the result does not depend on it";
        constexpr double parallel = 0.995, near_one = 0.05;
        const double ratio = product_ / numeric_;
        const std::string off = text(" (off by ", two_digits(error()), ", allowed ", two_digits(tolerance), ")");
        if (std::abs(product_) < parallel * std::sqrt(numeric_ * analytic_) || std::abs(ratio - 1) < near_one) {
            return "is not the derivative" + off;
        }
        if (std::abs(ratio + 1) < near_one) return "has the wrong sign" + off;
        return text("is ", two_digits(ratio), " times what it should be", off);
    }

    /// Measured values have no more significant digits.
    [[nodiscard]] static double two_digits(double value) {
        if (value == 0 || !is_finite(value)) return value;
        const double scale = std::pow(10.0, 1.0 - std::floor(std::log10(std::abs(value))));
        return std::round(value * scale) / scale;
    }

private:
    double numeric_ = 0, analytic_ = 0, product_ = 0, difference_ = 0, noise_ = 0;
};

/// The steps that were tried before a gradient is called wrong: where a function is strongly curved, as that of a
/// recurrent layer may be, the difference over a long step is not the derivative, and over a shorter one is.
class TriedSteps {
public:
    /// The shorter steps, as fractions of the first; with still shorter ones rounding exceeds the derivative.
    static constexpr double fractions[] = {0.3, 0.1, 0.03, 0.01};

    explicit TriedSteps(double first) : list_(text(DirectionalDerivatives::two_digits(first))) {}
    void add(double step) { list_ += text(", ", DirectionalDerivatives::two_digits(step)); }
    /// "; steps tried: 0.003, 0.0009".
    [[nodiscard]] std::string description() const { return "; steps tried: " + list_; }

private:
    std::string list_;
};

/// The element with the largest disagreement, as "element 17 (1, 0, 2): backward gives ..., finite differences give
/// ...".
class WorstElement {
public:
    void add(std::size_t at, double numeric, double analytic) {
        const double difference = std::abs(numeric - analytic);
        // A NaN is larger than every number, and the first one is kept.
        if (is_nan(difference_) || (!is_nan(difference) && difference <= difference_)) return;
        *this = {};
        at_ = at, numeric_ = numeric, analytic_ = analytic, difference_ = difference;
    }
    /// `shape` is the tensor's, without the batch; the first index of an input is its sample.
    [[nodiscard]] std::string describe(const Shape& shape, bool batched) const {
        std::string place;
        auto rest = static_cast<std::int64_t>(at_);
        for (std::size_t i = shape.rank; i-- > 0; rest /= shape[i]) {
            place = text(rest % shape[i], place.empty() ? "" : ", ", place);
        }
        if (batched) place = text("sample ", rest, ": ", place);
        return text("element ", at_, " (", place, "): backward gives ", analytic_, ", finite differences give ",
                    numeric_);
    }

private:
    std::size_t at_ = 0;
    double numeric_ = 0, analytic_ = 0, difference_ = -1;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
