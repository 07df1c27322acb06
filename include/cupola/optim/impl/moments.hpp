// SPDX-License-Identifier: Apache-2.0
//
// The common part of Adam, AdamW, Adamax and Lamb: the settings of their two moving averages, the correction for the
// averages' start at 0, and the formula of Adam and AdamW.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include <cupola/core/error.hpp>
#include <cupola/ops/element_update.hpp>
#include <cupola/ops/square_root.hpp>
#include <cupola/optim/impl/settings.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The formula of Adam and AdamW, written as in PyTorch:
///
///   m = m + (1 - beta1) * (g - m),    v = v + (1 - beta2) * (g^2 - v)
///   w = w - decoupled * w,    w = w - step_size * m / (sqrt(v) * root_scale + epsilon)
///
/// with step_size = rate / (1 - beta1^t) and root_scale = (1 - beta2^t)^(-1/2) at step t = 1, 2, ... No finite gradient
/// makes a NaN, unless epsilon is 0: an element whose gradients were all 0 then divides 0 by 0.
struct AdamFormula {
    float step_size, root_scale;
    /// 1 - beta1 and 1 - beta2, rounded once.
    float first_fraction, second_fraction;
    float epsilon;
    /// Rate times the decoupled decay.
    float decoupled;
    SquareLimit squarable{};

    CUPOLA_HOST_DEVICE void move(float g, float& m, float& v) const {
        g = squarable(g);
        m = m + first_fraction * (g - m);
        v = v + second_fraction * (g * g - v);
    }
    CUPOLA_HOST_DEVICE void operator()(float& w, NoGradient, float m, float v) const {
        const float decayed = w - decoupled * w;
        w = decayed - step_size * m / (square_root(v) * root_scale + epsilon);
    }
};

struct Moments {
    double beta1, beta2, epsilon;

    /// 1 - beta^t at the update of `step`, which counts from 0.
    [[nodiscard]] static double correction(double beta, std::int64_t step) {
        return 1 - std::pow(beta, static_cast<double>(step + 1));
    }
    [[nodiscard]] float first_correction(std::int64_t step) const {
        return static_cast<float>(1 / correction(beta1, step));
    }
    [[nodiscard]] float root_scale(std::int64_t step) const {
        return static_cast<float>(1 / std::sqrt(correction(beta2, step)));
    }

    [[nodiscard]] AdamFormula formula(std::int64_t step, double rate, double decoupled) const {
        return {.step_size = static_cast<float>(rate / correction(beta1, step)),
                .root_scale = root_scale(step),
                .first_fraction = static_cast<float>(1 - beta1),
                .second_fraction = static_cast<float>(1 - beta2),
                .epsilon = static_cast<float>(epsilon),
                .decoupled = static_cast<float>(rate * decoupled)};
    }

    [[nodiscard, gnu::cold]] std::string description(std::string_view name) const {
        return text(name, ", betas ", exact_text(beta1), " and ", exact_text(beta2), ", epsilon ", exact_text(epsilon));
    }
    [[gnu::cold]] void check(std::string_view name) const {
        require_fraction(text(name, "'s beta1"), beta1);
        require_fraction(text(name, "'s beta2"), beta2);
        require_not_negative(text(name, "'s epsilon"), epsilon);
        if (epsilon > 0) require_positive(text(name, "'s epsilon"), epsilon);
    }
};

}}}  // namespace cupola::CUPOLA_ABI::impl
