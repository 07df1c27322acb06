// SPDX-License-Identifier: Apache-2.0
//
// PartCopies: how the devices of a group, which has the parts of a network, give each other values, and have arrays
// together.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cupola/core/abi.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The streams of a device: that of its context, and those of the copies.
enum class PartLane : std::uint8_t { work, arriving, leaving };

/// For devices that read each other's memory and whose work is complete when it is queued: there is nothing to copy
/// and nothing to wait for. A device with memory of its own has a specialization: parallel/cuda/part_copies.hpp.
template <class Device>
class PartCopies {
public:
    /// Whether a network in parts can be trained on such devices, and whether values are copied between them.
    static constexpr bool possible = Device::host_memory, needed = false;
    using Lane = PartLane;
    /// A point in the work of a device.
    struct Mark {};

    void record(Lane, Mark&) const {}
    void wait_for(Lane, const Mark&) const {}
    void copy(Lane, void*, const void*, std::size_t) const {}

    template <class V>
    static void write(const typename Device::Context&, V* to, const V& value) {
        *to = value;
    }
};

}}}  // namespace cupola::CUPOLA_ABI::impl
