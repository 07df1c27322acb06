// SPDX-License-Identifier: Apache-2.0
//
// Local response normalisation over channels by plain loops in double; alpha multiplies each square (TensorFlow's
// rule).
#pragma once

#include "../standard.hpp"
#include "compare.hpp"

namespace reference {

struct LocalResponseNorm {
    std::int64_t channels, radius;
    double bias, alpha, beta;

    [[nodiscard]] Doubles scales(std::span<const float> x) const {
        Doubles result(x.size(), bias);
        for_each_pair(x.size(), [&](std::size_t at, std::size_t other) {
            result[at] += alpha * static_cast<double>(x[other]) * static_cast<double>(x[other]);
        });
        return result;
    }

    [[nodiscard]] Doubles forward(std::span<const float> x) const {
        Doubles y = scales(x);
        for (std::size_t i = 0; i < y.size(); ++i) y[i] = static_cast<double>(x[i]) * std::pow(y[i], -beta);
        return y;
    }

    /// By the chain rule, one pair of channels at a time: y[c] = x[c] s[c]^-beta, ds[c]/dx[k] = 2 alpha x[k].
    [[nodiscard]] Doubles input_gradient(std::span<const float> dy, std::span<const float> x) const {
        const Doubles s = scales(x);
        Doubles dx(x.size());
        for (std::size_t i = 0; i < x.size(); ++i) dx[i] = static_cast<double>(dy[i]) * std::pow(s[i], -beta);
        for_each_pair(x.size(), [&](std::size_t at, std::size_t other) {
            const double through_scale = static_cast<double>(x[at]) * -beta * std::pow(s[at], -beta - 1.0);
            dx[other] += static_cast<double>(dy[at]) * through_scale * 2.0 * alpha * static_cast<double>(x[other]);
        });
        return dx;
    }

private:
    /// Calls f(place of channel c, place of channel k of the same pixel) for all |k - c| <= radius.
    template <class Function>
    void for_each_pair(std::size_t size, Function f) const {
        for (std::int64_t pixel = 0; pixel < static_cast<std::int64_t>(size) / channels; ++pixel)
            for (std::int64_t c = 0; c < channels; ++c)
                for (std::int64_t k = 0; k < channels; ++k) {
                    if (k < c - radius || k > c + radius) continue;
                    f(static_cast<std::size_t>(pixel * channels + c), static_cast<std::size_t>(pixel * channels + k));
                }
    }
};

}  // namespace reference
