// SPDX-License-Identifier: Apache-2.0
//
// The pass of RMSProp on `Host`.
#pragma once

#include <cstdint>
#include <type_traits>

#include <cupola/device/host.hpp>
#include <cupola/ops/host/impl/square_root.hpp>
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
    // A type, because g++ -O2 makes scalar code of a loop in which a flag is asked.
    const auto update = [&](auto with_momentum) {
        for_each_block(context, count, [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
            for (std::int64_t i = begin; i < end; ++i) {
                float kept = 0;  // before the rest: g++ fuses the first product of a sum
                if constexpr (with_momentum()) kept = k.momentum * velocity[i];
                const float g = g_at.squarable(gradient[i], w[i]);
                const float s = mean_square[i] + k.fraction * (g * g - mean_square[i]);
                mean_square[i] = s;
                const float step = k.rate * g * impl::inverse_square_root(s + k.epsilon);
                if constexpr (with_momentum()) {
                    const float v = kept + step;
                    velocity[i] = v;
                    w[i] -= v;
                } else {
                    w[i] -= step;
                }
            }
        });
    };
    k.momentum == 0.0F ? update(std::false_type{}) : update(std::true_type{});
}

#endif

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
