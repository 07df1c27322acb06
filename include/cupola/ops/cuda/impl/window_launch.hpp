// SPDX-License-Identifier: Apache-2.0
//
// Launches of the computations over windows of an image. An `Element<T, n>` processes n channels of one pixel; its
// first member is a PoolExtents, and the values given here are its other members.
#pragma once

#include <cstdint>

#include <cupola/device/cuda.hpp>
#include <cupola/ops/cuda/impl/launch.cuh>
#include <cupola/ops/impl/kernel_parts/pack.hpp>
#include <cupola/ops/impl/kernel_parts/pool_elements.hpp>
#include <cupola/ops/pooling.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Queues `Element` for each output of the windows: for packs of channels, which must divide the channels and be
/// aligned, or for single channels.
template <template <class, int> class Element, class T, class... Values>
void launch_over_outputs(const CudaContext& context, const PoolingShape& windows, std::int64_t batch, bool in_packs,
                         const Values&... values) {
    constexpr int n = pack_size<T>;
    const PoolExtents extents(windows, in_packs ? n : 1);
    if (in_packs) {
        launch(context, extents.outputs(batch), Element<T, n>{extents, values...});
    } else {
        launch(context, extents.outputs(batch), Element<T, 1>{extents, values...});
    }
}

/// The same for each input.
template <template <class, int> class Element, class T, class... Values>
void launch_over_inputs(const CudaContext& context, const PoolingShape& windows, std::int64_t batch, bool in_packs,
                        const Values&... values) {
    constexpr int n = pack_size<T>;
    const PoolExtents extents(windows, in_packs ? n : 1);
    if (in_packs) {
        launch(context, extents.inputs(batch), Element<T, n>{extents, values...});
    } else {
        launch(context, extents.inputs(batch), Element<T, 1>{extents, values...});
    }
}

}}}  // namespace cupola::CUPOLA_ABI::impl
