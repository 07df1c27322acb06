// SPDX-License-Identifier: Apache-2.0
//
// The pixels of a JPEG or PNG file, upright according to its EXIF data: `fitted(read_image("cat.jpg"), 32, 32)` is a
// photograph for a trained network. Needs libjpeg-turbo and libpng (CMake: cupola::data).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/data/image.hpp>
#include <cupola/data/impl/files.hpp>
#include <cupola/data/impl/images/image_formats.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// Reads an image, and converts it to 1 or 3 channels. `read_image<float>` reads images of 16 bits per sample too,
/// whose values are 0 to 65535; nothing is scaled. Throws DataError where the file is not there, cannot be read as an
/// image, or has 16 bits and bytes were requested.
template <class Value = std::uint8_t>
[[nodiscard]] BasicImage<Value> read_image(const std::string& path, int channels = 3) {
    static_assert(std::is_same_v<Value, std::uint8_t> || std::is_same_v<Value, float>,
                  "an image has bytes (std::uint8_t) or floats");
    require(channels == 1 || channels == 3, "an image must have 1 channel (grey) or 3 (red, green, blue), not ",
            channels);
    constexpr std::size_t max_bytes = std::size_t{1} << 28;
    impl::InputFile file(path);
    require<DataError>(file.size() <= max_bytes, path, " is larger than ", max_bytes, " bytes");
    std::vector<std::uint8_t> bytes(file.size());
    file.read(bytes.data(), bytes.size());
    const impl::ImageSize size = impl::format_of(path, bytes).info(path, bytes).size;
    constexpr std::int64_t max_pixels = std::int64_t{1} << 28;
    require<DataError>(size.height * size.width <= max_pixels, path, " has ", size.height, " x ", size.width,
                       " pixels; at most ", max_pixels, " are read");
    BasicImage<Value> image{size.height, size.width, channels, {}};
    image.pixels.resize(static_cast<std::size_t>(image.shape().size()));
    const impl::ImageInfo info = impl::decode_image(path, bytes, size, channels, image.pixels.data());
    if (info.wide) image.bits = 16;
    impl::warn_of_flaws(info.flaw == nullptr ? 0 : 1, path, info.flaw);
    return image;
}

}}  // namespace cupola::CUPOLA_ABI
