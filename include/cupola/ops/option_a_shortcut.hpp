// SPDX-License-Identifier: Apache-2.0
//
// The option A shortcut (He et al. 2015) for a block that changes the extents: the mean over non-overlapping windows
// (the part of a window outside the image is not counted), and channels of zeros on both sides of the input's.
//
//   y[n,i,j,c + before] = mean over the window at (i, j) of x[n,.,.,c],    y = 0 in the other channels
#pragma once

#include <cstdint>

#include <cupola/ops/operation.hpp>
#include <cupola/ops/window.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

struct OptionAShortcutShape {
    WindowAxis height, width;
    std::int64_t in_channels = 0, out_channels = 0, before = 0;
};

namespace impl {

/// The factor of each input in an output's window.
template <class Axis, class Index>
[[nodiscard]] CUPOLA_HOST_DEVICE constexpr float window_fraction(const Axis& height, const Axis& width, Index row,
                                                                 Index column) {
    return 1.0F / static_cast<float>(window_inside(height, row) * window_inside(width, column));
}

}  // namespace impl

namespace ops {

/// Made as `OptionAShortcut(build, shape)`; specialised by each backend.
template <class Device, class T>
class OptionAShortcut;

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
