// SPDX-License-Identifier: Apache-2.0
//
// Lamb (You et al. 2019, algorithm 2), for global batches of thousands: Adam's direction, with a step length per
// parameter tensor that follows the tensor's norm. For each tensor,
//
//   m = m + (1 - beta1) * (g - m),    v = v + (1 - beta2) * (g^2 - v)
//   u = m * first_scale / (sqrt(v) * root_scale + epsilon) + weight_decay * w
//   w = w - rate * trust * u,    trust = norm(w) / norm(u), or 1 where either norm is 0
//
// with g of ops/gradient_terms.hpp, first_scale = 1 / (1 - beta1^t) and root_scale = (1 - beta2^t)^(-1/2) at step t =
// 1, 2, ... No finite gradient makes a NaN, unless epsilon is 0. u is not stored: the second pass computes it again.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include <cupola/core/error.hpp>
#include <cupola/ops/square_root.hpp>
#include <cupola/optim/impl/moments.hpp>
#include <cupola/optim/optimizer.hpp>
#include <cupola/optim/schedule.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

/// The formula with a trust of 1.
struct PlainLambFormula {
    float rate, first_scale, root_scale;
    /// 1 - beta1 and 1 - beta2, rounded once.
    float first_fraction, second_fraction;
    float epsilon, weight_decay;
    SquareLimit squarable{};

    CUPOLA_HOST_DEVICE void move(float g, float& m, float& v) const {
        g = squarable(g);
        m = m + first_fraction * (g - m);
        v = v + second_fraction * (g * g - v);
    }
    [[nodiscard]] CUPOLA_HOST_DEVICE float direction(float w, float m, float v) const {
        return m * first_scale / (square_root(v) * root_scale + epsilon) + weight_decay * w;
    }
    CUPOLA_HOST_DEVICE void operator()(float& w, NoGradient, float m, float v) const { w -= rate * direction(w, m, v); }
};

struct LambFormula : PlainLambFormula {
    CUPOLA_HOST_DEVICE float measured(float w, float g, float& m, float& v) const {
        move(g, m, v);
        return direction(w, m, v);
    }
    [[nodiscard]] CUPOLA_HOST_DEVICE float trusted_rate(double squares_of_w, double squares_of_u) const {
        if (!(squares_of_w > 0 && squares_of_u > 0)) return rate;
        return static_cast<float>(static_cast<double>(rate) * std::sqrt(squares_of_w / squares_of_u));
    }
};

}  // namespace impl

struct Lamb {
    static constexpr bool uses_segment_factors = true;
    Schedule learning_rate = 0.001;
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-6;
    double weight_decay = 0.0;
    /// If false, biases and a normalisation's scales, the parameters of one dimension, take Adam's steps without decay.
    bool adapt_biases = false;

    [[nodiscard]] int state_arenas() const { return 2; }
    [[nodiscard]] std::string_view state_name(int arena) const { return arena == 0 ? "exp_avg" : "exp_avg_sq"; }
    [[nodiscard]] double learning_rate_at(std::int64_t step) const { return learning_rate(step); }
    [[nodiscard]] std::string learning_rate_description() const { return learning_rate.description(); }
    [[nodiscard]] std::string description() const {
        std::string result = moments().description("lamb");
        if (weight_decay != 0.0) result += text(", weight decay ", exact_text(weight_decay));
        return result + (adapt_biases ? ", biases adapted" : ", biases not adapted");
    }
    void check() const {
        moments().check("lamb");
        impl::require_not_negative("lamb's weight decay", weight_decay);
    }

    template <class Apply>
    void formula(std::int64_t step, const Segment& segment, Apply&& apply) const {
        const bool adapt = adapt_biases || segment.rank != 1;
        const impl::PlainLambFormula plain{
            .rate = static_cast<float>(segment.rate(learning_rate_at(step))),
            .first_scale = moments().first_correction(step),
            .root_scale = moments().root_scale(step),
            .first_fraction = static_cast<float>(1 - beta1),
            .second_fraction = static_cast<float>(1 - beta2),
            .epsilon = static_cast<float>(epsilon),
            .weight_decay = static_cast<float>(adapt ? segment.decay(weight_decay) : 0.0)};
        if (!adapt) return apply(plain);
        apply(impl::LambFormula{plain});
    }

private:
    [[nodiscard]] impl::Moments moments() const { return {beta1, beta2, epsilon}; }
};

}}  // namespace cupola::CUPOLA_ABI
