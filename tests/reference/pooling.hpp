// SPDX-License-Identifier: Apache-2.0
//
// Pooling by plain loops in double: padding is never a maximum, is not counted in a mean or counts as zeros, and the
// gradient of a maximum goes to the first of equal values in row order.
#pragma once

#include "../standard.hpp"
#include "compare.hpp"
#include "window.hpp"

namespace reference {

struct Pooling {
    std::int64_t batch;
    Axis height, width;
    std::int64_t channels;
    bool maximum;
    bool counts_padding = false;

    [[nodiscard]] std::int64_t input_size() const { return batch * height.input * width.input * channels; }
    [[nodiscard]] std::int64_t output_size() const { return batch * height.output * width.output * channels; }

    /// Calls f(place in y, the places in x of its window that lie inside the image, in row order, the divisor of a mean).
    template <class Function>
    void for_each_window(Function f) const {
        std::vector<std::size_t> places;
        for (std::int64_t n = 0; n < batch; ++n)
            for (std::int64_t i = 0; i < height.output; ++i)
                for (std::int64_t j = 0; j < width.output; ++j)
                    for (std::int64_t c = 0; c < channels; ++c) {
                        places.clear();
                        std::int64_t in_padding = 0;
                        for (std::int64_t a = 0; a < height.kernel; ++a)
                            for (std::int64_t b = 0; b < width.kernel; ++b) {
                                const std::int64_t y = i * height.stride + a - height.pad_begin;
                                const std::int64_t x = j * width.stride + b - width.pad_begin;
                                if (y < 0 || y >= height.input || x < 0 || x >= width.input) {
                                    // The padding is the same on both sides; what is behind it counts never.
                                    in_padding +=
                                        y < height.input + height.pad_begin && x < width.input + width.pad_begin ? 1
                                                                                                                 : 0;
                                    continue;
                                }
                                places.push_back(static_cast<std::size_t>(
                                    ((n * height.input + y) * width.input + x) * channels + c));
                            }
                        f(static_cast<std::size_t>(((n * height.output + i) * width.output + j) * channels + c), places,
                          static_cast<double>(std::ssize(places) + (counts_padding ? in_padding : 0)));
                    }
    }

    [[nodiscard]] Doubles forward(std::span<const float> x) const {
        Doubles y(static_cast<std::size_t>(output_size()));
        for_each_window([&](std::size_t at, const std::vector<std::size_t>& places, double elements) {
            if (maximum) {
                y[at] = static_cast<double>(x[first_largest(x, places)]);
            } else {
                for (const std::size_t place : places) y[at] += static_cast<double>(x[place]);
                y[at] /= elements;
            }
        });
        return y;
    }

    [[nodiscard]] Doubles input_gradient(std::span<const float> dy, std::span<const float> x) const {
        Doubles dx(static_cast<std::size_t>(input_size()));
        for_each_window([&](std::size_t at, const std::vector<std::size_t>& places, double elements) {
            const auto gradient = static_cast<double>(dy[at]);
            if (maximum) {
                dx[first_largest(x, places)] += gradient;
            } else {
                for (const std::size_t place : places) dx[place] += gradient / elements;
            }
        });
        return dx;
    }

private:
    [[nodiscard]] static std::size_t first_largest(std::span<const float> x, const std::vector<std::size_t>& places) {
        std::size_t best = places.front();
        for (const std::size_t place : places) {
            if (x[place] > x[best]) best = place;
        }
        return best;
    }
};

}  // namespace reference
