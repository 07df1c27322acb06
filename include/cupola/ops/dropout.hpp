// SPDX-License-Identifier: Apache-2.0
//
// Inverted dropout (Srivastava et al. 2014): in training each element is zero with probability `rate`, else divided by
// 1 - rate; otherwise the identity. The mask is never stored: forward and backward draw the same Philox numbers, keyed
// by seed, layer, step and the sample's place in the global batch, so it does not depend on the number of replicas.
#pragma once

#include <cstdint>

#include <cupola/core/philox.hpp>
#include <cupola/ops/operation.hpp>

namespace cupola::inline CUPOLA_ABI {

/// The numbers of one sample in one layer and step; element i uses word i % 4 of block i / 4.
[[nodiscard]] CUPOLA_HOST_DEVICE constexpr RandomStream dropout_stream(std::uint64_t seed, std::uint32_t layer,
                                                                       std::uint32_t step, std::int64_t sample) {
    return {seed, RngDomain::dropout, step,
            (static_cast<std::uint64_t>(layer) << 32) | static_cast<std::uint32_t>(sample)};
}

namespace ops {

/// Made as `Dropout(site, rate)`; specialised by each backend.
template <class Device, class T>
class Dropout;

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
