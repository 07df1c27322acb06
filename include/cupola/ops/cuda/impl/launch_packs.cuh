// SPDX-License-Identifier: Apache-2.0
//
// A launch over elements that each thread takes 16 bytes of.
#pragma once

#include <cstdint>

#include <cupola/ops/cuda/impl/launch.cuh>
#include <cupola/ops/cuda/impl/pack.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

/// Queues body.at for [0, count), by 16 bytes of T where `packs` says that all of its arrays are aligned for that.
template <CudaElement T, class Body>
void launch_elementwise(const CudaContext& context, std::int64_t count, bool packs, const Body& body) {
    if (packs) {
        const InPacks<pack_size<T>, Body> each{count, body};
        launch(context, each.size(), each);
    } else {
        launch(context, count, InPacks<1, Body>{count, body});
    }
}

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
