// SPDX-License-Identifier: Apache-2.0
//
// A launch over elements in which each thread processes 16 bytes.
#pragma once

#include <cstdint>

#include <cupola/ops/cuda/impl/launch.cuh>
#include <cupola/ops/impl/kernel_parts/pack.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Queues body.at for [0, count), n elements per thread where `packs` says that all arrays are aligned.
template <int n, class Body>
void launch_packs(const CudaContext& context, std::int64_t count, bool packs, const Body& body) {
    if (packs) {
        const InPacks<n, Body> each{count, body};
        launch(context, each.size(), each);
    } else {
        launch(context, count, InPacks<1, Body>{count, body});
    }
}

/// The same with 16 bytes of T per thread.
template <CudaElement T, class Body>
void launch_elementwise(const CudaContext& context, std::int64_t count, bool packs, const Body& body) {
    launch_packs<pack_size<T>>(context, count, packs, body);
}

}}}  // namespace cupola::CUPOLA_ABI::impl
