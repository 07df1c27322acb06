// SPDX-License-Identifier: Apache-2.0
//
// Element types into one another: to[i] = from[i], rounded to nearest where `To` has fewer bits.
#pragma once

#include <cstdint>

#include <cupola/ops/elementwise.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

/// With the bits that To's constructor gives: those of every device, and of a BFloat16 a NaN's too.
struct ConvertFormula {
    template <class To>
    CUPOLA_HOST_DEVICE void operator()(To& to, float from) const {
        to = To(from);
    }
};

}  // namespace impl

namespace ops {

/// For float to BFloat16 or Float16 and back, where the device computes in them.
template <class Device>
struct Convert {
    template <class From, class To>
        requires(ComputesElements<Device, From> && ComputesElements<Device, To>)
    static void run(const typename Device::Context& context, const From* from, To* to, std::int64_t count) {
        for_each_element(context, count, impl::ConvertFormula{}, to, from);
    }
};

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
