// SPDX-License-Identifier: Apache-2.0
//
// An activation that stands alone: y = max(x, 0). Backward reads the output: dx = dy where y > 0, else 0.
#pragma once

#include <cupola/ops/operation.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace ops {

/// Made as `Relu(site)`; specialised by each backend.
template <class Device, class T>
class Relu;

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
