// SPDX-License-Identifier: Apache-2.0
//
// A linear layer by plain loops in double, forward and backward.
#pragma once

#include <cstddef>

#include "compare.hpp"

namespace reference {

struct Linear {
    std::size_t batch, in, out;

    /// `bias` may be empty.
    [[nodiscard]] Doubles forward(std::span<const float> x, std::span<const float> weight,
                                  std::span<const float> bias) const {
        Doubles y(batch * out);
        for (std::size_t n = 0; n < batch; ++n)
            for (std::size_t o = 0; o < out; ++o) {
                double sum = bias.empty() ? 0.0 : static_cast<double>(bias[o]);
                for (std::size_t i = 0; i < in; ++i)
                    sum += static_cast<double>(x[n * in + i]) * static_cast<double>(weight[o * in + i]);
                y[n * out + o] = sum;
            }
        return y;
    }

    [[nodiscard]] Doubles input_gradient(std::span<const float> dy, std::span<const float> weight) const {
        Doubles dx(batch * in);
        for (std::size_t n = 0; n < batch; ++n)
            for (std::size_t o = 0; o < out; ++o)
                for (std::size_t i = 0; i < in; ++i)
                    dx[n * in + i] += static_cast<double>(dy[n * out + o]) * static_cast<double>(weight[o * in + i]);
        return dx;
    }

    [[nodiscard]] Doubles weight_gradient(std::span<const float> dy, std::span<const float> x) const {
        Doubles dw(out * in);
        for (std::size_t n = 0; n < batch; ++n)
            for (std::size_t o = 0; o < out; ++o)
                for (std::size_t i = 0; i < in; ++i)
                    dw[o * in + i] += static_cast<double>(dy[n * out + o]) * static_cast<double>(x[n * in + i]);
        return dw;
    }

    [[nodiscard]] Doubles bias_gradient(std::span<const float> dy) const {
        Doubles db(out);
        for (std::size_t n = 0; n < batch; ++n)
            for (std::size_t o = 0; o < out; ++o) db[o] += static_cast<double>(dy[n * out + o]);
        return db;
    }
};

}  // namespace reference
