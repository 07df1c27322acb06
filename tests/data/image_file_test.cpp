// SPDX-License-Identifier: Apache-2.0
#include <cupola/data/image_file.hpp>

#include "../test.hpp"

#include "files_support.hpp"
#include "throws_with.hpp"

using namespace cupola_tests;

namespace {

/// Each pixel's red is 10 times its row plus its column.
Image numbered(std::int64_t height, std::int64_t width) {
    Image image{height, width, 3, {}};
    for (std::int64_t y = 0; y < height; ++y) {
        for (std::int64_t x = 0; x < width; ++x) {
            image.pixels.insert(image.pixels.end(), {static_cast<std::uint8_t>(10 * y + x), 100, 200});
        }
    }
    return image;
}

std::vector<int> reds(const Image& image) {
    std::vector<int> result;
    for (std::size_t i = 0; i < image.pixels.size(); i += 3) {
        result.push_back(image.pixels[i]);
        CHECK(image.pixels[i + 1] == 100);
        CHECK(image.pixels[i + 2] == 200);
    }
    return result;
}

}  // namespace

TEST_CASE("a JPEG file gives its extents and colours") {
    const TemporaryFolder folder;
    const Image image = read_image(folder.write("a.jpg", jpeg(8, 6, 200, 100, 50)));
    CHECK(image.height == 8);
    CHECK(image.width == 6);
    REQUIRE(image.pixels.size() == 8 * 6 * 3);
    const int colours[] = {200, 100, 50};
    for (std::size_t i = 0; i < image.pixels.size(); ++i) CHECK(std::abs(image.pixels[i] - colours[i % 3]) <= 2);
}

TEST_CASE("an image can be read in grey") {
    const TemporaryFolder folder;
    const Image image = read_image(folder.write("a.jpg", jpeg(8, 6, 200, 100, 50)), 1);
    REQUIRE(image.pixels.size() == 8 * 6);
    for (const std::uint8_t value : image.pixels) CHECK(std::abs(value - 124) <= 2);  // ITU-R BT.601
    CHECK(fitted(image, 2, 2).shape() == Shape{2, 2, 1});
    CHECK(message_of<InvalidArgument>([&] { (void)read_image(folder.path("a.jpg"), 2); }) ==
          "an image must have 1 channel (grey) or 3 (red, green, blue), not 2");
}

TEST_CASE("an image is upright as its EXIF says, and a fault that leaves the pixels whole is said") {
    const TemporaryFolder folder;
    const Bytes stored = jpeg(8, 6, 200, 100, 50);
    CHECK(standard_error_of([&] {
              const Image image = read_image(folder.write("a.jpg", with_exif(stored, exif(6))));
              CHECK(image.height == 6);
              CHECK(image.width == 8);
          }) == "");
    const std::string path = folder.write("b.jpg", with_bytes_before_end(stored));
    CHECK(standard_error_of([&] {
              CHECK(read_image(path).pixels == read_image(folder.write("a.jpg", stored)).pixels);
          }) == "warning: " + path + " has bytes before the end marker; it is read all the same\n");
}

TEST_CASE("an image of 16 bits per sample is read as floats, unscaled, and as bytes it is an error") {
    const TemporaryFolder folder;
    const std::string path = folder.write("a.png", png_of(2, 2, 16, 0, in_16_bits({0, 256, 4095, 65535})));
    CHECK(
        message_of<DataError>([&] { (void)read_image(path); }) ==
        path +
            " has 16 bits per sample, which bytes cannot hold; read_image<float> and read_image_folder<float> read it "
            "as floats from 0 to 65535");
    const BasicImage<float> image = read_image<float>(path, 1);
    CHECK(image.bits == 16);
    CHECK(image.pixels == std::vector<float>{0, 256, 4095, 65535});
    CHECK(fitted(image, 1, 1).pixels == std::vector<float>{17471.5F});
    const BasicImage<float> bytes = read_image<float>(folder.write("b.jpg", jpeg(8, 6, 200, 200, 200)), 1);
    CHECK(bytes.bits == 8);
    CHECK(bytes.pixels == std::vector<float>(48, 200));
}

TEST_CASE("a file that is not a readable JPEG image is rejected with its name") {
    const TemporaryFolder folder;
    const std::string path = folder.path("a.jpg");
    CHECK(message_of<DataError>([&] { (void)read_image(path); }) == path + " does not exist");
    CHECK(message_of<DataError>([&] { (void)read_image(folder.path()); }) == folder.path() + " is not a regular file");
    folder.write("a.jpg", Bytes{});
    CHECK(message_of<DataError>([&] { (void)read_image(path); }) == path + " is empty");
    Bytes cut = jpeg(32, 32, 1, 2, 3, true);
    cut.resize(cut.size() / 2);
    folder.write("a.jpg", cut);
    CHECK(contains(message_of<DataError>([&] { (void)read_image(path); }), path + " is not a readable JPEG image: "));
}

TEST_CASE(
    "an image is reduced by averaging, enlarged by repeating, and cropped in the centre to the requested proportions") {
    CHECK(reds(fitted(numbered(3, 3), 3, 3)) == std::vector<int>{0, 1, 2, 10, 11, 12, 20, 21, 22});
    CHECK(reds(fitted(numbered(4, 4), 2, 2)) == std::vector<int>{6, 8, 26, 28});  // 5.5, 7.5, 25.5, 27.5 rounded up
    CHECK(reds(fitted(numbered(2, 2), 4, 4)) ==
          std::vector<int>{0, 0, 1, 1, 0, 0, 1, 1, 10, 10, 11, 11, 10, 10, 11, 11});
    CHECK(reds(fitted(numbered(2, 4), 2, 2)) == std::vector<int>{1, 2, 11, 12});
    CHECK(reds(fitted(numbered(4, 2), 2, 2)) == std::vector<int>{10, 11, 20, 21});
    CHECK(reds(fitted(numbered(1, 5), 3, 3)) == std::vector<int>(9, 2));
    CHECK(message_of<InvalidArgument>([] { (void)fitted(numbered(2, 2), 0, 4); }) ==
          "the height and width of an image must be at least 1, not 0 x 4");
    CHECK(message_of<InvalidArgument>([] { (void)fitted(numbered(2, 2), 1LL << 62, 4); }) ==
          "the height and width of an image must be at most 65535, not 4611686018427387904 x 4");
    CHECK(message_of<InvalidArgument>([] {
              (void)fitted(Image{1LL << 62, 4, 3, {}}, 4, 4);
          }) == "an image of 4611686018427387904 x 4 x 3 has 0 bytes of pixels");
    CHECK(message_of<InvalidArgument>([] { (void)fitted(Image{}, 4, 4); }) ==
          "an image of 0 x 0 x 3 has 0 bytes of pixels");
    Image cut = numbered(2, 2);
    cut.pixels.pop_back();
    CHECK(message_of<InvalidArgument>([&] { (void)fitted(cut, 4, 4); }) ==
          "an image of 2 x 2 x 3 has 11 bytes of pixels");
}
