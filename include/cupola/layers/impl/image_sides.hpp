// SPDX-License-Identifier: Apache-2.0
//
// The template arguments of Pad2d and Crop2d: a number of rows and columns for all sides of an image, or two, above and
// below, and left and right, or four: top, bottom, left, right.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cupola/layers/layer_description.hpp>
#include <cupola/ops/window.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

struct ImageSides {
    std::int64_t top = 0, bottom = 0, left = 0, right = 0;
    bool known = true;

    [[nodiscard]] constexpr std::int64_t least() const {
        std::int64_t result = top;
        for (const std::int64_t side : {bottom, left, right}) result = side < result ? side : result;
        return result;
    }
    [[nodiscard]] constexpr bool too_large() const { return !are_window_extents({top, bottom, left, right}); }
    [[nodiscard]] constexpr LayerDescription description(const char* name) const {
        const bool one_each = top == bottom && left == right;
        return LayerDescription(name, " ", top)
            .add_if(one_each && top != left, " x ", left)
            .add_if(!one_each, ", ", bottom, ", ", left, ", ", right);
    }
};

template <std::int64_t... sides>
[[nodiscard]] consteval ImageSides image_sides() {
    constexpr std::size_t count = sizeof...(sides);
    constexpr std::int64_t given[] = {sides..., 0};
    if constexpr (count == 1) {
        return {given[0], given[0], given[0], given[0]};
    } else if constexpr (count == 2) {
        return {given[0], given[0], given[1], given[1]};
    } else if constexpr (count == 4) {
        return {given[0], given[1], given[2], given[3]};
    } else {
        return {.known = false};
    }
}

}}}  // namespace cupola::CUPOLA_ABI::impl
