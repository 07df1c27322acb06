// SPDX-License-Identifier: Apache-2.0
//
// Conversions of element types on `Host`.
#pragma once

#include <cstdint>

#include <cupola/device/host.hpp>
#include <cupola/ops/convert.hpp>
#include <cupola/ops/host/impl/element.hpp>
#include <cupola/tensor/algorithms.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace ops {

template <>
struct Convert<Host> {
    template <impl::HostElement From, impl::HostElement To>
    static void run(const HostContext& context, const From* from, To* to, std::int64_t count) {
        for_each_block(context, count, [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
            for (std::int64_t i = begin; i < end; ++i) impl::put(to[i], static_cast<float>(from[i]));
        });
    }
};

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
