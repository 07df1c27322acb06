// SPDX-License-Identifier: Apache-2.0
//
// Sgd: stochastic gradient descent, plain, with momentum or Nesterov momentum, and with weight decay coupled to the
// gradient (PyTorch's SGD) or decoupled from it (Loshchilov, Hutter 2017). PyTorch's formula:
//
//   v = momentum * v + g,    w = w - rate * (decoupled * w + (nesterov ? g + momentum * v : v))
//
// with g of ops/gradient_terms.hpp. Without momentum v is g and is not stored.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <cupola/core/error.hpp>
#include <cupola/optim/impl/settings.hpp>
#include <cupola/optim/optimizer.hpp>
#include <cupola/optim/schedule.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

struct SgdFormula {
    float rate;

    CUPOLA_HOST_DEVICE void operator()(float& w, float g) const { w -= rate * g; }
};

struct DecayingSgdFormula {
    float rate, decoupled;

    CUPOLA_HOST_DEVICE void operator()(float& w, float g) const { w -= rate * (decoupled * w + g); }
};

template <bool nesterov>
struct MomentumFormula {
    float rate, momentum, decoupled;

    CUPOLA_HOST_DEVICE void operator()(float& w, float g, float& velocity) const {
        velocity = momentum * velocity + g;
        float direction = velocity;
        if constexpr (nesterov) direction = g + momentum * velocity;
        w -= rate * (decoupled * w + direction);
    }
};

}  // namespace impl

struct Sgd {
    static constexpr bool uses_segment_factors = true;
    Schedule learning_rate = 0.1;
    double momentum = 0.0;
    bool nesterov = false;
    /// Decay of every parameter, biases included; WeightDecay in the loss applies to named layers.
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
        require(!nesterov || momentum > 0, "sgd's nesterov needs a momentum above 0");
        impl::require_not_negative("sgd's weight decay", weight_decay);
    }

    /// An element of zeros whose gradient is zero stays zero.
    [[nodiscard]] bool keeps_zeros() const { return true; }
    template <class Apply>
    void formula(std::int64_t step, const Segment& segment, Apply&& apply) const {
        const auto rate = static_cast<float>(segment.rate(learning_rate_at(step))), kept = static_cast<float>(momentum),
                   decay = static_cast<float>(decoupled ? segment.decay(weight_decay) : 0.0);
        const double coupled = decoupled ? 0.0 : segment.decay(weight_decay);
        if (momentum == 0.0) {
            if (decay == 0.0F) return apply(impl::SgdFormula{rate}, coupled);
            return apply(impl::DecayingSgdFormula{rate, decay}, coupled);
        }
        if (nesterov) return apply(impl::MomentumFormula<true>{rate, kept, decay}, coupled);
        apply(impl::MomentumFormula<false>{rate, kept, decay}, coupled);
    }
};

}}  // namespace cupola::CUPOLA_ABI
