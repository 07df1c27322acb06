// SPDX-License-Identifier: Apache-2.0
//
// Pooling over windows of height and width, channels last. Padding never wins a maximum. In a mean it is not counted
// (as in TensorFlow), or it counts as zeros (as in PyTorch): PoolingShape::counts_padding. The gradient of a maximum
// goes to the first of equal values in scan order. Every window contains an element of the image.
#pragma once

#include <cstdint>

#include <cupola/ops/operation.hpp>
#include <cupola/ops/window.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

enum class PoolingKind : std::uint8_t { max, average };

struct PoolingShape {
    WindowAxis height, width;
    std::int64_t channels = 0;
    PoolingKind kind = PoolingKind::max;
    /// A mean divides by the elements of its window inside the image and the padding, which is then `pad_begin` at both
    /// ends, instead of by those inside the image: without what ceil_mode adds to pad_end.
    bool counts_padding = false;
};

/// Whether a mean that counts padding divides by less than its window's elements somewhere.
[[nodiscard]] constexpr bool counts_part_of_window(const PoolingShape& shape) {
    return shape.counts_padding &&
           (shape.height.pad_end > shape.height.pad_begin || shape.width.pad_end > shape.width.pad_begin);
}

/// Whether a pooling can be fused with an adjacent normalisation: it must be a maximum whose window offset fits a byte.
[[nodiscard]] constexpr bool place_is_a_byte(const PoolingShape& shape) {
    return shape.kind == PoolingKind::max && shape.height.window < 16 && shape.width.window < 16;
}

namespace impl {

/// Whether a value replaces the largest so far: the first of equal values is kept, and a NaN is larger than everything.
/// It is branch-free, so that loops vectorise. (Kernels repeat the expression itself: as a function it costs some of
/// them eight registers.)
[[nodiscard]] constexpr bool is_larger(float value, float best) {
    return (value > best) | ((value != value) & (best == best));
}

}  // namespace impl

namespace ops {

/// Made as `Pooling(build, shape)`; specialised by each backend.
template <class Device, class T>
class Pooling;

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
