// SPDX-License-Identifier: Apache-2.0
#include <cupola/data/impl/images/jpeg_decoder.hpp>

#include "../../test.hpp"

#include "../files_support.hpp"
#include "throws_with.hpp"

using namespace cupola_tests;

namespace {

std::vector<int> decoded(const Bytes& bytes, int channels = 3) {
    const impl::ImageSize size = impl::jpeg_info("a.jpg", bytes).size;
    std::vector<std::uint8_t> pixels(static_cast<std::size_t>(size.height * size.width * channels));
    (void)impl::decode_jpeg("a.jpg", bytes, size, channels, pixels.data());
    return {pixels.begin(), pixels.end()};
}

/// The rule of the file that is broken, or the error.
std::string flaw(const Bytes& bytes) {
    const impl::ImageSize size = impl::jpeg_info("a.jpg", bytes).size;
    std::vector<std::uint8_t> pixels(static_cast<std::size_t>(size.height * size.width * 3));
    std::string result = "none";
    const std::string error = message_of<DataError>([&] {
        const impl::ImageInfo info = impl::decode_jpeg("a.jpg", bytes, size, 3, pixels.data());
        if (info.flaw != nullptr) result = info.flaw;
    });
    return error == "(no exception)" ? result : error;
}

/// `inks` in each pixel: cyan, magenta, yellow and black as Adobe's programs store them, 255 for none.
Bytes printed(int height, int width, const std::vector<std::uint8_t>& inks, J_COLOR_SPACE stored) {
    return jpeg_of_rows(
        height, width,
        [&](Bytes& row) {
            for (std::size_t i = 0; i < row.size(); ++i) row[i] = inks[i % 4];
        },
        {}, JCS_CMYK, stored);
}

/// 16 x 24 pixels of six flat blocks of 8 x 8, so that the blocks of the upright image are known exactly.
Bytes six_blocks() {
    int y = 0;
    return jpeg_of_rows(16, 24, [&](Bytes& row) {
        for (std::size_t x = 0; x < 24; ++x) {
            for (std::size_t c = 0; c < 3; ++c)
                row[3 * x + c] = static_cast<std::uint8_t>(40 * (y / 8 * 3 + static_cast<int>(x) / 8));
        }
        ++y;
    });
}

/// The number of the block in the middle of each 8 x 8 pixels, row by row.
std::string blocks(const Bytes& bytes) {
    const impl::ImageSize size = impl::jpeg_info("a.jpg", bytes).size;
    const std::vector<int> grey = decoded(bytes, 1), colours = decoded(bytes);
    std::string result;
    for (std::int64_t y = 4; y < size.height; y += 8) {
        for (std::int64_t x = 4; x < size.width; x += 8) {
            const auto at = static_cast<std::size_t>(y * size.width + x);
            CHECK(std::abs(grey[at] - colours[3 * at + 1]) <= 1);
            result += static_cast<char>('0' + (grey[at] + 20) / 40);
        }
        result += ' ';
    }
    return result;
}

/// A progressive image whose coefficients are sent one by one, so that it has 3 + 3 * `coefficients` scans.
std::vector<std::uint8_t> progressive(int extent, int coefficients) {
    std::vector<jpeg_scan_info> scans;
    for (int component = 0; component < 3; ++component) {
        for (int k = 0; k <= coefficients; ++k) {
            jpeg_scan_info scan{};
            scan.comps_in_scan = 1;
            scan.component_index[0] = component;
            scan.Ss = k;
            scan.Se = k;
            scans.push_back(scan);
        }
    }
    return jpeg_of_rows(
        extent, extent, [](std::vector<std::uint8_t>& row) { std::ranges::fill(row, 200); }, scans);
}

}  // namespace

TEST_CASE("a progressive JPEG of a usual number of scans is read") {
    const std::vector<std::uint8_t> bytes = progressive(16, 20);
    const impl::ImageSize size = impl::jpeg_info("a.jpg", bytes).size;
    CHECK(size.height == 16);
    std::vector<std::uint8_t> pixels(16 * 16 * 3);
    impl::decode_jpeg("a.jpg", bytes, size, 3, pixels.data());
    CHECK(pixels == std::vector<std::uint8_t>(16 * 16 * 3, 200));
}

TEST_CASE("a progressive JPEG of so many scans that it could take hours is rejected") {
    const std::vector<std::uint8_t> bytes = progressive(16, 40);
    const impl::ImageSize size = impl::jpeg_info("a.jpg", bytes).size;
    std::vector<std::uint8_t> pixels(16 * 16 * 3);
    CHECK(message_of<DataError>([&] { impl::decode_jpeg("a.jpg", bytes, size, 3, pixels.data()); }) ==
          "a.jpg is not a readable JPEG image: it has more than 100 scans");
}

TEST_CASE(
    "pixels are upright for each of the eight orientations of EXIF, in both orders of bytes, in colour and in grey") {
    const Bytes image = six_blocks();
    const char* const upright[] = {"012 345 ",  "210 543 ",  "543 210 ",  "345 012 ",
                                   "03 14 25 ", "30 41 52 ", "52 41 30 ", "25 14 03 "};
    CHECK(blocks(image) == upright[0]);
    for (int orientation = 1; orientation <= 8; ++orientation) {
        CAPTURE(orientation);
        CHECK(blocks(with_exif(image, exif(orientation))) == upright[orientation - 1]);
        CHECK(blocks(with_exif(image, exif(orientation, false))) == upright[orientation - 1]);
    }
    // Another segment APP1, such as XMP, has no orientation; the first EXIF counts.
    CHECK(blocks(with_exif(with_exif(image, exif(6)), exif(3), "http://ns.adobe.com/xap/1.0/")) == upright[5]);
    CHECK(blocks(with_exif(with_exif(image, exif(6)), exif(3))) == upright[2]);
    CHECK(blocks(with_exif(image, exif(9))) == upright[0]);
}

TEST_CASE("a JPEG of four components has the colours that Pillow gives it, in colour and in grey") {
    // Image.new("CMYK", (1, 1), tuple(255 - ink for ink in inks)).convert("RGB"), and .convert("L") of that.
    struct {
        std::vector<std::uint8_t> inks;
        std::vector<int> colour;
        int grey;
    } const cases[] = {{{255, 255, 255, 255}, {255, 255, 255}, 255},
                       {{0, 0, 0, 0}, {0, 0, 0}, 0},
                       {{10, 100, 200, 50}, {2, 20, 39}, 17},
                       {{200, 30, 90, 240}, {188, 28, 85}, 82}};
    for (const auto& each : cases) {
        std::vector<int> colours, greys;
        for (int i = 0; i < 8 * 8; ++i) {
            colours.insert(colours.end(), each.colour.begin(), each.colour.end());
            greys.push_back(each.grey);
        }
        const Bytes cmyk = printed(8, 8, each.inks, JCS_CMYK), ycck = printed(8, 8, each.inks, JCS_YCCK);
        CHECK(decoded(cmyk) == colours);
        CHECK(decoded(cmyk, 1) == greys);
        const std::vector<int> of_ycck = decoded(ycck);
        REQUIRE(of_ycck.size() == colours.size());
        for (std::size_t i = 0; i < of_ycck.size(); ++i) CHECK(std::abs(of_ycck[i] - colours[i]) <= 2);
        CHECK(impl::jpeg_info("a.jpg", with_exif(printed(8, 16, each.inks, JCS_YCCK), exif(6))).size ==
              impl::ImageSize{16, 8});
        CHECK(decoded(with_exif(cmyk, exif(6))) == colours);
    }
}

TEST_CASE("three warnings of libjpeg leave the pixels whole, and every other one is an error") {
    const Bytes image = jpeg(16, 16, 0, 0, 0, true);
    const std::vector<int> pixels = decoded(image);
    CHECK(flaw(image) == "none");

    const Bytes extra = with_bytes_before_end(image);
    CHECK(flaw(extra) == "bytes before the end marker");
    CHECK(decoded(extra) == pixels);

    Bytes jfif = image;
    REQUIRE(std::string(jfif.begin() + 6, jfif.begin() + 10) == "JFIF");
    jfif[11] = 2;
    CHECK(flaw(jfif) == "an unknown version of JFIF");
    CHECK(decoded(jfif) == pixels);

    // The segment APP14 in place of JFIF's; the transform is the last byte.
    Bytes adobe = image;
    const Bytes segment{0xFF, 0xEE, 0, 14, 'A', 'd', 'o', 'b', 'e', 0, 100, 0, 0, 0, 0, 3};
    adobe.erase(adobe.begin() + 2, adobe.begin() + 20);
    adobe.insert(adobe.begin() + 2, segment.begin(), segment.end());
    CHECK(flaw(adobe) == "an unknown colour transform of Adobe");
    CHECK(decoded(adobe) == pixels);

    // The same bytes before a table or the scan may be the rest of a damaged segment.
    Bytes inside = image;
    inside.insert(inside.begin() + 20, {0, 0, 0});
    CHECK(message_of<DataError>([&] { (void)flaw(inside); }) ==
          "a.jpg is not a readable JPEG image: Corrupt JPEG data: 3 extraneous bytes before marker 0xdb");
    Bytes cut = image;
    cut.erase(cut.end() - 40, cut.end());
    CHECK(flaw(cut) == "a.jpg is not a readable JPEG image: Premature end of JPEG file");
    Bytes ended = image;
    ended.erase(ended.end() - 42, ended.end() - 2);
    CHECK(flaw(ended).starts_with("a.jpg is not a readable JPEG image: Corrupt JPEG data"));
}
