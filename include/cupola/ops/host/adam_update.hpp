// SPDX-License-Identifier: Apache-2.0
//
// The pass of Adam on `Host`.
#pragma once

#include <cstdint>

#include <cupola/device/host.hpp>
#include <cupola/ops/adam_update.hpp>
#include <cupola/ops/host/impl/square_root.hpp>
#include <cupola/tensor/algorithms.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace ops {

template <>
struct AdamUpdate<Host> {
    static void run(const HostContext& context, float* w, const float* gradient, float* first_moment,
                    float* second_moment, std::int64_t count, const AdamConstants& k);
};

#ifndef CUPOLA_OPS

CUPOLA_INLINE void AdamUpdate<Host>::run(const HostContext& context, float* w, const float* gradient,
                                         float* first_moment, float* second_moment, std::int64_t count,
                                         const AdamConstants& k) {
    const GradientAt g_at(k.gradient);
    for_each_block(context, count, [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
        for (std::int64_t i = begin; i < end; ++i) {
            const float g = g_at.squarable(gradient[i], w[i]);
            const float m = first_moment[i] + k.first_fraction * (g - first_moment[i]);
            const float v = second_moment[i] + k.second_fraction * (g * g - second_moment[i]);
            first_moment[i] = m;
            second_moment[i] = v;
            const float decayed = w[i] - k.decoupled * w[i];
            w[i] = decayed - k.step_size * m / (impl::square_root(v) * k.root_scale + k.epsilon);
        }
    });
}

#endif

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
