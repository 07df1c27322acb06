// SPDX-License-Identifier: Apache-2.0
//
// FromBytes: an input of bytes becomes activations, y = (x - mean) * scale, with one constant of each or one per
// channel. Bytes have no gradient.
#pragma once

#include <cstdint>

#include <cupola/ops/operation.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// The constants of channel c are those at c modulo `constants`.
struct BytesShape {
    static constexpr int max_constants = 4;
    int constants = 1;
    float mean[max_constants]{};
    float scale[max_constants]{1, 1, 1, 1};
};

namespace ops {

/// Made as `FromBytes(build, shape)`; specialised by each backend.
template <class Device, class T>
class FromBytes;

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
