// SPDX-License-Identifier: Apache-2.0
//
// Launches of an optimiser's passes, in a captured step (see device/cuda/step_constants.hpp) and outside one.
#pragma once

#include <cstdint>

#include <cupola/device/cuda.hpp>
#include <cupola/device/cuda/step_constants.hpp>
#include <cupola/ops/cuda/impl/launch_packs.cuh>
#include <cupola/ops/impl/kernel_parts/update_elements.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The constants as passed to the launches of an update: by value or, in a captured step, by their address on the
/// device.
template <class K>
[[nodiscard]] ConstantsOf<K> placed_constants(const CudaContext& context, const K& constants) {
    StepConstants* const step = context.step_scalars().constants;
    if (step == nullptr) return constants;
    return step->take<K>();
}

/// Queues body.at for [0, count), by 16 bytes where `packs`; the kernel does nothing if the training is no longer
/// healthy.
template <class Body>
void launch_update(const CudaContext& context, std::int64_t count, bool packs, const Body& body) {
    launch_elementwise<float>(context, count, packs, WhileHealthy<Body>{body, context.step_scalars().healthy});
}

/// The same for a sum whose functor also changes elements.
template <class V, class Functor, class Finish>
void reduce_update(const CudaContext& context, std::int64_t count, const Functor& functor, const Finish& finish) {
    reduce<V>(context, count, WhileHealthy<Functor>{functor, context.step_scalars().healthy}, finish);
}

}}}  // namespace cupola::CUPOLA_ABI::impl
