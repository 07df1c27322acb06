// SPDX-License-Identifier: Apache-2.0
//
// One pass of an exponential moving average over a span: average = average - rate * (average - w), rate = 1 - decay.
#pragma once

#include <cstdint>

#include <cupola/core/abi.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace ops {

/// `MovingAverageUpdate<Device>::run(context, average, w, count, rate)`.
template <class Device>
struct MovingAverageUpdate;

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
