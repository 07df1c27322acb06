// SPDX-License-Identifier: Apache-2.0
//
// The least and the largest of many floats, their sum, the sum of their squares, and how many are zero, in one pass of
// vector instructions. One value that is not finite makes the sums not finite.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include <cupola/core/abi.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The sums and the extremes of the values so far.
struct HistogramMoments {
    std::int64_t zeros = 0;
    float minimum = std::numeric_limits<float>::infinity(), maximum = -minimum;
    double sum = 0, sum_of_squares = 0;

    /// Sixteen sums side by side, which the compiler keeps in vector registers; in double every 2,048 values.
    void add(std::span<const float> values) {
        constexpr std::size_t lanes = 16, added_in_float = 2048;
        std::size_t i = 0;
        while (values.size() - i >= lanes) {
            std::array<float, lanes> sums{}, squares{}, least{}, most{};
            std::array<std::int32_t, lanes> nothings{};
            least.fill(minimum);
            most.fill(maximum);
            for (const std::size_t end = std::min(values.size(), i + added_in_float); end - i >= lanes; i += lanes) {
                const float* v = values.data() + i;
#pragma omp simd
                for (std::size_t k = 0; k < lanes; ++k) {
                    sums[k] += v[k];
                    squares[k] += v[k] * v[k];
                    least[k] = v[k] < least[k] ? v[k] : least[k];
                    most[k] = v[k] > most[k] ? v[k] : most[k];
                    nothings[k] += v[k] == 0.0F ? 1 : 0;
                }
            }
            for (std::size_t k = 0; k < lanes; ++k) {
                sum += static_cast<double>(sums[k]);
                sum_of_squares += static_cast<double>(squares[k]);
                zeros += nothings[k];
            }
            minimum = *std::min_element(least.begin(), least.end());
            maximum = *std::max_element(most.begin(), most.end());
        }
        for (; i < values.size(); ++i) {
            const float v = values[i];
            sum += static_cast<double>(v);
            sum_of_squares += static_cast<double>(v) * static_cast<double>(v);
            minimum = v < minimum ? v : minimum;
            maximum = v > maximum ? v : maximum;
            zeros += v == 0.0F ? 1 : 0;
        }
    }
};

}}}  // namespace cupola::CUPOLA_ABI::impl
