// SPDX-License-Identifier: Apache-2.0
//
// How an optimiser's passes are queued, in a step that is captured (see device/step_constants.hpp) and outside one.
#pragma once

#include <cstdint>

#include <cupola/device/cuda.hpp>
#include <cupola/device/step_constants.hpp>
#include <cupola/ops/cuda/impl/launch_packs.cuh>
#include <cupola/ops/cuda/impl/update_elements.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

/// Whether an update is to launch: not while a step only gathers its constants.
[[nodiscard]] inline bool update_launches(const CudaContext& context) {
    const StepConstants* const step = context.step_scalars().constants;
    return step == nullptr || step->launching();
}

/// In a captured step, lets the launches read `constants` on the device. Answers whether there are to be launches;
/// `launched_as` tells them apart where the constants' values choose among them.
template <class K>
[[nodiscard]] bool place_constants(const CudaContext& context, ConstantsOf<K>& constants, int launched_as = 0) {
    StepConstants* const step = context.step_scalars().constants;
    if (step != nullptr && constants.on_device == nullptr)
        constants.on_device = step->take(constants.value, launched_as);
    return update_launches(context);
}

/// Queues body.at for [0, count) by 16 bytes where `packs`, to do nothing once the training is no longer healthy.
template <class Body>
void launch_update(const CudaContext& context, std::int64_t count, bool packs, const Body& body) {
    launch_elementwise<float>(context, count, packs, WhileHealthy<Body>{body, context.step_scalars().healthy});
}

/// The same for a sum whose elements change something.
template <class V, class Functor, class Finish>
void reduce_update(const CudaContext& context, std::int64_t count, const Functor& functor, const Finish& finish) {
    reduce<V>(context, count, WhileHealthy<Functor>{functor, context.step_scalars().healthy}, finish);
}

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
