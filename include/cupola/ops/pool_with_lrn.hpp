// SPDX-License-Identifier: Apache-2.0
//
// MaxPool2d and LocalResponseNorm one after the other as one operation: ops/pooling.hpp and ops/local_response_norm.hpp
// have the formulas. LrnThenPool never stores the normalised values between them; PoolThenLrn stores the pooled ones
// inside the operation.
#pragma once

#include <cupola/ops/local_response_norm.hpp>
#include <cupola/ops/pooling.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace ops {

/// Made as `PoolThenLrn(build, pooling, norm)`; specialised by a backend that has it.
template <class Device, class T>
class PoolThenLrn;

/// Made as `LrnThenPool(build, norm, pooling)`; specialised by a backend that has it.
template <class Device, class T>
class LrnThenPool;

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
