// SPDX-License-Identifier: Apache-2.0
//
// LocalResponseNorm followed by MaxPool2d as one operation: ops/local_response_norm.hpp and ops/pooling.hpp have the
// formulas. The normalised values between them are never stored.
#pragma once

#include <cupola/ops/local_response_norm.hpp>
#include <cupola/ops/pooling.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace ops {

/// Made as `LrnThenPool(build, norm, pooling)`; specialised by a backend that has it.
template <class Device, class T>
class LrnThenPool;

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
