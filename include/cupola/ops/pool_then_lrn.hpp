// SPDX-License-Identifier: Apache-2.0
//
// MaxPool2d followed by LocalResponseNorm as one operation: ops/pooling.hpp and ops/local_response_norm.hpp have the
// formulas. The pooled values between them are stored inside the operation.
#pragma once

#include <cupola/ops/local_response_norm.hpp>
#include <cupola/ops/pooling.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace ops {

/// Made as `PoolThenLrn(build, pooling, norm)`; specialised by a backend that has it.
template <class Device, class T>
class PoolThenLrn;

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
