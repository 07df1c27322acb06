// SPDX-License-Identifier: Apache-2.0
//
// The sum of the squares of a gradient on `Host`.
#pragma once

#include <cstdint>

#include <cupola/device/host.hpp>
#include <cupola/ops/gradient_norm.hpp>
#include <cupola/tensor/algorithms.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace ops {

template <>
struct GradientNorm<Host> {
    [[nodiscard]] static double sum_of_squares(const HostContext& context, const float* w, const float* gradient,
                                               std::int64_t count, const GradientTerms& terms);

private:
    // A separate function: in a loop with a sum, g++ reloads a lambda's captures in each iteration, and then gathers.
    [[nodiscard]] static double sum_of_span(const float* w, const float* gradient, std::int64_t count, GradientAt g_at);
};

inline double GradientNorm<Host>::sum_of_squares(const HostContext& context, const float* w, const float* gradient,
                                                 std::int64_t count, const GradientTerms& terms) {
    const GradientAt g_at(terms);
    return sum_blocks(context, count, [=](std::int64_t begin, std::int64_t end) {
        return sum_of_span(w + begin, gradient + begin, end - begin, g_at);
    });
}

[[gnu::noinline]] inline double GradientNorm<Host>::sum_of_span(const float* w, const float* gradient,
                                                                std::int64_t count, GradientAt g_at) {
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t i = 0; i < count; ++i) {
        const auto g = static_cast<double>(g_at(gradient[i], w[i]));
        sum += g * g;
    }
    return sum;
}

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
