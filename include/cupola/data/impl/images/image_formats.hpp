// SPDX-License-Identifier: Apache-2.0
//
// The formats of image files that are read: one ImageFormat per format, and one row of image_endings per ending of
// names. The first bytes of a file determine its format.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/data/impl/image_size.hpp>
#include <cupola/data/impl/images/jpeg_decoder.hpp>
#include <cupola/data/impl/images/png_decoder.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

struct ImageFormat {
    /// The first bytes of each such file.
    std::string_view signature;
    /// What the file's header says. Throws DataError that names the file.
    ImageInfo (*info)(const std::string& name, std::span<const std::uint8_t> bytes);
    /// The upright pixels, height x width x channels: 1 channel is grey, 3 are red, green and blue; an image of the
    /// other kind is converted. Where the size is not `expected`, nothing was written. Throws DataError that names the
    /// file, also for an image of more than 8 bits per sample.
    ImageInfo (*decode)(const std::string& name, std::span<const std::uint8_t> bytes, const ImageSize& expected,
                        int channels, std::uint8_t* to);
    /// The same for images of 16 bits per sample; where the image has fewer, nothing was written. Null for a format
    /// that has none.
    ImageInfo (*decode_wide)(const std::string& name, std::span<const std::uint8_t> bytes, const ImageSize& expected,
                             int channels, float* to);
};

struct ImageEnding {
    std::string_view ending;
    /// The format that errors name where a file has no format's first bytes.
    const ImageFormat& format;
};

inline constexpr ImageFormat jpeg_format{"\xff\xd8", jpeg_info, decode_jpeg, nullptr},
    png_format{"\x89PNG\r\n\x1a\n", png_info, decode_png, decode_wide_png};

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

/// The format whose signature the file has; if there is none, the one of the name's ending, for its error message.
/// Throws DataError for an empty file.
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

/// The pixels of a file of any format as bytes, or as floats of the values in the file: 0 to 255, or 0 to 65535 of an
/// image of 16 bits per sample. Where the size is not `expected`, nothing was written. Throws DataError that names the
/// file.
template <class Value>
ImageInfo decode_image(const std::string& name, std::span<const std::uint8_t> bytes, const ImageSize& expected,
                       int channels, Value* to) {
    const ImageFormat& format = format_of(name, bytes);
    if constexpr (std::is_same_v<Value, std::uint8_t>) {
        return format.decode(name, bytes, expected, channels, to);
    } else {
        if (format.decode_wide != nullptr) {
            const ImageInfo info = format.decode_wide(name, bytes, expected, channels, to);
            if (info.wide || info.size != expected) return info;
        }
        std::vector<std::uint8_t> pixels(
            static_cast<std::size_t>(expected.height * expected.width * static_cast<std::int64_t>(channels)));
        const ImageInfo info = format.decode(name, bytes, expected, channels, pixels.data());
        if (info.size == expected) std::copy(pixels.begin(), pixels.end(), to);
        return info;
    }
}

/// Says on standard error that `count` images, if any, break their format's rules and were read nevertheless.
[[gnu::cold]] inline void warn_of_flaws(std::size_t count, const std::string& first, const char* flaw) {
    if (count == 0) return;
    const std::string others =
        count == 1 ? "" : text(", and so ", count == 2 ? "is " : "are ", count - 1, " more with such a fault");
    std::fputs(text("warning: ", first, " has ", flaw, "; it is read all the same", others, "\n").c_str(), stderr);
}

}}}  // namespace cupola::CUPOLA_ABI::impl
