// SPDX-License-Identifier: Apache-2.0
//
// Sgd: stochastic gradient descent, plain, with momentum or Nesterov momentum, and with weight decay coupled to the
// gradient (PyTorch's SGD) or decoupled from it (Loshchilov, Hutter 2017). ops/sgd_update.hpp has the formula.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <cupola/core/error.hpp>
#include <cupola/ops/sgd_update.hpp>
#include <cupola/optim/impl/contiguous_segments.hpp>
#include <cupola/optim/impl/settings.hpp>
#include <cupola/optim/optimizer.hpp>
#include <cupola/optim/schedule.hpp>

namespace cupola::inline CUPOLA_ABI {

struct Sgd {
    static constexpr bool captured = true;
    Schedule learning_rate = 0.1;
    double momentum = 0.0;
    bool nesterov = false;
    /// Decay of every parameter, biases included; WeightDecay in the loss is for named layers.
    double weight_decay = 0.0;
    bool decoupled = false;

    [[nodiscard]] int state_arenas() const { return momentum == 0.0 ? 0 : 1; }
    [[nodiscard]] std::string_view state_name(int) const { return "momentum_buffer"; }
    [[nodiscard]] double learning_rate_at(std::int64_t step) const { return learning_rate(step); }
    [[nodiscard]] std::string learning_rate_description() const { return learning_rate.description(); }
    [[nodiscard]] std::string description() const {
        std::string result = "sgd";
        if (momentum != 0.0) result += text(", momentum ", exact_text(momentum), nesterov ? ", nesterov" : "");
        if (weight_decay != 0.0)
            result += text(decoupled ? ", decoupled weight decay " : ", weight decay ", exact_text(weight_decay));
        return result;
    }
    void check() const {
        impl::require_fraction("sgd's momentum", momentum);
        impl::require_not_negative("sgd's weight decay", weight_decay);
    }

    template <class Device>
    void update(const Update<Device>& u) const {
        impl::for_each_contiguous_segment(u, true, [&](const Segment& segment) {
            const SgdConstants constants{
                .gradient = u.terms(segment, decoupled ? 0.0 : weight_decay),
                .rate = static_cast<float>(learning_rate_at(u.step)),
                .momentum = static_cast<float>(momentum),
                .nesterov = nesterov,
                .decoupled = static_cast<float>(decoupled ? weight_decay : 0.0),
            };
            float* const velocity = u.state == nullptr ? nullptr : u.state + segment.offset;
            ops::SgdUpdate<Device>::run(u.context, u.parameters + segment.offset, u.gradient + segment.offset, velocity,
                                        segment.size, constants);
        });
    }
};

}  // namespace cupola::inline CUPOLA_ABI
