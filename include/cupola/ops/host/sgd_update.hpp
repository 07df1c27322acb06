// SPDX-License-Identifier: Apache-2.0
//
// The pass of stochastic gradient descent on `Host`.
#pragma once

#include <cstdint>
#include <type_traits>

#include <cupola/device/host.hpp>
#include <cupola/ops/sgd_update.hpp>
#include <cupola/tensor/algorithms.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace ops {

template <>
struct SgdUpdate<Host> {
    static void run(const HostContext& context, float* w, const float* gradient, float* velocity, std::int64_t count,
                    const SgdConstants& k);
};

#ifndef CUPOLA_OPS

CUPOLA_INLINE void SgdUpdate<Host>::run(const HostContext& context, float* w, const float* gradient, float* velocity,
                                        std::int64_t count, const SgdConstants& k) {
    const GradientAt g_at(k.gradient);
    const float rate = k.rate, momentum = k.momentum, decoupled = k.decoupled;
    const bool plain = k.gradient.scale == 1.0F && k.gradient.clip == 0.0F && k.gradient.weight_decay == 0.0F;
    if (momentum == 0.0F && decoupled == 0.0F && plain) {
        // The most used case has its terms and no more: half the time where the parameters are in the cache.
        const float l2 = k.gradient.l2;
        for_each_block(context, count, [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
            for (std::int64_t i = begin; i < end; ++i) w[i] -= rate * (gradient[i] + l2 * w[i]);
        });
        return;
    }
    if (momentum == 0.0F) {
        for_each_block(context, count, [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
            for (std::int64_t i = begin; i < end; ++i) w[i] -= rate * (decoupled * w[i] + g_at(gradient[i], w[i]));
        });
        return;
    }
    // A type, because g++ -O2 makes scalar code of a loop in which a flag is asked.
    const auto with_momentum = [&](auto nesterov) {
        for_each_block(context, count, [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
            for (std::int64_t i = begin; i < end; ++i) {
                const float g = g_at(gradient[i], w[i]);
                const float v = momentum * velocity[i] + g;
                velocity[i] = v;
                float direction = v;
                if constexpr (nesterov()) direction = g + momentum * v;
                w[i] -= rate * (decoupled * w[i] + direction);
            }
        });
    };
    k.nesterov ? with_momentum(std::true_type{}) : with_momentum(std::false_type{});
}

#endif

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
