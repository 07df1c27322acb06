// SPDX-License-Identifier: Apache-2.0
//
// Decodes a PNG in memory to bytes of grey, or of red, green and blue, by libpng's simplified interface (one call, errors as
// text). Palettes and 16 bits become 8 bits, in sRGB where the file names another gamma; transparency is left out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <png.h>

#include <cupola/core/error.hpp>
#include <cupola/data/impl/image_size.hpp>

namespace cupola::inline CUPOLA_ABI::impl {

/// An image that is being read; freed however that ends.
class PngReader {
public:
    PngReader(const std::string& name, std::span<const std::uint8_t> bytes) : name_(name) {
        image_.version = PNG_IMAGE_VERSION;
        check(png_image_begin_read_from_memory(&image_, bytes.data(), bytes.size()));
        image_.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;  // without a gamma 16 bits are no more linear than 8
    }
    PngReader(const PngReader&) = delete;
    PngReader& operator=(const PngReader&) = delete;
    ~PngReader() { png_image_free(&image_); }

    [[nodiscard]] ImageSize size() const {
        return {static_cast<std::int64_t>(image_.height), static_cast<std::int64_t>(image_.width)};
    }
    /// Red, green, blue and alpha of each pixel.
    [[nodiscard]] std::vector<std::uint8_t> pixels() {
        image_.format = PNG_FORMAT_RGBA;
        std::vector<std::uint8_t> result(std::size_t{image_.height} * image_.width * 4);
        check(png_image_finish_read(&image_, nullptr, result.data(), 0, nullptr));
        return result;
    }

private:
    /// Warnings are about what the pixels do not need: a colour profile that many programs write wrong, a date.
    void check(int done) const {
        require<DataError>(done != 0, name_,
                           " is not a readable PNG image: ", static_cast<const char*>(image_.message));
    }

    const std::string& name_;
    png_image image_{};
};

/// Height and width of the PNG, from its header. Throws DataError that names the file.
[[nodiscard]] inline ImageSize png_size(const std::string& name, std::span<const std::uint8_t> bytes) {
    return PngReader(name, bytes).size();
}

/// As decode_jpeg. Colours become grey by the weights that a JPEG has (ITU-R BT.601).
inline ImageSize decode_png(const std::string& name, std::span<const std::uint8_t> bytes, const ImageSize& expected,
                            int channels, std::uint8_t* to) {
    PngReader reader(name, bytes);
    if (reader.size() != expected) return reader.size();
    const std::vector<std::uint8_t> pixels = reader.pixels();
    for (std::size_t i = 0; i < pixels.size(); i += 4) {
        const std::uint8_t* const from = pixels.data() + i;
        if (channels == 3) {
            for (std::size_t c = 0; c < 3; ++c) *to++ = from[c];
        } else {
            // The weights are 0.299, 0.587 and 0.114 of 65,536; equal parts stay what they are.
            *to++ = static_cast<std::uint8_t>((19595U * from[0] + 38470U * from[1] + 7471U * from[2] + 32768U) >> 16U);
        }
    }
    return expected;
}

}  // namespace cupola::inline CUPOLA_ABI::impl
