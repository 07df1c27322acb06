// SPDX-License-Identifier: Apache-2.0
#include <cupola/io/png.hpp>

#include "../test.hpp"

#include "throws_with.hpp"

namespace {

struct Decoded {
    std::int64_t height = 0, width = 0;
    bool color = false;
    std::vector<std::uint8_t> pixels;
};

Decoded decode(const std::vector<std::byte>& png) {
    png_image image{};
    image.version = PNG_IMAGE_VERSION;
    REQUIRE(png_image_begin_read_from_memory(&image, png.data(), png.size()) != 0);
    const bool color = (image.format & PNG_FORMAT_FLAG_COLOR) != 0;
    image.format = color ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
    Decoded result{image.height, image.width, color, std::vector<std::uint8_t>(PNG_IMAGE_SIZE(image))};
    REQUIRE(png_image_finish_read(&image, nullptr, result.pixels.data(), 0, nullptr) != 0);
    return result;
}

std::vector<std::uint8_t> some_pixels(std::size_t count) {
    std::vector<std::uint8_t> pixels(count);
    for (std::size_t i = 0; i < count; ++i) pixels[i] = static_cast<std::uint8_t>(i * 37 + i / 11);
    return pixels;
}

}  // namespace

TEST_CASE("pixels are read back from a PNG unchanged, in colour and in grey") {
    for (const std::int64_t channels : {1, 3}) {
        const auto pixels = some_pixels(static_cast<std::size_t>(5 * 7 * channels));
        const Decoded decoded = decode(encode_png(pixels, 5, 7, channels));
        CHECK(decoded.height == 5);
        CHECK(decoded.width == 7);
        CHECK(decoded.color == (channels == 3));
        CHECK(decoded.pixels == pixels);
    }
}

TEST_CASE("a PNG ends at its end marker") {
    const auto png = encode_png(some_pixels(64), 8, 8, 1);
    REQUIRE(png.size() > 12);
    CHECK(std::memcmp(png.data(), "\x89PNG\r\n\x1a\n", 8) == 0);
    CHECK(std::memcmp(png.data() + png.size() - 8, "IEND\xae\x42\x60\x82", 8) == 0);
}

TEST_CASE("images that cannot be a PNG are rejected with an error") {
    const auto pixels = some_pixels(12);
    const auto message = [&](std::int64_t height, std::int64_t width, std::int64_t channels) {
        return message_of<InvalidArgument>([&] { (void)encode_png(pixels, height, width, channels); });
    };
    CHECK(message(0, 4, 3) == "a PNG image must have 1 to 16384 pixels in height and width, not 0 x 4");
    CHECK(message(1, 16385, 3) == "a PNG image must have 1 to 16384 pixels in height and width, not 1 x 16385");
    CHECK(message(3, 2, 2) == "a PNG image must have 1 channel (grey) or 3 (red, green, blue), not 2");
    CHECK(message(2, 3, 3) == "an image of 2 x 3 x 3 has 18 bytes, not 12");
}
