// SPDX-License-Identifier: Apache-2.0
//
// MovingRate: the fraction alpha of the difference to the centre by which elastic averaging moves a replica. The
// conventions differ, and the number of one is another method in the other:
//
//   MovingRate(alpha)               alpha itself, the paper's eta * rho
//   MovingRate::paper(beta)         beta / replicas: Zhang, Choromanska, LeCun 2015 have beta = 0.9
//   MovingRate::tensorflow(beta)    beta / replicas / every: the default of TensorFlow 1's ElasticAverageOptimizer
//
// A rate at or above a bound is legal and probably wrong: then the averaging alone makes the parameters grow. The
// bounds hold for every curvature as the learning rate goes to 0, and for every period. With a larger learning rate the
// asynchronous bound is lower: (4 - 2 eta h) / (4 - eta h) for the curvature h, with plain SGD and an exchange in each
// step.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include <cupola/core/error.hpp>
#include <cupola/core/fixed_string.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// The moving rate from which on a synchronous exchange of `replicas` replicas is not stable: the centre moves by
/// `replicas` forces at once.
[[nodiscard]] constexpr double synchronous_moving_rate_bound(int replicas) { return 2.0 / (replicas + 1); }

/// The same for exchanges of one replica after another, in any order.
[[nodiscard]] constexpr double asynchronous_moving_rate_bound() { return 1.0; }

class MovingRate {
public:
    /// alpha itself.
    constexpr MovingRate(double alpha) : value_(alpha) {}  // NOLINT: `.rate = 0.225` is meant to work
    [[nodiscard]] static constexpr MovingRate paper(double beta) { return {beta, Convention::paper}; }
    [[nodiscard]] static constexpr MovingRate tensorflow(double beta) { return {beta, Convention::tensorflow}; }

    /// alpha for the number of all replicas, which exchange every `every` steps.
    [[nodiscard]] constexpr double of(int replicas, std::int64_t every) const {
        if (convention_ == Convention::number) return value_;
        const double shared = value_ / replicas;
        return convention_ == Convention::paper ? shared : shared / static_cast<double>(every);
    }

    /// "moving rate 0.225", "moving rate 0.9 / replicas", "moving rate 0.9 / replicas / period"
    [[nodiscard]] std::string description() const {
        static constexpr std::string_view divisor[] = {"", " / replicas", " / replicas / period"};
        return text("moving rate ", exact_text(value_), divisor[static_cast<int>(convention_)]);
    }
    /// Throws InvalidArgument unless the rate is above 0 and finite, as a float too.
    void check() const {
        require(Number(value_).is_finite_float() && value_ >= static_cast<double>(std::numeric_limits<float>::min()),
                "the moving rate must be more than 0, not ", value_);
    }

private:
    enum class Convention : int { number, paper, tensorflow };
    constexpr MovingRate(double value, Convention convention) : value_(value), convention_(convention) {}

    double value_;
    Convention convention_ = Convention::number;
};

/// A line for the header of a run whose moving rate is not below the bound; empty if it is.
[[nodiscard]] inline std::string synchronous_moving_rate_warning(const MovingRate& rate, int replicas,
                                                                 std::int64_t every) {
    const double alpha = rate.of(replicas, every), bound = synchronous_moving_rate_bound(replicas);
    if (alpha < bound) return "";
    return text("the moving rate ", alpha, " is not below ", bound, " = 2 / (", replicas,
                " replicas + 1): elastic averaging is not stable");
}

[[nodiscard]] inline std::string asynchronous_moving_rate_warning(const MovingRate& rate, int replicas,
                                                                  std::int64_t every) {
    const double alpha = rate.of(replicas, every), bound = asynchronous_moving_rate_bound();
    if (alpha < bound) return "";
    return text("the moving rate ", alpha, " is not below ", bound, ": asynchronous elastic averaging is not stable");
}

}}  // namespace cupola::CUPOLA_ABI
