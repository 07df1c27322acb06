// SPDX-License-Identifier: Apache-2.0
//
// The pass of stochastic gradient descent on `Host`.
#pragma once

#include <cstdint>

#include <cupola/device/host.hpp>
#include <cupola/ops/sgd_update.hpp>
#include <cupola/tensor/algorithms.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace ops {

template <>
struct SgdUpdate<Host> {
    static void run(const HostContext& context, float* w, const float* gradient, float* velocity, std::int64_t count,
                    const SgdConstants& k) {
        const auto [rate, momentum, nesterov, l2, decoupled] = k;
        if (momentum == 0.0F) {
            for_each_block(context, count, [=, rate = rate, l2 = l2, decoupled = decoupled](std::int64_t begin, std::int64_t end) {
#pragma omp simd
                for (std::int64_t i = begin; i < end; ++i) {
                    const float g = gradient[i] + l2 * w[i];
                    w[i] -= rate * (decoupled * w[i] + g);
                }
            });
            return;
        }
        for_each_block(context, count, [=, rate = rate, momentum = momentum, l2 = l2, decoupled = decoupled,
                                        ahead = nesterov ? momentum : 0.0F,
                                        now = nesterov ? 1.0F : 0.0F](std::int64_t begin, std::int64_t end) {
#pragma omp simd
            for (std::int64_t i = begin; i < end; ++i) {
                const float g = gradient[i] + l2 * w[i];
                const float v = momentum * velocity[i] + g;
                velocity[i] = v;
                const float direction = now == 0.0F ? v : g + ahead * v;
                w[i] -= rate * (decoupled * w[i] + direction);
            }
        });
    }
};

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
