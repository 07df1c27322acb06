// SPDX-License-Identifier: Apache-2.0
//
// The pass of Adam on `Cuda`: one kernel.
#pragma once

#include <cstdint>

#include <cupola/device/cuda.hpp>
#include <cupola/ops/adam_update.hpp>
#include <cupola/ops/cuda/impl/launch_update.cuh>
#include <cupola/ops/cuda/impl/update_elements.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace ops {

template <>
struct AdamUpdate<Cuda> {
    /// The constants are by value, or on the device, where they are read when the kernel runs. In a captured step they
    /// are where that step has them.
    static void run(const CudaContext& context, float* w, const float* gradient, float* first_moment,
                    float* second_moment, std::int64_t count, impl::ConstantsOf<AdamConstants> constants) {
        if (!impl::place_constants(context, constants)) return;
        impl::launch_update(context, count, impl::aligned_for_packs(w, gradient, first_moment, second_moment),
                            impl::AdamAt{constants, w, gradient, first_moment, second_moment});
    }
};

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
