// SPDX-License-Identifier: Apache-2.0
//
// The pass of a moving average on `Cuda`: one kernel.
#pragma once

#include <cstdint>

#include <cupola/device/cuda.hpp>
#include <cupola/ops/cuda/impl/launch_update.cuh>
#include <cupola/ops/cuda/impl/update_elements.hpp>
#include <cupola/ops/moving_average_update.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace ops {

template <>
struct MovingAverageUpdate<Cuda> {
    /// The rate is by value, or on the device, where it is read when the kernel runs. In a captured step it is where
    /// that step has it.
    static void run(const CudaContext& context, float* average, const float* w, std::int64_t count,
                    impl::ConstantsOf<float> rate) {
        if (!impl::place_constants(context, rate)) return;
        impl::launch_update(context, count, impl::aligned_for_packs(average, w),
                            impl::MovingAverageAt{average, w, rate});
    }
};

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
