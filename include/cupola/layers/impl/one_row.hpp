// SPDX-License-Identifier: Apache-2.0
//
// Layers of sequences, length x channels, as the layers of images with one row: a window, a stride, a padding and a
// dilation of the length are those of the columns.
#pragma once

#include <concepts>
#include <cstdint>

#include <cupola/core/extents.hpp>
#include <cupola/layers/options.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

[[nodiscard]] constexpr Shape one_row(const Shape& sequence) { return {1, sequence[0], sequence[1]}; }

/// A window or a kernel of one number as one row of it; anything else is returned as it is.
template <class Size>
[[nodiscard]] constexpr auto window_of_row(Size size) {
    if constexpr (std::integral<Size>) {
        return WindowOption{1, static_cast<std::int64_t>(size)};
    } else {
        return size;
    }
}
/// An option of one number along the row; options that have no direction are returned as they are.
template <class Option>
[[nodiscard]] constexpr auto option_of_row(Option option) {
    if constexpr (std::same_as<Option, StrideOption>) {
        return StridesOption{1, option.value};
    } else if constexpr (std::same_as<Option, PadOption>) {
        return PadsOption{0, option.value};
    } else if constexpr (std::same_as<Option, DilationOption>) {
        return DilationsOption{1, option.value};
    } else {
        return option;
    }
}
/// The stride of a pooling, a number or stride(n).
template <class Stride>
[[nodiscard]] constexpr auto stride_of_row(Stride stride) {
    if constexpr (std::integral<Stride>) {
        return option_of_row(StrideOption{static_cast<std::int64_t>(stride)});
    } else {
        return option_of_row(stride);
    }
}

/// The context in which the layer of images is built.
template <class BuildContext>
[[nodiscard]] constexpr BuildContext one_row_of(BuildContext build) {
    build.input = one_row(build.input);
    return build;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
