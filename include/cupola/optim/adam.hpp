// SPDX-License-Identifier: Apache-2.0
//
// Adam (Kingma, Ba 2014) as in PyTorch: the averages are corrected for their start at 0, epsilon is outside the root,
// and the decay is added to the gradient. optim/impl/moments.hpp has the formula.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <cupola/core/error.hpp>
#include <cupola/optim/impl/moments.hpp>
#include <cupola/optim/optimizer.hpp>
#include <cupola/optim/schedule.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

struct Adam {
    static constexpr bool uses_segment_factors = true;
    Schedule learning_rate = 0.001;
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-8;
    /// Coupled: it enters the averages. Applies to every parameter, biases included.
    double weight_decay = 0.0;

    [[nodiscard]] int state_arenas() const { return 2; }
    [[nodiscard]] std::string_view state_name(int arena) const { return arena == 0 ? "exp_avg" : "exp_avg_sq"; }
    [[nodiscard]] double learning_rate_at(std::int64_t step) const { return learning_rate(step); }
    [[nodiscard]] std::string learning_rate_description() const { return learning_rate.description(); }
    [[nodiscard]] std::string description() const {
        return moments().description("adam") +
               (weight_decay == 0.0 ? "" : text(", weight decay ", exact_text(weight_decay)));
    }
    void check() const {
        moments().check("adam");
        impl::require_not_negative("adam's weight decay", weight_decay);
    }

    [[nodiscard]] bool keeps_zeros() const { return epsilon > 0; }
    template <class Apply>
    void formula(std::int64_t step, const Segment& segment, Apply&& apply) const {
        apply(moments().formula(step, segment.rate(learning_rate_at(step)), 0.0), segment.decay(weight_decay));
    }

private:
    [[nodiscard]] impl::Moments moments() const { return {beta1, beta2, epsilon}; }
};

}}  // namespace cupola::CUPOLA_ABI
