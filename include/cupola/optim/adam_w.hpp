// SPDX-License-Identifier: Apache-2.0
//
// AdamW (Loshchilov, Hutter 2017) as in PyTorch: Adam with a decay that does not enter its averages, rate * decay of
// each parameter per step. optim/impl/moments.hpp has the formula.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <cupola/core/error.hpp>
#include <cupola/optim/impl/moments.hpp>
#include <cupola/optim/optimizer.hpp>
#include <cupola/optim/schedule.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

struct AdamW {
    static constexpr bool uses_segment_factors = true;
    Schedule learning_rate = 0.001;
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-8;
    /// Decoupled. Applies to every parameter, biases included.
    double weight_decay = 0.01;

    [[nodiscard]] int state_arenas() const { return 2; }
    [[nodiscard]] std::string_view state_name(int arena) const { return arena == 0 ? "exp_avg" : "exp_avg_sq"; }
    [[nodiscard]] double learning_rate_at(std::int64_t step) const { return learning_rate(step); }
    [[nodiscard]] std::string learning_rate_description() const { return learning_rate.description(); }
    [[nodiscard]] std::string description() const {
        return moments().description("adamw") +
               (weight_decay == 0.0 ? "" : text(", decoupled weight decay ", exact_text(weight_decay)));
    }
    void check() const {
        moments().check("adamw");
        impl::require_not_negative("adamw's weight decay", weight_decay);
    }

    [[nodiscard]] bool keeps_zeros() const { return epsilon > 0; }
    template <class Apply>
    void formula(std::int64_t step, const Segment& segment, Apply&& apply) const {
        apply(moments().formula(step, segment.rate(learning_rate_at(step)), segment.decay(weight_decay)));
    }

private:
    [[nodiscard]] impl::Moments moments() const { return {beta1, beta2, epsilon}; }
};

}}  // namespace cupola::CUPOLA_ABI
