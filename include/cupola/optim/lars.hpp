// SPDX-License-Identifier: Apache-2.0
//
// Lars (You, Gitman, Ginsburg 2017, algorithm 1), for global batches of thousands: momentum, with a step length per
// parameter tensor that follows the norms of the tensor and of its gradient. For each tensor
//
//   v = momentum * v + rate * trust * (g + weight_decay * w),    w = w - v
//   trust = coefficient * norm(w) / (norm(g) + weight_decay * norm(w)), or 1 where norm(w) or norm(g) is 0
//
// with g of ops/gradient_terms.hpp. The rate is inside v, as in the paper.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include <cupola/core/error.hpp>
#include <cupola/optim/impl/settings.hpp>
#include <cupola/optim/optimizer.hpp>
#include <cupola/optim/schedule.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

/// The formula with a trust of 1.
struct PlainLarsFormula {
    float rate, momentum, weight_decay;

    CUPOLA_HOST_DEVICE void operator()(float& w, float g, float& velocity) const {
        velocity = momentum * velocity + rate * (g + weight_decay * w);
        w -= velocity;
    }
};

struct LarsFormula : PlainLarsFormula {
    float coefficient;

    using PlainLarsFormula::operator();
    CUPOLA_HOST_DEVICE float measured(float, float g) const { return g; }
    [[nodiscard]] CUPOLA_HOST_DEVICE float trusted_rate(double squares_of_w, double squares_of_g) const {
        const double of_w = std::sqrt(squares_of_w), of_g = std::sqrt(squares_of_g);
        const double trust =
            static_cast<double>(coefficient) * of_w / (of_g + static_cast<double>(weight_decay) * of_w);
        return of_w > 0 && of_g > 0 ? static_cast<float>(static_cast<double>(rate) * trust) : rate;
    }
};

}  // namespace impl

struct Lars {
    static constexpr bool uses_segment_factors = true;
    Schedule learning_rate = 1.0;
    double momentum = 0.9;
    double weight_decay = 0.0;
    /// The paper's eta: the fraction of a tensor's norm by which a step moves it at rate 1.
    double trust_coefficient = 0.001;
    /// If false, biases and a normalisation's scales, the parameters of one dimension, take plain steps without decay.
    bool adapt_biases = false;

    [[nodiscard]] int state_arenas() const { return 1; }
    /// Not momentum_buffer: this buffer already contains the rate, whereas Sgd's is multiplied by the rate.
    [[nodiscard]] std::string_view state_name(int) const { return "scaled_momentum_buffer"; }
    [[nodiscard]] double learning_rate_at(std::int64_t step) const { return learning_rate(step); }
    [[nodiscard]] std::string learning_rate_description() const { return learning_rate.description(); }
    [[nodiscard]] std::string description() const {
        std::string result =
            text("lars, momentum ", exact_text(momentum), ", trust coefficient ", exact_text(trust_coefficient));
        if (weight_decay != 0.0) result += text(", weight decay ", exact_text(weight_decay));
        return result + (adapt_biases ? ", biases adapted" : ", biases not adapted");
    }
    void check() const {
        impl::require_fraction("lars's momentum", momentum);
        impl::require_positive("lars's trust coefficient", trust_coefficient);
        impl::require_not_negative("lars's weight decay", weight_decay);
    }

    template <class Apply>
    void formula(std::int64_t step, const Segment& segment, Apply&& apply) const {
        const auto rate = static_cast<float>(segment.rate(learning_rate_at(step))), kept = static_cast<float>(momentum);
        if (!adapt_biases && segment.rank == 1) return apply(impl::PlainLarsFormula{rate, kept, 0.0F});
        apply(impl::LarsFormula{{rate, kept, static_cast<float>(segment.decay(weight_decay))},
                                static_cast<float>(trust_coefficient)});
    }
};

}}  // namespace cupola::CUPOLA_ABI
