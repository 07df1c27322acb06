// SPDX-License-Identifier: Apache-2.0
//
// One photograph for a network that was trained: the pixels of a JPEG or PNG file, and the part of them that has the extents
// of the images the network knows. `fitted(read_image("cat.jpg"), 32, 32)`
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/data/dataset.hpp>
#include <cupola/data/impl/files.hpp>
#include <cupola/data/impl/image_formats.hpp>

namespace cupola::inline CUPOLA_ABI {

/// Bytes, row by row, channels last: 1 channel is grey, 3 are red, green and blue.
struct Image {
    std::int64_t height = 0, width = 0, channels = 3;
    std::vector<std::uint8_t> pixels{};
    [[nodiscard]] Shape shape() const { return {height, width, channels}; }
};

/// Reads an image, and converts it to 1 or 3 channels. Throws DataError where the file is not there or cannot be read as an
/// image.
[[nodiscard]] inline Image read_image(const std::string& path, int channels = 3) {
    require(channels == 1 || channels == 3, "an image must have 1 channel (grey) or 3 (red, green, blue), not ",
            channels);
    constexpr std::size_t max_bytes = std::size_t{1} << 28;
    impl::InputFile file(path);
    require<DataError>(file.size() <= max_bytes, path, " is larger than ", max_bytes, " bytes");
    std::vector<std::uint8_t> bytes(file.size());
    file.read(bytes.data(), bytes.size());
    const impl::ImageFormat& format = impl::format_of(path, bytes);
    const impl::ImageSize size = format.size(path, bytes);
    constexpr std::int64_t max_pixels = std::int64_t{1} << 28;
    require<DataError>(size.height * size.width <= max_pixels, path, " has ", size.height, " x ", size.width,
                       " pixels; at most ", max_pixels, " are read");
    Image image{size.height, size.width, channels, {}};
    image.pixels.resize(static_cast<std::size_t>(image.shape().size()));
    format.decode(path, bytes, size, channels, image.pixels.data());
    return image;
}

/// The largest part in the middle with the proportions of `height` to `width`, made so large: each pixel is the mean of
/// those that it covers, or the one it lies in where the image is smaller. Throws InvalidArgument for an image without
/// pixels, or with another number of them than its extents say.
[[nodiscard]] inline Image fitted(const Image& image, std::int64_t height, std::int64_t width) {
    constexpr std::int64_t most = 65'535;
    require(height >= 1 && width >= 1, "the height and width of an image must be at least 1, not ", height, " x ",
            width);
    require(height <= most && width <= most, "the height and width of an image must be at most ", most, ", not ",
            height, " x ", width);
    require(image.shape().has_elements() && image.shape().is_at_most(std::int64_t{1} << 40) &&
                static_cast<std::int64_t>(image.pixels.size()) == image.shape().size(),
            "an image of ", to_string(image.shape()), " has ", image.pixels.size(), " bytes of pixels");
    const std::int64_t part_height = std::max<std::int64_t>(1, std::min(image.height, image.width * height / width));
    const std::int64_t part_width = std::max<std::int64_t>(1, std::min(image.width, image.height * width / height));
    const std::int64_t top = (image.height - part_height) / 2, left = (image.width - part_width) / 2;
    Image result{height, width, image.channels, {}};
    result.pixels.reserve(static_cast<std::size_t>(result.shape().size()));
    for (std::int64_t y = 0; y < height; ++y) {
        const std::int64_t y0 = top + y * part_height / height,
                           y1 = std::max(y0 + 1, top + (y + 1) * part_height / height);
        for (std::int64_t x = 0; x < width; ++x) {
            const std::int64_t x0 = left + x * part_width / width,
                               x1 = std::max(x0 + 1, left + (x + 1) * part_width / width);
            const std::int64_t count = (y1 - y0) * (x1 - x0);
            for (std::int64_t c = 0; c < image.channels; ++c) {
                std::int64_t sum = count / 2;  // rounds
                for (std::int64_t v = y0; v < y1; ++v) {
                    for (std::int64_t u = x0; u < x1; ++u)
                        sum += image.pixels[static_cast<std::size_t>((v * image.width + u) * image.channels + c)];
                }
                result.pixels.push_back(static_cast<std::uint8_t>(sum / count));
            }
        }
    }
    return result;
}

}  // namespace cupola::inline CUPOLA_ABI
