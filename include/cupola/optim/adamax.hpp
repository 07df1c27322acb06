// SPDX-License-Identifier: Apache-2.0
//
// Adamax (Kingma, Ba 2014, section 7.1) as in PyTorch: Adam with the largest decayed gradient instead of the root of
// the mean square, and the decay added to the gradient.
//
//   m = beta1 * m + (1 - beta1) * g,    u = max(beta2 * u, |g| + epsilon),    w = w - rate / (1 - beta1^t) * m / u
//
// at step t = 1, 2, ... with g of ops/gradient_terms.hpp. Nothing is squared, so no gradient is limited.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <cupola/core/error.hpp>
#include <cupola/optim/impl/moments.hpp>
#include <cupola/optim/optimizer.hpp>
#include <cupola/optim/schedule.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

struct AdamaxFormula {
    float step_size, beta1, first_fraction, beta2, epsilon;

    CUPOLA_HOST_DEVICE void operator()(float& w, float g, float& m, float& u) const {
        m = beta1 * m + first_fraction * g;
        const float decayed = beta2 * u, magnitude = (g < 0.0F ? -g : g) + epsilon;
        u = decayed > magnitude ? decayed : magnitude;
        w -= step_size * (m / u);
    }
};

}  // namespace impl

struct Adamax {
    static constexpr bool uses_segment_factors = true;
    Schedule learning_rate = 0.002;
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-8;
    /// Coupled: it enters the average and the largest gradient. Applies to every parameter, biases included.
    double weight_decay = 0.0;

    [[nodiscard]] int state_arenas() const { return 2; }
    [[nodiscard]] std::string_view state_name(int arena) const { return arena == 0 ? "exp_avg" : "exp_inf"; }
    [[nodiscard]] double learning_rate_at(std::int64_t step) const { return learning_rate(step); }
    [[nodiscard]] std::string learning_rate_description() const { return learning_rate.description(); }
    [[nodiscard]] std::string description() const {
        return moments().description("adamax") +
               (weight_decay == 0.0 ? "" : text(", weight decay ", exact_text(weight_decay)));
    }
    void check() const {
        moments().check("adamax");
        // An element whose gradients were all 0 would otherwise divide 0 by 0.
        impl::require_positive("adamax's epsilon", epsilon);
        impl::require_not_negative("adamax's weight decay", weight_decay);
    }

    // No keeps_zeros(): u of an element without a gradient becomes epsilon.
    template <class Apply>
    void formula(std::int64_t step, const Segment& segment, Apply&& apply) const {
        const double step_size = segment.rate(learning_rate_at(step)) / impl::Moments::correction(beta1, step);
        apply(
            impl::AdamaxFormula{static_cast<float>(step_size), static_cast<float>(beta1), static_cast<float>(1 - beta1),
                                static_cast<float>(beta2), static_cast<float>(epsilon)},
            segment.decay(weight_decay));
    }

private:
    [[nodiscard]] impl::Moments moments() const { return {beta1, beta2, epsilon}; }
};

}}  // namespace cupola::CUPOLA_ABI
