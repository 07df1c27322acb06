// SPDX-License-Identifier: Apache-2.0
//
// PNG images of each kind that libpng writes, and folders of them.
#include <cupola/data/impl/images/png_decoder.hpp>

#include "../../test.hpp"

#include <png.h>

#include <cupola/data/image_folder.hpp>

#include "../files_support.hpp"
#include "throws_with.hpp"

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
    const impl::ImageSize size = impl::png_info("a.png", bytes).size;
    std::vector<std::uint8_t> pixels(static_cast<std::size_t>(size.height * size.width * channels));
    (void)impl::decode_png("a.png", bytes, size, channels, pixels.data());
    return {pixels.begin(), pixels.end()};
}

std::vector<float> decoded_wide(const Bytes& bytes, int channels) {
    const impl::ImageInfo info = impl::png_info("a.png", bytes);
    CHECK(info.wide);
    std::vector<float> values(static_cast<std::size_t>(info.size.height * info.size.width * channels));
    (void)impl::decode_wide_png("a.png", bytes, info.size, channels, values.data());
    return values;
}

std::string refusal(const Bytes& bytes) {
    return message_of<DataError>([&] { (void)decoded(bytes, 3); });
}

const std::vector<std::uint8_t> six{255, 0, 0, 0, 255, 0, 0, 0, 255, 10, 20, 30, 200, 200, 200, 1, 2, 3};

}  // namespace

TEST_CASE("colours are read as written, and grey is computed with the weights of JPEG") {
    const Bytes bytes = png(2, 3, PNG_FORMAT_RGB, six);
    CHECK(impl::png_info("a.png", bytes).size == impl::ImageSize{2, 3});
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

TEST_CASE("gamma and colour profiles do not change the values, as in Pillow and OpenCV") {
    const Bytes values{5, 43, 128, 255};
    constexpr int grey = 0, colour = 2;
    Bytes profile{'x', 0, 0};
    const Bytes packed{0x78, 0x9C, 0x03, 0x00, 0x00, 0x00, 0x00, 0x01};  // zlib's stream of nothing
    profile.insert(profile.end(), packed.begin(), packed.end());
    for (const Bytes& chunk : {png_chunk("gAMA", {0, 1, 0x86, 0xA0}), png_chunk("gAMA", {0, 0, 0x11, 0x22}),
                               png_chunk("iCCP", profile), png_chunk("sRGB", {0}), png_chunk("sBIT", {3})}) {
        CHECK(decoded(png_of(2, 2, 8, grey, values, chunk), 1) == std::vector<int>{5, 43, 128, 255});
        CHECK(decoded(png_of(1, 1, 8, colour, {5, 43, 128}, chunk), 3) == std::vector<int>{5, 43, 128});
    }
}

TEST_CASE("grey of 1, 2 and 4 bits becomes 8 bits, where the largest value is white") {
    CHECK(decoded(png_of(1, 4, 1, 0, {0xA0}), 1) == std::vector<int>{255, 0, 255, 0});
    CHECK(decoded(png_of(1, 4, 2, 0, {0x1B}), 1) == std::vector<int>{0, 85, 170, 255});
    CHECK(decoded(png_of(1, 2, 4, 0, {0x1F}), 1) == std::vector<int>{17, 255});
}

TEST_CASE("16 bits are an error that names the functions for floats, which give the values of the file") {
    constexpr int grey = 0, colour = 2, grey_alpha = 4;
    const Bytes ramp = png_of(1, 4, 16, grey, in_16_bits({0, 1, 4095, 65535}));
    CHECK(
        refusal(ramp) ==
        "a.png has 16 bits per sample, which bytes cannot hold; read_image<float> and read_image_folder<float> read it "
        "as floats from 0 to 65535");
    CHECK(refusal(png_of(1, 1, 16, colour, in_16_bits({1, 2, 3}))).starts_with("a.png has 16 bits per sample"));
    CHECK(decoded_wide(ramp, 1) == std::vector<float>{0, 1, 4095, 65535});
    CHECK(decoded_wide(ramp, 3) == std::vector<float>{0, 0, 0, 1, 1, 1, 4095, 4095, 4095, 65535, 65535, 65535});
    CHECK(decoded_wide(png_of(1, 4, 16, grey, in_16_bits({0, 1, 4095, 65535}), png_chunk("gAMA", {0, 1, 0x86, 0xA0})),
                       1) == std::vector<float>{0, 1, 4095, 65535});
    CHECK(decoded_wide(png_of(1, 2, 16, grey_alpha, in_16_bits({300, 1, 301, 2})), 1) == std::vector<float>{300, 301});
    const Bytes colours = png_of(1, 2, 16, colour, in_16_bits({1, 256, 65535, 777, 777, 777}));
    CHECK(decoded_wide(colours, 3) == std::vector<float>{1, 256, 65535, 777, 777, 777});
    const std::vector<float> greys = decoded_wide(colours, 1);
    CHECK(greys[0] == doctest::Approx(0.299 + 0.587 * 256 + 0.114 * 65535).epsilon(1e-4));
    CHECK(greys[1] == 777);
    CHECK(decoded_wide(png_of(2, 1, 16, grey, in_16_bits({7, 9}), {}, png_chunk("eXIf", exif(6))), 1) ==
          std::vector<float>{9, 7});
}

TEST_CASE("the orientation of the chunk eXIf is followed, before the pixels and after them") {
    constexpr int grey = 0, colour = 2;
    const Bytes values{1, 2, 3, 4, 5, 6};
    const std::vector<int> upright[] = {{1, 2, 3, 4, 5, 6}, {3, 2, 1, 6, 5, 4}, {6, 5, 4, 3, 2, 1}, {4, 5, 6, 1, 2, 3},
                                        {1, 4, 2, 5, 3, 6}, {4, 1, 5, 2, 6, 3}, {6, 3, 5, 2, 4, 1}, {3, 6, 2, 5, 1, 4}};
    for (int orientation = 1; orientation <= 8; ++orientation) {
        CAPTURE(orientation);
        const Bytes chunk = png_chunk("eXIf", exif(orientation, orientation % 2 == 0));
        const auto expected = upright[orientation - 1];
        for (const Bytes& image : {png_of(2, 3, 8, grey, values, chunk), png_of(2, 3, 8, grey, values, {}, chunk)}) {
            CHECK(impl::png_info("a.png", image).size ==
                  (orientation < 5 ? impl::ImageSize{2, 3} : impl::ImageSize{3, 2}));
            CHECK(decoded(image, 1) == expected);
        }
        Bytes colours;
        for (const std::uint8_t value : values) colours.insert(colours.end(), {value, 100, 200});
        const std::vector<int> turned = decoded(png_of(2, 3, 8, colour, colours, chunk), 3);
        for (std::size_t i = 0; i < expected.size(); ++i)
            CHECK(std::vector<int>(turned.begin() + 3 * static_cast<std::ptrdiff_t>(i),
                                   turned.begin() + 3 * static_cast<std::ptrdiff_t>(i) + 3) ==
                  std::vector<int>{expected[i], 100, 200});
    }
    Bytes damaged = png_chunk("eXIf", exif(3));
    damaged.back() ^= 1U;
    CHECK(decoded(png_of(2, 3, 8, grey, values, damaged), 1) == upright[0]);
    // What follows the end of the image is not of it.
    Bytes more = png_of(2, 3, 8, grey, values);
    const Bytes behind = png_chunk("eXIf", exif(3));
    more.insert(more.end(), behind.begin(), behind.end());
    CHECK(decoded(more, 1) == upright[0]);
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
    CHECK(
        message_of<DataError>([&] { (void)read_image_folder(folder.path("other")); }) ==
        folder.path("other") + ": test/dog/2.png is 1 x 2 pixels, and " + folder.path("other") +
            ": train/cat/0.jpg is 8 x 6: all images of a data set must have the same size; the option fit makes them so");
}
