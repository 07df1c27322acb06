// SPDX-License-Identifier: Apache-2.0
//
// LARS on `Cuda`: the norms, the trust from them, the update. Nothing waits: the trust stays on the device. The norms
// are added in an order that depends on the count alone.
#pragma once

#include <cstdint>

#include <cupola/device/cuda.hpp>
#include <cupola/ops/cuda/impl/launch_update.cuh>
#include <cupola/ops/cuda/impl/update_elements.hpp>
#include <cupola/ops/lars_update.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace ops {

template <>
struct LarsUpdate<Cuda> {
    /// The constants are by value, or on the device, where they are read when the kernel runs. In a captured step they
    /// are where that step has them.
    static void run(const CudaContext& context, float* w, const float* gradient, float* velocity, std::int64_t count,
                    impl::ConstantsOf<LarsConstants> constants) {
        if (count <= 0) return;
        const bool adapts = constants.on_device != nullptr || constants.value.adapt;
        if (!impl::place_constants(context, constants, adapts ? 1 : 0)) return;
        float* const rate = adapts ? impl::result_of_sum<float>(context) : nullptr;
        if (adapts) {
            impl::reduce_update<impl::TwoSums>(context, count, impl::LarsSquares{constants, w, gradient},
                                               impl::LarsRate{constants, rate});
        }
        impl::launch_update(context, count, impl::aligned_for_packs(w, gradient, velocity),
                            impl::LarsAt{constants, w, gradient, velocity, rate});
    }
};

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
