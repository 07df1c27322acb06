// SPDX-License-Identifier: Apache-2.0
//
// Batch normalisation in plain loops, in double, channels last. Includes nothing of Cupola.
#pragma once

#include "../standard.hpp"
#include "compare.hpp"

namespace reference {

struct BatchNorm {
    std::size_t channels = 1;
    double epsilon = 1e-5;
    bool relu = false;
    /// The limit of ReLU6; ReLU has none.
    double most = std::numeric_limits<double>::infinity();

    struct Moments {
        Doubles mean, variance;
    };

    /// The mean and the biased variance of each channel.
    [[nodiscard]] Moments moments(std::span<const float> x) const {
        Moments m{Doubles(channels), Doubles(channels)};
        const double count = static_cast<double>(x.size() / channels);
        for (std::size_t i = 0; i < x.size(); ++i) m.mean[i % channels] += static_cast<double>(x[i]) / count;
        for (std::size_t i = 0; i < x.size(); ++i) {
            m.variance[i % channels] += std::pow(static_cast<double>(x[i]) - m.mean[i % channels], 2) / count;
        }
        return m;
    }

    [[nodiscard]] Doubles forward(std::span<const float> x, std::span<const float> weight, std::span<const float> bias,
                                  const Moments& m) const {
        Doubles y(x.size());
        for (std::size_t i = 0; i < x.size(); ++i) {
            const std::size_t c = i % channels;
            y[i] = normalized(x[i], c, m) * static_cast<double>(weight[c]) + static_cast<double>(bias[c]);
            if (relu) y[i] = std::clamp(y[i], 0.0, most);
        }
        return y;
    }

    struct Gradients {
        Doubles input, weight, bias;
    };

    /// Through the batch's mean and variance; `constants` says that they are none of the batch's. The mask is where
    /// `y`, a result that was compared with `forward`, is positive and below the limit: rounding decides of what is
    /// closest to them.
    [[nodiscard]] Gradients backward(std::span<const float> dy, std::span<const float> x, std::span<const float> weight,
                                     std::span<const float> y, const Moments& m, bool constants = false) const {
        const double count = static_cast<double>(x.size() / channels);
        Gradients g{Doubles(x.size()), Doubles(channels), Doubles(channels)};
        const auto masked = [&](std::size_t i) { return passes(y[i]) ? static_cast<double>(dy[i]) : 0.0; };
        for (std::size_t i = 0; i < x.size(); ++i) {
            g.weight[i % channels] += masked(i) * normalized(x[i], i % channels, m);
            g.bias[i % channels] += masked(i);
        }
        for (std::size_t i = 0; i < x.size(); ++i) {
            const std::size_t c = i % channels;
            const double through = constants ? 0 : g.bias[c] / count + normalized(x[i], c, m) * g.weight[c] / count;
            g.input[i] = static_cast<double>(weight[c]) / std::sqrt(m.variance[c] + epsilon) * (masked(i) - through);
        }
        return g;
    }

    /// The sums of the magnitudes of what the weight's and the bias's gradients are sums of.
    [[nodiscard]] Gradients gradient_terms(std::span<const float> dy, std::span<const float> x,
                                           std::span<const float> y, const Moments& m) const {
        Gradients g{{}, Doubles(channels), Doubles(channels)};
        for (std::size_t i = 0; i < x.size(); ++i) {
            const double masked = passes(y[i]) ? std::abs(static_cast<double>(dy[i])) : 0.0;
            g.weight[i % channels] += masked * std::abs(normalized(x[i], i % channels, m));
            g.bias[i % channels] += masked;
        }
        return g;
    }

private:
    [[nodiscard]] bool passes(float y) const { return !relu || (y > 0.0F && static_cast<double>(y) < most); }
    [[nodiscard]] double normalized(float x, std::size_t c, const Moments& m) const {
        return (static_cast<double>(x) - m.mean[c]) / std::sqrt(m.variance[c] + epsilon);
    }
};

}  // namespace reference
