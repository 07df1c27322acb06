// SPDX-License-Identifier: Apache-2.0
//
// Sgd: stochastic gradient descent, plain, with momentum or Nesterov momentum, and with weight decay coupled to the
// gradient (PyTorch's SGD) or decoupled from it (Loshchilov, Hutter 2017). ops/sgd_update.hpp has the formula.
#pragma once

#include <cstdint>

#include <cupola/ops/sgd_update.hpp>
#include <cupola/optim/optimizer.hpp>
#include <cupola/optim/schedule.hpp>

namespace cupola::inline CUPOLA_ABI {

struct Sgd {
    Schedule learning_rate = 0.1;
    double momentum = 0.0;
    bool nesterov = false;
    /// Decay of every parameter, biases included; WeightDecay in the loss is for named layers.
    double weight_decay = 0.0;
    bool decoupled = false;

    [[nodiscard]] int state_arenas() const { return momentum == 0.0 ? 0 : 1; }
    [[nodiscard]] double learning_rate_at(std::int64_t step) const { return learning_rate(step); }

    template <class Device>
    void update(const Update<Device>& u) const {
        for (const Segment& segment : u.segments) {
            const SgdConstants constants{
                .rate = static_cast<float>(learning_rate_at(u.step)),
                .momentum = static_cast<float>(momentum),
                .nesterov = nesterov,
                .l2 = static_cast<float>(segment.l2 + (decoupled ? 0.0 : weight_decay)),
                .decoupled = static_cast<float>(decoupled ? weight_decay : 0.0),
            };
            float* const velocity = u.state == nullptr ? nullptr : u.state + segment.offset;
            ops::SgdUpdate<Device>::run(u.context, u.parameters + segment.offset, u.gradient + segment.offset, velocity,
                                        segment.size, constants);
        }
    }
};

}  // namespace cupola::inline CUPOLA_ABI
