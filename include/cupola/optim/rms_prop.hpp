// SPDX-License-Identifier: Apache-2.0
//
// RmsProp by TensorFlow's rule, which differs from PyTorch's: epsilon is inside the root, the rate is inside the
// momentum, and the mean square starts at 1, so that the first steps are small:
//
//   s = s + (1 - decay) * (g^2 - s),    v = momentum * v + rate * g / sqrt(s + epsilon),    w = w - v
//
// with g of ops/gradient_terms.hpp. No finite gradient makes a NaN. Without momentum v is not stored.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <cupola/core/error.hpp>
#include <cupola/ops/square_root.hpp>
#include <cupola/optim/impl/settings.hpp>
#include <cupola/optim/optimizer.hpp>
#include <cupola/optim/schedule.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

struct RmsPropFormula {
    float rate;
    /// 1 - decay, rounded once.
    float fraction;
    float epsilon;
    SquareLimit squarable{};

    CUPOLA_HOST_DEVICE void operator()(float& w, float g, float& s) const {
        g = squarable(g);
        s = s + fraction * (g * g - s);
        w -= rate * g * inverse_square_root(s + epsilon);
    }
};

struct RmsPropMomentumFormula {
    float rate, fraction, epsilon, momentum;
    SquareLimit squarable{};

    CUPOLA_HOST_DEVICE void operator()(float& w, float g, float& s, float& velocity) const {
        const float kept = momentum * velocity;  // before the rest: g++ fuses the first product of a sum
        g = squarable(g);
        s = s + fraction * (g * g - s);
        const float step = rate * g * inverse_square_root(s + epsilon);
        velocity = kept + step;
        w -= velocity;
    }
};

}  // namespace impl

struct RmsProp {
    static constexpr bool uses_segment_factors = true;
    Schedule learning_rate = 0.001;
    double decay = 0.9;
    double momentum = 0.0;
    double epsilon = 1e-10;
    /// Coupled: it enters the mean square. Applies to every parameter, biases included.
    double weight_decay = 0.0;
    /// The initial value of the mean square: 1 in TensorFlow 1, 0 in Keras.
    double start = 1.0;

    [[nodiscard]] int state_arenas() const { return momentum == 0.0 ? 1 : 2; }
    [[nodiscard]] std::string_view state_name(int arena) const { return arena == 0 ? "square_avg" : "momentum_buffer"; }
    [[nodiscard]] double state_start(int arena) const { return arena == 0 ? start : 0.0; }
    [[nodiscard]] double learning_rate_at(std::int64_t step) const { return learning_rate(step); }
    [[nodiscard]] std::string learning_rate_description() const { return learning_rate.description(); }
    [[nodiscard]] std::string description() const {
        std::string result = text("rmsprop, decay ", exact_text(decay), ", epsilon ", exact_text(epsilon),
                                  ", mean square from ", exact_text(start));
        if (momentum != 0.0) result += text(", momentum ", exact_text(momentum));
        if (weight_decay != 0.0) result += text(", weight decay ", exact_text(weight_decay));
        return result;
    }
    void check() const {
        impl::require_fraction("rmsprop's decay", decay);
        impl::require_fraction("rmsprop's momentum", momentum);
        // A parameter without a gradient would otherwise divide 0 by 0 once its mean square has decayed.
        impl::require_positive("rmsprop's epsilon", epsilon);
        impl::require_not_negative("rmsprop's weight decay", weight_decay);
        impl::require_not_negative("rmsprop's start of the mean square", start);
    }

    // Each parameter is updated separately, on every device: the mean square starts at 1 and must remain 1 in the
    // padding between parameters. So there is no keeps_zeros().
    template <class Apply>
    void formula(std::int64_t step, const Segment& segment, Apply&& apply) const {
        const auto rate = static_cast<float>(segment.rate(learning_rate_at(step))),
                   fraction = static_cast<float>(1 - decay), inside = static_cast<float>(epsilon);
        const double coupled = segment.decay(weight_decay);
        if (momentum == 0.0) return apply(impl::RmsPropFormula{rate, fraction, inside}, coupled);
        apply(impl::RmsPropMomentumFormula{rate, fraction, inside, static_cast<float>(momentum)}, coupled);
    }
};

}}  // namespace cupola::CUPOLA_ABI
