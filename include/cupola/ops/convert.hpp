// SPDX-License-Identifier: Apache-2.0
//
// Conversion between element types: to[i] = from[i], rounded to nearest where `To` has fewer bits.
#pragma once

#include <cstdint>

#include <cupola/ops/elementwise.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

/// The result has the bits of To's constructor, on every device; for BFloat16 this includes NaNs.
struct ConvertFormula {
    template <class To>
    CUPOLA_HOST_DEVICE void operator()(To& to, float from) const {
        to = To(from);
    }
};

}  // namespace impl

namespace ops {

/// For conversions between float and BFloat16 or Float16, on a device that computes in them.
template <class Device>
struct Convert {
    template <class From, class To>
        requires(ComputesElements<Device, From> && ComputesElements<Device, To>)
    static void run(const typename Device::Context& context, const From* from, To* to, std::int64_t count) {
        for_each_element(context, count, impl::ConvertFormula{}, to, from);
    }
    /// The same for one of several conversions in a row of which none reads what another writes: a device may join
    /// them.
    template <class From, class To>
        requires(ComputesElements<Device, From> && ComputesElements<Device, To>)
    static void run_joined(const typename Device::Context& context, const From* from, To* to, std::int64_t count) {
        if constexpr (requires { join_conversion(context, from, to, count); }) {
            join_conversion(context, from, to, count);
        } else {
            run(context, from, to, count);
        }
    }
};

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
