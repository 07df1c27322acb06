// SPDX-License-Identifier: Apache-2.0
//
// The common part of the targets of image formats: any bytes give an upright image of the size that the header says, the same in
// colour, in grey and as floats, or one error message; and no more memory than the pixels and the library's need.
#pragma once

#include <cupola/data/impl/images/image_formats.hpp>

#include "../standard.hpp"
#include "support.hpp"

namespace fuzz {

inline constexpr std::int64_t max_pixels = 1 << 14;
/// The coefficients of a progressive image, tables, and the windows of the unpacking.
inline constexpr std::size_t of_the_library = std::size_t{16} << 20;

inline void check_image(const cupola::impl::ImageFormat& format, std::span<const std::uint8_t> bytes) {
    using cupola::impl::ImageInfo;
    if (bytes.empty()) return;
    ImageInfo info;
    const bool known = answers(of_the_library, [&] {
        info = format.info("f", bytes);
        if (info.size.height < 1 || info.size.width < 1) fail("an image without pixels", "");
        cupola::require<cupola::DataError>(info.size.height * info.size.width <= max_pixels, "f is too large");
    });
    if (!known) return;
    const auto pixels = static_cast<std::size_t>(info.size.height * info.size.width);
    std::vector<std::uint8_t> colours(3 * pixels), greys(pixels);
    std::vector<float> floats(3 * pixels);
    const auto same = [&](const ImageInfo& own) {
        if (own.size != info.size || own.wide != info.wide) fail("another size when decoded", "");
    };
    const std::size_t limit = of_the_library + 16 * pixels;
    const bool colour = answers(limit, [&] { same(format.decode("f", bytes, info.size, 3, colours.data())); });
    const bool grey = answers(limit, [&] { same(format.decode("f", bytes, info.size, 1, greys.data())); });
    if (colour != grey) fail("read in colour or in grey alone", "");
    if (info.wide && colour) fail("16 bits as bytes", "");
    const bool wide = format.decode_wide != nullptr && info.wide;
    if (!wide) return;
    if (!answers(limit, [&] { same(format.decode_wide("f", bytes, info.size, 3, floats.data())); })) return;
    if (std::ranges::any_of(floats, [](float value) { return !(value >= 0 && value <= 65535); }))
        fail("a value outside of 16 bits", "");
}

}  // namespace fuzz
