// SPDX-License-Identifier: Apache-2.0
//
// The kernels of an optimiser's formula on `Cuda`: one kernel for consecutive segments and the moving averages after
// them or, for a formula with a measure, three per segment: the measure with its sums, the rate computed from them, and
// the update. The host never waits: the rate stays on the device. The sums are added in an order that depends only on
// the count.
#pragma once

#include <concepts>
#include <cstdint>

#include <cupola/device/cuda.hpp>
#include <cupola/ops/cuda/impl/joined_updates.cuh>
#include <cupola/ops/cuda/impl/launch_update.cuh>
#include <cupola/ops/element_update.hpp>
#include <cupola/ops/impl/kernel_parts/update_elements.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace ops {

template <>
struct ElementUpdate<Cuda> {
    /// In a captured step, the constants are read from the device when the kernels run.
    template <UpdateFormula F>
    static void run(const CudaContext& context, const UpdateConstants<F>& constants, float* w, const float* gradient,
                    const FormulaState<F>& state, std::int64_t count) {
        if (count <= 0) return;
        const impl::ConstantsOf<UpdateConstants<F>> k = impl::placed_constants(context, constants);
        bool packs = impl::aligned_for_packs(w);
        if constexpr (impl::UpdateAt<F>::takes_gradient) packs = packs && impl::aligned_for_packs(gradient);
        for (const float* const arena : state.arena) packs = packs && impl::aligned_for_packs(arena);
        if constexpr (MeasuringFormula<F>) {
            auto* const rate = impl::result_of_sum<float>(context);
            impl::reduce_update<impl::TwoSums>(context, count, impl::MeasureAt<F>{k, w, gradient, state},
                                               impl::RateTo<F>{k, rate});
            impl::launch_update(context, count, packs, impl::UpdateAt<F>{k, w, gradient, state, rate});
        } else {
            if constexpr (std::same_as<F, impl::MovingAverageFormula>) {
                auto* const updates = context.joined_as<impl::JoinedUpdatesBase>();
                if (updates != nullptr && updates->add_averages(k, w, gradient, count)) return;
            }
            if (!impl::joined_updates<F>(context).takes(w)) context.launch_joined();
            impl::joined_updates<F>(context).add({k, w, gradient, state, nullptr}, count, packs);
        }
    }
};

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
