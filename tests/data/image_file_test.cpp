// SPDX-License-Identifier: Apache-2.0
#include <cupola/data/image_file.hpp>

#include "../test.hpp"

#include "files_support.hpp"
#include "throws_with.hpp"

using namespace cupola_tests;

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
