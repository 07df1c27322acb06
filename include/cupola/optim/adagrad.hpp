// SPDX-License-Identifier: Apache-2.0
//
// Adagrad (Duchi, Hazan, Singer 2011) as in PyTorch: each parameter's step is divided by the root of the sum of its
// squared gradients so far.
//
//   s = s + g^2,    w = w - rate * g / (sqrt(s) + epsilon)
//
// with g of ops/gradient_terms.hpp. PyTorch's lr_decay is a schedule of the learning rate, rate / (1 + step *
// lr_decay). No finite gradient makes a NaN: s is at most 1e38.
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

struct AdagradFormula {
    float rate, epsilon;
    SquareLimit squarable{};
    float largest_sum = 1e38F;

    CUPOLA_HOST_DEVICE void operator()(float& w, float g, float& sum) const {
        g = squarable(g);
        const float more = sum + g * g;
        sum = more > largest_sum ? largest_sum : more;
        w -= rate * g / (square_root(sum) + epsilon);
    }
};

}  // namespace impl

struct Adagrad {
    static constexpr bool uses_segment_factors = true;
    Schedule learning_rate = 0.01;
    /// The initial value of the sums.
    double initial_accumulator_value = 0.0;
    double epsilon = 1e-10;
    /// Coupled: it enters the sums. Applies to every parameter, biases included.
    double weight_decay = 0.0;

    [[nodiscard]] int state_arenas() const { return 1; }
    [[nodiscard]] std::string_view state_name(int) const { return "sum"; }
    [[nodiscard]] double state_start(int) const { return initial_accumulator_value; }
    [[nodiscard]] double learning_rate_at(std::int64_t step) const { return learning_rate(step); }
    [[nodiscard]] std::string learning_rate_description() const { return learning_rate.description(); }
    [[nodiscard]] std::string description() const {
        std::string result = text("adagrad, epsilon ", exact_text(epsilon));
        if (initial_accumulator_value != 0.0) result += text(", sums from ", exact_text(initial_accumulator_value));
        if (weight_decay != 0.0) result += text(", weight decay ", exact_text(weight_decay));
        return result;
    }
    void check() const {
        impl::require_not_negative("adagrad's start of the sums", initial_accumulator_value);
        // A parameter that has had no gradient would otherwise divide 0 by 0.
        impl::require_positive("adagrad's epsilon", epsilon);
        impl::require_not_negative("adagrad's weight decay", weight_decay);
    }

    [[nodiscard]] bool keeps_zeros() const { return true; }
    template <class Apply>
    void formula(std::int64_t step, const Segment& segment, Apply&& apply) const {
        apply(
            impl::AdagradFormula{static_cast<float>(segment.rate(learning_rate_at(step))), static_cast<float>(epsilon)},
            segment.decay(weight_decay));
    }
};

}}  // namespace cupola::CUPOLA_ABI
