// SPDX-License-Identifier: Apache-2.0
//
// The pass of a moving average on `Host`.
#pragma once

#include <cstdint>

#include <cupola/device/host.hpp>
#include <cupola/ops/moving_average_update.hpp>
#include <cupola/tensor/algorithms.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace ops {

template <>
struct MovingAverageUpdate<Host> {
    static void run(const HostContext& context, float* average, const float* w, std::int64_t count, float rate);
};

#ifndef CUPOLA_OPS

CUPOLA_INLINE void MovingAverageUpdate<Host>::run(const HostContext& context, float* average, const float* w,
                                                  std::int64_t count, float rate) {
    for_each_block(context, count, [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
        for (std::int64_t i = begin; i < end; ++i) average[i] -= rate * (average[i] - w[i]);
    });
}

#endif

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
