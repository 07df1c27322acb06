// SPDX-License-Identifier: Apache-2.0
//
// An image in memory, and the part of it that has the extents of a network's images.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/extents.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// Values, row by row, channels last: 1 channel is grey, 3 are red, green and blue.
template <class Value>
struct BasicImage {
    std::int64_t height = 0, width = 0, channels = 3;
    std::vector<Value> pixels{};
    /// The bits of a value in the file: 16 where the values are 0 to 65535, otherwise 8.
    int bits = 8;
    [[nodiscard]] Shape shape() const { return {height, width, channels}; }
};

/// An image of bytes.
using Image = BasicImage<std::uint8_t>;

namespace impl {

inline constexpr std::int64_t max_extent = 65'535;

inline void require_extents(std::int64_t height, std::int64_t width) {
    require(height >= 1 && width >= 1, "the height and width of an image must be at least 1, not ", height, " x ",
            width);
    require(height <= max_extent && width <= max_extent, "the height and width of an image must be at most ",
            max_extent, ", not ", height, " x ", width);
}

template <class Value>
void require_pixels(const BasicImage<Value>& image) {
    require(image.shape().has_elements() && image.shape().is_at_most(std::int64_t{1} << 40) &&
                static_cast<std::int64_t>(image.pixels.size()) == image.shape().size(),
            "an image of ", to_string(image.shape()), " has ", image.pixels.size(),
            std::is_same_v<Value, float> ? " values of pixels" : " bytes of pixels");
}

}  // namespace impl

/// The largest part in the middle with the proportions of `height` to `width`, scaled to that size: each pixel is the
/// mean of those that it covers, or, if the image is smaller, the one in which it lies. Throws InvalidArgument for an
/// image without pixels, or with another number of them than its extents say.
template <class Value>
[[nodiscard]] BasicImage<Value> fitted(const BasicImage<Value>& image, std::int64_t height, std::int64_t width) {
    impl::require_extents(height, width);
    impl::require_pixels(image);
    const std::int64_t part_height = std::max<std::int64_t>(1, std::min(image.height, image.width * height / width));
    const std::int64_t part_width = std::max<std::int64_t>(1, std::min(image.width, image.height * width / height));
    const std::int64_t top = (image.height - part_height) / 2, left = (image.width - part_width) / 2;
    using Sum = std::conditional_t<std::is_same_v<Value, float>, double, std::int64_t>;
    BasicImage<Value> result{height, width, image.channels, {}, image.bits};
    result.pixels.reserve(static_cast<std::size_t>(result.shape().size()));
    for (std::int64_t y = 0; y < height; ++y) {
        const std::int64_t y0 = top + y * part_height / height,
                           y1 = std::max(y0 + 1, top + (y + 1) * part_height / height);
        for (std::int64_t x = 0; x < width; ++x) {
            const std::int64_t x0 = left + x * part_width / width,
                               x1 = std::max(x0 + 1, left + (x + 1) * part_width / width);
            const std::int64_t count = (y1 - y0) * (x1 - x0);
            for (std::int64_t c = 0; c < image.channels; ++c) {
                Sum sum = std::is_same_v<Value, float> ? 0 : static_cast<Sum>(count / 2);  // rounds
                for (std::int64_t v = y0; v < y1; ++v) {
                    for (std::int64_t u = x0; u < x1; ++u)
                        sum += image.pixels[static_cast<std::size_t>((v * image.width + u) * image.channels + c)];
                }
                result.pixels.push_back(static_cast<Value>(sum / static_cast<Sum>(count)));
            }
        }
    }
    return result;
}

}}  // namespace cupola::CUPOLA_ABI
