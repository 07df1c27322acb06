// SPDX-License-Identifier: Apache-2.0
//
// The two ends of a residual block.
//
//   Add    y = a + b, with a fused ReLU if asked for; backward masks once and hands the gradient to both inputs. Backward
//          reads the output where there is a ReLU. The second gradient may lie where the output's does.
//   Fork   its output is its input, and has two readers; backward adds their two gradients. The sum may lie where the
//          first of them does.
#pragma once

#include <cupola/ops/operation.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace ops {

/// Made as `Add(site)` and `Fork(site)`; specialised by each backend.
template <class Device, class T>
class Add;
template <class Device, class T>
class Fork;

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
