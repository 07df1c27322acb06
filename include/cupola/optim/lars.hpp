// SPDX-License-Identifier: Apache-2.0
//
// Lars: momentum with a step as long, for each parameter tensor, as the norms of the tensor and of its gradient say
// (You, Gitman, Ginsburg 2017): for global batches of thousands. ops/lars_update.hpp has the formula.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <cupola/core/error.hpp>
#include <cupola/ops/lars_update.hpp>
#include <cupola/optim/impl/settings.hpp>
#include <cupola/optim/optimizer.hpp>
#include <cupola/optim/schedule.hpp>

namespace cupola::inline CUPOLA_ABI {

struct Lars {
    static constexpr bool captured = true;
    Schedule learning_rate = 1.0;
    double momentum = 0.9;
    double weight_decay = 0.0;
    /// The paper's eta: the fraction of a tensor's norm that a step moves it by at rate 1.
    double trust_coefficient = 0.001;
    /// Biases and a normalisation's scales, parameters of one dimension, otherwise take plain steps and no decay.
    bool adapt_biases = false;

    [[nodiscard]] int state_arenas() const { return 1; }
    /// Not momentum_buffer: the rate is in it already, where Sgd's is multiplied by the rate.
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

    template <class Device>
    void update(const Update<Device>& u) const {
        for (const Segment& segment : u.segments) {
            const bool adapt = adapt_biases || segment.rank != 1;
            const LarsConstants constants{
                .gradient = u.terms(segment),
                .rate = static_cast<float>(learning_rate_at(u.step)),
                .momentum = static_cast<float>(momentum),
                .weight_decay = static_cast<float>(adapt ? weight_decay : 0.0),
                .coefficient = static_cast<float>(trust_coefficient),
                .adapt = adapt,
            };
            ops::LarsUpdate<Device>::run(u.context, u.parameters + segment.offset, u.gradient + segment.offset,
                                         u.state + segment.offset, segment.size, constants);
        }
    }
};

}  // namespace cupola::inline CUPOLA_ABI
