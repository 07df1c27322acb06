// SPDX-License-Identifier: Apache-2.0
//
// PartCopies: how the devices of a group, which has the parts of a network, give each other values.
#pragma once

#include <cupola/core/abi.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Of devices that read each other's memory and whose work is complete when it is queued: there is nothing to copy and
/// nothing to wait for. A device with memory of its own has a specialization: parallel/cuda/part_copies.hpp.
template <class Device>
class PartCopies {
public:
    /// Whether a network in parts can be trained on such devices, and whether values are copied between them.
    static constexpr bool possible = Device::host_memory, needed = false;
    /// A point in the work of a device.
    struct Mark {};

    template <class V>
    static void write(const typename Device::Context&, V* to, const V& value) {
        *to = value;
    }
};

}}}  // namespace cupola::CUPOLA_ABI::impl
