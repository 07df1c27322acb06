// SPDX-License-Identifier: Apache-2.0
//
// The pass of stochastic gradient descent on `Cuda`: one kernel.
#pragma once

#include <cstdint>

#include <cupola/device/cuda.hpp>
#include <cupola/ops/cuda/impl/launch_update.cuh>
#include <cupola/ops/cuda/impl/update_elements.hpp>
#include <cupola/ops/sgd_update.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace ops {

template <>
struct SgdUpdate<Cuda> {
    /// The constants are by value, or on the device, where they are read when the kernel runs. In a captured step they
    /// are where that step has them.
    static void run(const CudaContext& context, float* w, const float* gradient, float* velocity, std::int64_t count,
                    impl::ConstantsOf<SgdConstants> constants) {
        if (!impl::place_constants(context, constants)) return;
        impl::launch_update(context, count, impl::aligned_for_packs(w, gradient, velocity),
                            impl::SgdAt{constants, w, gradient, velocity});
    }
};

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
