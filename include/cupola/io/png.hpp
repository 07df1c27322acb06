// SPDX-License-Identifier: Apache-2.0
//
// encode_png: pixels as the bytes of a PNG file, through libpng's simplified interface (one call, errors as text).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <png.h>
#include <cupola/core/error.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// `pixels`: eight bits per channel, row by row, channels last; 1 channel is grey, 3 are red, green and blue.
[[nodiscard]] inline std::vector<std::byte> encode_png(std::span<const std::uint8_t> pixels, std::int64_t height,
                                                       std::int64_t width, std::int64_t channels) {
    constexpr std::int64_t limit = 16384;  // libpng computes an image's bytes in 32 bits
    require(height >= 1 && width >= 1 && height <= limit && width <= limit, "a PNG image must have 1 to ", limit,
            " pixels in height and width, not ", height, " x ", width);
    require(channels == 1 || channels == 3, "a PNG image must have 1 channel (grey) or 3 (red, green, blue), not ",
            channels);
    require(static_cast<std::int64_t>(pixels.size()) == height * width * channels, "an image of ", height, " x ", width,
            " x ", channels, " has ", height * width * channels, " bytes, not ", pixels.size());
    png_image image{};
    image.version = PNG_IMAGE_VERSION;
    image.height = static_cast<png_uint_32>(height);
    image.width = static_cast<png_uint_32>(width);
    image.format = channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
    image.flags = PNG_IMAGE_FLAG_FAST;
    std::vector<std::byte> result(PNG_IMAGE_PNG_SIZE_MAX(image));
    png_alloc_size_t size = result.size();
    const int encoded = png_image_write_to_memory(&image, result.data(), &size, 0, pixels.data(), 0, nullptr);
    require(encoded != 0, "an image of ", height, " x ", width, " x ", channels,
            " could not be encoded as PNG: ", static_cast<const char*>(image.message));
    result.resize(size);
    return result;
}

}}  // namespace cupola::CUPOLA_ABI
