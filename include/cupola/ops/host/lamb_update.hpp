// SPDX-License-Identifier: Apache-2.0
//
// The two passes of LAMB on `Host`.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include <cupola/device/host.hpp>
#include <cupola/ops/host/impl/square_root.hpp>
#include <cupola/ops/lamb_update.hpp>
#include <cupola/tensor/algorithms.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace ops {

template <>
struct LambUpdate<Host> {
    static void run(const HostContext& context, float* w, const float* gradient, float* first_moment,
                    float* second_moment, std::int64_t count, const LambConstants& k);

private:
    [[nodiscard, gnu::always_inline]] static float direction(float m, float v, float w, const LambConstants& k) {
        return m * k.first_scale / (impl::square_root(v) * k.root_scale + k.epsilon) + k.weight_decay * w;
    }

    /// The sum of the squares of u. A function of its own: g++ reads what a lambda captured anew in each turn of a loop
    /// with a sum, and then gathers.
    [[nodiscard]] static double move_moments(const float* w, const float* gradient, float* first_moment,
                                             float* second_moment, std::int64_t count, LambConstants k);

    static double trust(const HostContext& context, const float* w, std::int64_t count, double squares);
};

#ifndef CUPOLA_OPS

CUPOLA_INLINE void LambUpdate<Host>::run(const HostContext& context, float* w, const float* gradient,
                                         float* first_moment, float* second_moment, std::int64_t count,
                                         const LambConstants& k) {
    const double squares = sum_blocks(context, count, [=](std::int64_t begin, std::int64_t end) {
        return move_moments(w + begin, gradient + begin, first_moment + begin, second_moment + begin, end - begin, k);
    });
    const float rate = k.adapt ? static_cast<float>(k.rate * trust(context, w, count, squares)) : k.rate;
    for_each_block(context, count, [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
        for (std::int64_t i = begin; i < end; ++i) w[i] -= rate * direction(first_moment[i], second_moment[i], w[i], k);
    });
}

CUPOLA_INLINE double LambUpdate<Host>::trust(const HostContext& context, const float* w, std::int64_t count,
                                             double squares) {
    const double of_w = sum_of_squares(context, {w, static_cast<std::size_t>(count)});
    return of_w > 0 && squares > 0 ? std::sqrt(of_w / squares) : 1.0;
}

[[gnu::noinline]] CUPOLA_INLINE double LambUpdate<Host>::move_moments(const float* w, const float* gradient,
                                                                      float* first_moment, float* second_moment,
                                                                      std::int64_t count, LambConstants k) {
    const GradientAt g_at(k.gradient);
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t i = 0; i < count; ++i) {
        const float g = g_at.squarable(gradient[i], w[i]);
        const float m = first_moment[i] + k.first_fraction * (g - first_moment[i]);
        const float v = second_moment[i] + k.second_fraction * (g * g - second_moment[i]);
        first_moment[i] = m;
        second_moment[i] = v;
        const auto u = static_cast<double>(direction(m, v, w[i], k));
        sum += u * u;
    }
    return sum;
}

#endif

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
