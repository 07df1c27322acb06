// SPDX-License-Identifier: Apache-2.0
//
// The segments of an update whose elements are independent of each other: on a device where each pass is a launch,
// neighbouring segments with equal coefficients and factors are one range.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cupola/device/device.hpp>
#include <cupola/optim/optimizer.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Calls each(segment) for each range that is one pass. A range includes the arena's padding: zeros whose gradient is
/// zero, which the pass leaves unchanged according to `keeps_zeros`.
template <class Device, class Each>
void for_each_contiguous_segment(const Update<Device>& u, bool keeps_zeros, const Each& each) {
    constexpr std::int64_t line = alignment / sizeof(float);  // each parameter begins at a multiple of it
    bool joins = false;
    if constexpr (requires { Device::joins_segments; }) joins = Device::joins_segments && keeps_zeros;
    for (std::size_t i = 0; i < u.segments.size();) {
        Segment range = u.segments[i++];
        for (; joins && i < u.segments.size(); ++i) {
            const Segment& next = u.segments[i];
            if (!next.updates_like(range) || next.offset != (range.offset + range.size + line - 1) / line * line) break;
            range.size = next.offset + next.size - range.offset;
            range.rank = 0;
        }
        each(range);
    }
}

}}}  // namespace cupola::CUPOLA_ABI::impl
