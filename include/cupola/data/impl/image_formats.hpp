// SPDX-License-Identifier: Apache-2.0
//
// The formats of image files that are read: an ImageFormat each, and a row of image_endings per ending of names. A file's format is
// what its first bytes say.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <cupola/core/error.hpp>
#include <cupola/data/impl/image_size.hpp>
#include <cupola/data/impl/jpeg_decoder.hpp>
#include <cupola/data/impl/png_decoder.hpp>

namespace cupola::inline CUPOLA_ABI::impl {

struct ImageFormat {
    /// The first bytes of each such file.
    std::string_view signature;
    /// Height and width, from the file's header. Throws DataError that names the file.
    ImageSize (*size)(const std::string& name, std::span<const std::uint8_t> bytes);
    /// The pixels, height x width x channels: 1 channel is grey, 3 are red, green and blue; an image of the other kind is
    /// converted. Returns the size; where it is not `expected`, nothing was written. Throws DataError that names the file.
    ImageSize (*decode)(const std::string& name, std::span<const std::uint8_t> bytes, const ImageSize& expected,
                        int channels, std::uint8_t* to);
};

struct ImageEnding {
    std::string_view ending;
    /// The format that errors name where a file has no format's first bytes.
    const ImageFormat& format;
};

inline constexpr ImageFormat jpeg_format{"\xff\xd8", jpeg_size, decode_jpeg},
    png_format{"\x89PNG\r\n\x1a\n", png_size, decode_png};

inline constexpr std::array image_endings{ImageEnding{".jpg", jpeg_format}, ImageEnding{".jpeg", jpeg_format},
                                          ImageEnding{".png", png_format}};

/// ".jpg, .jpeg or .png", for messages.
[[nodiscard]] inline std::string image_endings_text() {
    std::string result(image_endings[0].ending);
    for (std::size_t i = 1; i < image_endings.size(); ++i)
        result += text(i + 1 < image_endings.size() ? ", " : " or ", image_endings[i].ending);
    return result;
}

/// The row of the name's ending, whatever its case; null for any other.
[[nodiscard]] inline const ImageEnding* image_ending(std::string_view name) {
    const std::size_t dot = name.rfind('.');
    if (dot == std::string_view::npos) return nullptr;
    std::string ending(name.substr(dot));
    for (char& c : ending) {
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    }
    for (const ImageEnding& each : image_endings) {
        if (each.ending == ending) return &each;
    }
    return nullptr;
}

/// The format whose signature the file has; if there is none, the one of the name's ending, for its error message. Throws
/// DataError for an empty file.
[[nodiscard]] inline const ImageFormat& format_of(const std::string& name, std::span<const std::uint8_t> bytes) {
    require<DataError>(!bytes.empty(), name, " is empty");
    for (const ImageEnding& each : image_endings) {
        const std::string_view signature = each.format.signature;
        const bool same = bytes.size() >= signature.size() &&
                          std::equal(signature.begin(), signature.end(), bytes.begin(),
                                     [](char a, std::uint8_t b) { return static_cast<std::uint8_t>(a) == b; });
        if (same) return each.format;
    }
    const ImageEnding* const by_name = image_ending(name);
    return by_name != nullptr ? by_name->format : image_endings[0].format;
}

}  // namespace cupola::inline CUPOLA_ABI::impl
