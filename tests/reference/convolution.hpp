// SPDX-License-Identifier: Apache-2.0
//
// Convolution by plain loops in double, forward and backward.
#pragma once

#include <cstddef>

#include "compare.hpp"
#include "window.hpp"

namespace reference {

struct Convolution {
    std::int64_t batch;
    Axis height, width;
    std::int64_t in, out, groups = 1;

    [[nodiscard]] std::int64_t input_size() const { return batch * height.input * width.input * in; }
    [[nodiscard]] std::int64_t output_size() const { return batch * height.output * width.output * out; }
    [[nodiscard]] std::int64_t weight_size() const { return out * height.kernel * width.kernel * (in / groups); }

    /// Output channel o is in group o / (out / groups), and reads the input channels of this group. Calls f(place in x, place in weight, place in y) for each multiplication whose tap lies inside the image.
    template <class Function>
    void for_each_product(Function f) const {
        for (std::int64_t n = 0; n < batch; ++n)
            for (std::int64_t i = 0; i < height.output; ++i)
                for (std::int64_t j = 0; j < width.output; ++j)
                    for (std::int64_t a = 0; a < height.kernel; ++a)
                        for (std::int64_t b = 0; b < width.kernel; ++b) {
                            const std::int64_t y = height.place(i, a), x = width.place(j, b);
                            if (y < 0 || y >= height.input || x < 0 || x >= width.input) continue;
                            for (std::int64_t o = 0; o < out; ++o)
                                for (std::int64_t c = 0; c < in / groups; ++c)
                                    f(static_cast<std::size_t>(((n * height.input + y) * width.input + x) * in +
                                                               o / (out / groups) * (in / groups) + c),
                                      static_cast<std::size_t>(
                                          ((o * height.kernel + a) * width.kernel + b) * (in / groups) + c),
                                      static_cast<std::size_t>(((n * height.output + i) * width.output + j) * out + o));
                        }
    }

    /// `bias` may be empty.
    [[nodiscard]] Doubles forward(std::span<const float> x, std::span<const float> weight,
                                  std::span<const float> bias) const {
        Doubles y(static_cast<std::size_t>(output_size()));
        for (std::size_t i = 0; i < y.size(); ++i)
            y[i] = bias.empty() ? 0.0 : static_cast<double>(bias[i % bias.size()]);
        for_each_product([&](std::size_t at_x, std::size_t at_w, std::size_t at_y) {
            y[at_y] += static_cast<double>(x[at_x]) * static_cast<double>(weight[at_w]);
        });
        return y;
    }

    [[nodiscard]] Doubles input_gradient(std::span<const float> dy, std::span<const float> weight) const {
        Doubles dx(static_cast<std::size_t>(input_size()));
        for_each_product([&](std::size_t at_x, std::size_t at_w, std::size_t at_y) {
            dx[at_x] += static_cast<double>(dy[at_y]) * static_cast<double>(weight[at_w]);
        });
        return dx;
    }

    [[nodiscard]] Doubles weight_gradient(std::span<const float> dy, std::span<const float> x) const {
        Doubles dw(static_cast<std::size_t>(weight_size()));
        for_each_product([&](std::size_t at_x, std::size_t at_w, std::size_t at_y) {
            dw[at_w] += static_cast<double>(dy[at_y]) * static_cast<double>(x[at_x]);
        });
        return dw;
    }

    [[nodiscard]] Doubles bias_gradient(std::span<const float> dy) const {
        Doubles db(static_cast<std::size_t>(out));
        for (std::size_t i = 0; i < dy.size(); ++i) db[i % db.size()] += static_cast<double>(dy[i]);
        return db;
    }
};

}  // namespace reference
