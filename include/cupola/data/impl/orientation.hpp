// SPDX-License-Identifier: Apache-2.0
//
// Cameras store the pixels as the sensor has them and note in EXIF how the image is turned: JPEG in a segment APP1, PNG
// in the chunk eXIf. These functions read that note, and copy the pixels so that they are upright.
//
// EXIF is a TIFF file without an image. It may contain anything, so each offset is checked. An image with invalid EXIF
// data is not rejected: as in Pillow, its entries count up to the first that cannot be read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <cupola/data/impl/image_size.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The numbers of a TIFF file, in its order of bytes. read() is for places that were checked.
class TiffBytes {
public:
    TiffBytes(std::span<const std::uint8_t> bytes, bool big_endian) : bytes_(bytes), big_endian_(big_endian) {}
    [[nodiscard]] std::uint64_t size() const { return bytes_.size(); }
    [[nodiscard]] bool has(std::uint64_t at, std::uint64_t count) const {
        return at <= bytes_.size() && count <= bytes_.size() - at;
    }
    [[nodiscard]] std::uint32_t read(std::uint64_t at, int count) const {
        std::uint32_t value = 0;
        for (int i = 0; i < count; ++i) {
            const std::uint64_t place = at + static_cast<std::uint64_t>(big_endian_ ? i : count - 1 - i);
            value = value << 8U | bytes_[static_cast<std::size_t>(place)];
        }
        return value;
    }

private:
    std::span<const std::uint8_t> bytes_;
    bool big_endian_;
};

/// The bytes of one value of a TIFF type; 0 for a type that does not exist.
[[nodiscard]] constexpr std::uint64_t tiff_type_bytes(std::uint32_t type) {
    constexpr std::uint8_t bytes[] = {0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4, 0, 0, 8};
    return type < sizeof bytes ? bytes[type] : 0;
}

/// The types of whole numbers of up to 32 bits, of which SHORT (3) is the right one for an orientation.
[[nodiscard]] constexpr bool is_tiff_integer(std::uint32_t type) {
    return type == 3 || type == 4 || type == 6 || type == 8 || type == 9 || type == 13;
}

inline constexpr std::string_view exif_mark{"Exif\0\0", 6};

[[nodiscard]] inline bool begins_with(std::span<const std::uint8_t> bytes, std::string_view mark) {
    if (bytes.size() < mark.size()) return false;
    for (std::size_t i = 0; i < mark.size(); ++i) {
        if (bytes[i] != static_cast<std::uint8_t>(mark[i])) return false;
    }
    return true;
}

/// EXIF's orientation, 1 to 8; 1, upright, where there is none or the data is broken. The mark "Exif" may come before
/// the data.
[[nodiscard]] inline int exif_orientation(std::span<const std::uint8_t> exif) {
    if (begins_with(exif, exif_mark)) exif = exif.subspan(exif_mark.size());
    if (exif.size() < 8) return 1;
    const bool big_endian = exif[0] == 'M';
    // Accepts the 42 after the letters in either byte order: some programs write it wrong.
    const bool is_tiff = (exif[0] == 'M' || exif[0] == 'I') && exif[1] == exif[0] &&
                         ((exif[2] == 0 && exif[3] == 42) || (exif[2] == 42 && exif[3] == 0));
    if (!is_tiff) return 1;
    const TiffBytes tiff(exif, big_endian);
    constexpr std::uint64_t entry_bytes = 12;
    constexpr std::uint32_t orientation_tag = 0x0112;
    std::uint64_t at = tiff.read(4, 4),
                  outside = 0;  // `outside`: bytes of the values that do not fit into their entries
    if (!tiff.has(at, 2)) return 1;
    const std::uint32_t entries = tiff.read(at, 2);
    at += 2;
    for (std::uint32_t i = 0; i < entries && tiff.has(at, entry_bytes); ++i, at += entry_bytes) {
        const std::uint32_t tag = tiff.read(at, 2), type = tiff.read(at + 2, 2);
        const std::uint64_t bytes = tiff.read(at + 4, 4) * tiff_type_bytes(type);
        std::uint64_t value = at + 8;
        if (bytes > 4) {
            outside += bytes;
            if (outside > tiff.size()) continue;
            value = tiff.read(value, 4);
            if (!tiff.has(value, bytes)) return 1;
        }
        if (tag != orientation_tag || bytes == 0) continue;
        if (!is_tiff_integer(type)) return 1;
        const std::uint32_t orientation = tiff.read(value, static_cast<int>(tiff_type_bytes(type)));
        return orientation >= 1 && orientation <= 8 ? static_cast<int>(orientation) : 1;
    }
    return 1;
}

/// The size of the upright image: 5 to 8 exchange height and width.
[[nodiscard]] inline ImageSize upright_size(const ImageSize& stored, int orientation) {
    return orientation >= 5 ? ImageSize{stored.width, stored.height} : stored;
}

/// Calls copy(i) for each pixel of the upright image, row by row: i is the number of the pixel as stored.
template <class Copy>
void for_each_upright(const ImageSize& stored, int orientation, const Copy& copy) {
    const ImageSize size = upright_size(stored, orientation);
    // The table of EXIF, each row as its first pixel and the steps to the next column and row.
    const std::int64_t right = stored.width - 1, bottom = (stored.height - 1) * stored.width;
    struct Walk {
        std::int64_t first, per_column, per_row;
    };
    const Walk walks[] = {{0, 1, stored.width},
                          {right, -1, stored.width},
                          {bottom + right, -1, -stored.width},
                          {bottom, 1, -stored.width},
                          {0, stored.width, 1},
                          {bottom, -stored.width, 1},
                          {bottom + right, -stored.width, -1},
                          {right, stored.width, -1}};
    const Walk& walk = walks[orientation - 1];
    for (std::int64_t y = 0; y < size.height; ++y) {
        for (std::int64_t x = 0; x < size.width; ++x) copy(walk.first + y * walk.per_row + x * walk.per_column);
    }
}

/// Grey of a colour, rounded, with the weights that a JPEG has (ITU-R BT.601): 0.299, 0.587 and 0.114 of 65,536. Three
/// equal values remain unchanged.
[[nodiscard]] inline std::uint8_t grey_of(std::uint32_t red, std::uint32_t green, std::uint32_t blue) {
    return static_cast<std::uint8_t>((19595U * red + 38470U * green + 7471U * blue + 32768U) >> 16U);
}

}}}  // namespace cupola::CUPOLA_ABI::impl
