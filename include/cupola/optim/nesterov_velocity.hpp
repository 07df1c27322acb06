// SPDX-License-Identifier: Apache-2.0
//
// NesterovVelocity: Nesterov's momentum in the form of Sutskever et al. 2013, whose velocity is a change of the
// parameters and contains the learning rate of each step. With the position x, the velocity v and the momentum delta:
//
//   v' = delta * v - rate * g(x + delta * v),    x' = x + v'
//
// It is in place: the parameters are y = x + delta * v, where the gradient is computed, and x is not stored:
//
//   v' = delta * v - rate * g(y),    y' = y - rate * g(y) + delta * v'
//
// with g of ops/gradient_terms.hpp. This is the SGD of Keras with `nesterov`, and the local step of EAMSGD (Zhang,
// Choromanska, LeCun 2015), whose replicas exchange x = y - delta * v. Sgd with `nesterov`, as PyTorch has it, stores
// -v / rate: the parameters are the same while the rate is constant. Without momentum v is not stored.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <cupola/core/error.hpp>
#include <cupola/optim/impl/settings.hpp>
#include <cupola/optim/optimizer.hpp>
#include <cupola/optim/schedule.hpp>
#include <cupola/optim/sgd.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

struct NesterovVelocityFormula {
    float rate, momentum;

    CUPOLA_HOST_DEVICE void operator()(float& y, float g, float& velocity) const {
        const float step = rate * g;
        velocity = momentum * velocity - step;
        y += momentum * velocity - step;
    }
    /// x: see ops/elastic_formula.hpp.
    [[nodiscard]] CUPOLA_HOST_DEVICE float position(float y, float velocity) const { return y - momentum * velocity; }
};

}  // namespace impl

struct NesterovVelocity {
    static constexpr bool uses_segment_factors = true;
    Schedule learning_rate = 0.01;
    double momentum = 0.9;
    /// Coupled: it enters the velocity. Applies to every parameter, biases included.
    double weight_decay = 0.0;

    [[nodiscard]] int state_arenas() const { return momentum == 0.0 ? 0 : 1; }
    /// Not momentum_buffer: this contains the rate and has the sign of the change, whereas Sgd's is multiplied by
    /// -rate.
    [[nodiscard]] std::string_view state_name(int) const { return "velocity"; }
    [[nodiscard]] double learning_rate_at(std::int64_t step) const { return learning_rate(step); }
    [[nodiscard]] std::string learning_rate_description() const { return learning_rate.description(); }
    [[nodiscard]] std::string description() const {
        std::string result = text("nesterov velocity, momentum ", exact_text(momentum));
        if (weight_decay != 0.0) result += text(", weight decay ", exact_text(weight_decay));
        return result;
    }
    void check() const {
        impl::require_fraction("nesterov velocity's momentum", momentum);
        impl::require_not_negative("nesterov velocity's weight decay", weight_decay);
    }

    /// An element of zeros whose gradient is zero stays zero.
    [[nodiscard]] bool keeps_zeros() const { return true; }
    template <class Apply>
    void formula(std::int64_t step, const Segment& segment, Apply&& apply) const {
        const auto rate = static_cast<float>(segment.rate(learning_rate_at(step)));
        const double coupled = segment.decay(weight_decay);
        if (momentum == 0.0) return apply(impl::SgdFormula{rate}, coupled);
        apply(impl::NesterovVelocityFormula{rate, static_cast<float>(momentum)}, coupled);
    }
};

}}  // namespace cupola::CUPOLA_ABI
