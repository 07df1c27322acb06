// SPDX-License-Identifier: Apache-2.0
//
// The pass of RMSProp on `Host`.
#pragma once

#include <cstdint>

#include <cupola/device/host.hpp>
#include <cupola/ops/onednn/impl/square_root.hpp>
#include <cupola/ops/rms_prop_update.hpp>
#include <cupola/tensor/algorithms.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace ops {

template <>
struct RmsPropUpdate<Host> {
    static void run(const HostContext& context, float* w, const float* gradient, float* mean_square, float* velocity,
                    std::int64_t count, const RmsPropConstants& k);
};

#ifndef CUPOLA_OPS

CUPOLA_INLINE void RmsPropUpdate<Host>::run(const HostContext& context, float* w, const float* gradient,
                                            float* mean_square, float* velocity, std::int64_t count,
                                            const RmsPropConstants& k) {
    const GradientAt g_at(k.gradient);
    // The mean square moves; what comes back is the step without momentum.
    const auto step = [=](std::int64_t i) __attribute__((always_inline)) {
        const float g = g_at(gradient[i], w[i]);
        const float s = mean_square[i] + k.share * (g * g - mean_square[i]);
        mean_square[i] = s;
        return k.rate * g * impl::inverse_square_root(s + k.epsilon);
    };
    if (k.momentum == 0.0F) {
        for_each_block(context, count, [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
            for (std::int64_t i = begin; i < end; ++i) w[i] -= step(i);
        });
        return;
    }
    for_each_block(context, count, [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
        for (std::int64_t i = begin; i < end; ++i) {
            const float v = k.momentum * velocity[i] + step(i);
            velocity[i] = v;
            w[i] -= v;
        }
    });
}

#endif

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
