// SPDX-License-Identifier: Apache-2.0
//
// The passes of LARS on `Host`: the norms, then the update.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include <cupola/device/host.hpp>
#include <cupola/ops/host/gradient_norm.hpp>
#include <cupola/ops/lars_update.hpp>
#include <cupola/tensor/algorithms.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace ops {

template <>
struct LarsUpdate<Host> {
    static void run(const HostContext& context, float* w, const float* gradient, float* velocity, std::int64_t count,
                    const LarsConstants& k);

private:
    static double trust(const HostContext& context, const float* w, const float* gradient, std::int64_t count,
                        const LarsConstants& k);
};

#ifndef CUPOLA_OPS

CUPOLA_INLINE void LarsUpdate<Host>::run(const HostContext& context, float* w, const float* gradient, float* velocity,
                                         std::int64_t count, const LarsConstants& k) {
    const GradientAt g_at(k.gradient);
    const float rate = k.adapt ? static_cast<float>(k.rate * trust(context, w, gradient, count, k)) : k.rate;
    for_each_block(context, count, [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
        for (std::int64_t i = begin; i < end; ++i) {
            const float g = g_at(gradient[i], w[i]) + k.weight_decay * w[i];
            const float v = k.momentum * velocity[i] + rate * g;
            velocity[i] = v;
            w[i] -= v;
        }
    });
}

CUPOLA_INLINE double LarsUpdate<Host>::trust(const HostContext& context, const float* w, const float* gradient,
                                             std::int64_t count, const LarsConstants& k) {
    const double of_w = std::sqrt(sum_of_squares(context, {w, static_cast<std::size_t>(count)}));
    const double of_g = std::sqrt(GradientNorm<Host>::sum_of_squares(context, w, gradient, count, k.gradient));
    return of_w > 0 && of_g > 0 ? k.coefficient * of_w / (of_g + k.weight_decay * of_w) : 1.0;
}

#endif

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
