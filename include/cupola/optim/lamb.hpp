// SPDX-License-Identifier: Apache-2.0
//
// Lamb: Adam's direction with a step as long, for each parameter tensor, as the tensor's norm says (You et al. 2019):
// for global batches of thousands. ops/lamb_update.hpp has the formula.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <cupola/core/error.hpp>
#include <cupola/ops/lamb_update.hpp>
#include <cupola/optim/impl/moments.hpp>
#include <cupola/optim/optimizer.hpp>
#include <cupola/optim/schedule.hpp>

namespace cupola::inline CUPOLA_ABI {

struct Lamb {
    static constexpr bool captured = true;
    Schedule learning_rate = 0.001;
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-6;
    double weight_decay = 0.0;
    /// Biases and a normalisation's scales, parameters of one dimension, otherwise take Adam's steps and no decay.
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

    template <class Device>
    void update(const Update<Device>& u) const {
        for (const Segment& segment : u.segments) {
            const bool adapt = adapt_biases || segment.rank != 1;
            const LambConstants constants{
                .gradient = u.terms(segment),
                .rate = static_cast<float>(learning_rate_at(u.step)),
                .first_scale = moments().first_correction(u.step),
                .root_scale = moments().root_scale(u.step),
                .first_fraction = static_cast<float>(1 - beta1),
                .second_fraction = static_cast<float>(1 - beta2),
                .epsilon = static_cast<float>(epsilon),
                .weight_decay = static_cast<float>(adapt ? weight_decay : 0.0),
                .adapt = adapt,
            };
            ops::LambUpdate<Device>::run(u.context, u.parameters + segment.offset, u.gradient + segment.offset,
                                         u.state_arena(0) + segment.offset, u.state_arena(1) + segment.offset,
                                         segment.size, constants);
        }
    }

private:
    [[nodiscard]] impl::Moments moments() const { return {beta1, beta2, epsilon}; }
};

}  // namespace cupola::inline CUPOLA_ABI
