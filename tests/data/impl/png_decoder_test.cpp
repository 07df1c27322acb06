// SPDX-License-Identifier: Apache-2.0
//
// PNG images of each kind that libpng writes, and folders of them.
#include <cupola/data/impl/png_decoder.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <png.h>

#include <cupola/data/image_folder.hpp>

#include "../files_support.hpp"
#include "throws_with.hpp"

using namespace cupola;
using namespace cupola_tests;

namespace {

/// A PNG of these samples, in one of libpng's simplified formats.
template <class Sample>
Bytes png(int height, int width, png_uint_32 format, const std::vector<Sample>& samples,
          const std::vector<std::uint8_t>& palette = {}) {
    png_image image{};
    image.version = PNG_IMAGE_VERSION;
    image.height = static_cast<png_uint_32>(height);
    image.width = static_cast<png_uint_32>(width);
    image.format = format;
    image.colormap_entries = static_cast<png_uint_32>(palette.size() / 3);
    Bytes result(PNG_IMAGE_PNG_SIZE_MAX(image));
    png_alloc_size_t size = result.size();
    REQUIRE(png_image_write_to_memory(&image, result.data(), &size, 0, samples.data(), 0, palette.data()) != 0);
    result.resize(size);
    return result;
}

std::vector<int> decoded(const Bytes& bytes, int channels) {
    const impl::ImageSize size = impl::png_size("a.png", bytes);
    std::vector<std::uint8_t> pixels(static_cast<std::size_t>(size.height * size.width * channels));
    (void)impl::decode_png("a.png", bytes, size, channels, pixels.data());
    return {pixels.begin(), pixels.end()};
}

std::string refusal(const Bytes& bytes) {
    return message_of<DataError>([&] { (void)decoded(bytes, 3); });
}

const std::vector<std::uint8_t> six{255, 0, 0, 0, 255, 0, 0, 0, 255, 10, 20, 30, 200, 200, 200, 1, 2, 3};

}  // namespace

TEST_CASE("colours are read as written, and grey is computed with the weights of JPEG") {
    const Bytes bytes = png(2, 3, PNG_FORMAT_RGB, six);
    CHECK(impl::png_size("a.png", bytes) == impl::ImageSize{2, 3});
    CHECK(decoded(bytes, 3) == std::vector<int>(six.begin(), six.end()));
    CHECK(decoded(bytes, 1) == std::vector<int>{76, 150, 29, 18, 200, 2});
}

TEST_CASE("every grey value is kept, as grey and as colour") {
    std::vector<std::uint8_t> shades(256);
    for (std::size_t i = 0; i < shades.size(); ++i) shades[i] = static_cast<std::uint8_t>(i);
    const Bytes bytes = png(16, 16, PNG_FORMAT_GRAY, shades);
    CHECK(decoded(bytes, 1) == std::vector<int>(shades.begin(), shades.end()));
    const std::vector<int> colours = decoded(bytes, 3);
    for (std::size_t i = 0; i < colours.size(); ++i) CHECK(colours[i] == static_cast<int>(i / 3));
}

TEST_CASE("transparency is dropped, and the colours of a palette are looked up") {
    CHECK(decoded(png<std::uint8_t>(1, 2, PNG_FORMAT_RGBA, {9, 8, 7, 0, 1, 2, 3, 255}), 3) ==
          std::vector<int>{9, 8, 7, 1, 2, 3});
    CHECK(decoded(png<std::uint8_t>(1, 3, PNG_FORMAT_RGB_COLORMAP, {1, 0, 1}, {5, 6, 7, 100, 50, 25}), 3) ==
          std::vector<int>{100, 50, 25, 5, 6, 7, 100, 50, 25});
}

TEST_CASE("a PNG that is truncated anywhere, or is not a PNG, is rejected by its name") {
    const Bytes whole = png(2, 3, PNG_FORMAT_RGB, six);
    for (std::size_t length = 0; length < whole.size() - 12; ++length) {  // the last chunk says that it is the last
        CAPTURE(length);
        const std::string message = refusal(Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length)));
        CHECK(message.starts_with("a.png is not a readable PNG image: "));
    }
    for (std::size_t i = 8; i < whole.size() - 12; ++i) {
        CAPTURE(i);
        Bytes damaged = whole;
        damaged[i] ^= 0x20;
        const std::string message = refusal(damaged);
        CHECK((message == "(no exception)" || message.starts_with("a.png is not a readable PNG image: ")));
    }
    CHECK(refusal({}).starts_with("a.png is not a readable PNG image: "));
}

TEST_CASE("a PNG with an invalid colour profile is read: only its pixels matter") {
    Bytes bytes = png(2, 3, PNG_FORMAT_RGB, six);
    const Bytes profile{0x00, 0x00, 0x00, 0x0B, 0x69, 0x43, 0x43, 0x50, 0x78, 0x00, 0x00, 0x6E,
                        0x6F, 0x6E, 0x73, 0x65, 0x6E, 0x73, 0x65, 0xE5, 0xF2, 0xB3, 0xD7};
    constexpr std::ptrdiff_t after_header = 33;
    bytes.insert(bytes.begin() + after_header, profile.begin(), profile.end());
    CHECK(decoded(bytes, 3) == std::vector<int>(six.begin(), six.end()));
}

TEST_CASE("a folder may contain PNG and JPEG images with any of the endings, also in grey") {
    const TemporaryFolder folder;
    auto files = small_image_folder();
    const std::vector<std::uint8_t> grey(48, 77);
    files["train/cat/3.png"] = png(8, 6, PNG_FORMAT_GRAY, grey);
    files["train/dog/3.PNG"] = files["train/dog/0.JPEG"];
    files["test/dog/1.jpg"] = files["train/cat/3.png"];
    write_all(folder, "set", files);
    const ImageData data = read_image_folder(folder.path("set"), 2, {.channels = 1});
    CHECK(data.train.size() == 8);
    CHECK(data.train.sample_shape() == Shape{8, 6, 1});
    for (const std::uint8_t value : data.train.sample(3)) CHECK(value == 77);
    for (const std::uint8_t value : data.test.sample(2)) CHECK(value == 77);
    const ImageData colours = read_image_folder(folder.path("set"));
    for (const std::uint8_t value : colours.test.sample(2)) CHECK(value == 77);
    files["test/dog/2.png"] = png<std::uint8_t>(1, 2, PNG_FORMAT_GRAY, {1, 2});
    write_all(folder, "other", files);
    CHECK(message_of<DataError>([&] { (void)read_image_folder(folder.path("other")); }) ==
          folder.path("other") + ": test/dog/2.png is 1 x 2 pixels, and " + folder.path("other") +
              ": train/cat/0.jpg is 8 x 6: all images of a data set must have the same size");
}
