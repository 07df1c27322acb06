// SPDX-License-Identifier: Apache-2.0
//
// Conversions of element types on `Cuda`, eight elements a thread.
#pragma once

#include <cstdint>

#include <cupola/device/cuda.hpp>
#include <cupola/ops/convert.hpp>
#include <cupola/ops/cuda/impl/launch.cuh>
#include <cupola/ops/cuda/impl/pack.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

/// to = from, with the bits that To's constructor gives it: those of every device, and of a BFloat16 a NaN's too.
template <class From, class To>
struct ConvertAt {
    const From* from;
    To* to;

    template <int n>
    CUPOLA_HOST_DEVICE void at(std::int64_t i) const {
        float value[n];
        load_floats<n>(from + i, value);
        Pack<To, n> pack;
        CUPOLA_UNROLL
        for (int k = 0; k < n; ++k) pack.element[k] = To(value[k]);
        *reinterpret_cast<Pack<To, n>*>(to + i) = pack;
    }
};

}  // namespace impl

namespace ops {

template <>
struct Convert<Cuda> {
    template <impl::CudaElement From, impl::CudaElement To>
    static void run(const CudaContext& context, const From* from, To* to, std::int64_t count) {
        const impl::ConvertAt<From, To> body{from, to};
        if (impl::aligned_for_packs(from, to)) {
            const impl::InPacks<8, impl::ConvertAt<From, To>> each{count, body};
            impl::launch(context, each.size(), each);
        } else {
            impl::launch(context, count, impl::InPacks<1, impl::ConvertAt<From, To>>{count, body});
        }
    }
};

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
