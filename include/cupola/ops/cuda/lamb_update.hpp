// SPDX-License-Identifier: Apache-2.0
//
// LAMB on `Cuda`: the moments and the norms, the trust from the norms, the update. Nothing waits: the trust stays on
// the device. The norms are added in an order that depends on the count alone.
#pragma once

#include <cstdint>

#include <cupola/device/cuda.hpp>
#include <cupola/ops/cuda/impl/launch_update.cuh>
#include <cupola/ops/cuda/impl/update_elements.hpp>
#include <cupola/ops/lamb_update.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace ops {

template <>
struct LambUpdate<Cuda> {
    /// The constants are by value, or on the device, where they are read when the kernel runs. In a captured step they
    /// are where that step has them.
    static void run(const CudaContext& context, float* w, const float* gradient, float* first_moment,
                    float* second_moment, std::int64_t count, impl::ConstantsOf<LambConstants> constants) {
        if (count <= 0 || !impl::place_constants(context, constants)) return;
        float* const rate = impl::result_of_sum<float>(context);
        impl::reduce_update<impl::TwoSums>(context, count,
                                           impl::LambMoments{constants, w, gradient, first_moment, second_moment},
                                           impl::LambRate{constants, rate});
        impl::launch_update(context, count, impl::aligned_for_packs(w, first_moment, second_moment),
                            impl::LambAt{constants, w, first_moment, second_moment, rate});
    }
};

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
