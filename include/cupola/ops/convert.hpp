// SPDX-License-Identifier: Apache-2.0
//
// Element types into one another: to[i] = from[i], rounded to nearest where `To` has fewer bits.
#pragma once

#include <cstdint>

#include <cupola/core/element_type.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace ops {

/// `Convert<Device>::run(context, from, to, count)`, for float to BFloat16 or Float16 and back, where the backend
/// computes in them; specialised by each.
template <class Device>
struct Convert;

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
