// SPDX-License-Identifier: Apache-2.0
#include <cupola/data/image.hpp>

#include "../test.hpp"

#include "../throws_with.hpp"

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
