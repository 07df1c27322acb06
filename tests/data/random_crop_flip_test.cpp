// SPDX-License-Identifier: Apache-2.0
//
// Pad, crop and flip against the same steps written out one after another, and the frequency of each position and orientation.
#include <cupola/data/random_crop_flip.hpp>

#include "../test.hpp"

#include <cupola/data/batches.hpp>
#include <cupola/data/dataset.hpp>

#include "support.hpp"
#include "throws_with.hpp"

using cupola_tests::random_images;

namespace {

/// Scales, pads with black to (h + 2 p) x (w + 2 p), cuts at (y0, x0), then flips: four arrays, one after another.
std::vector<float> oracle(std::span<const std::uint8_t> image, const Shape& shape, std::int64_t p, std::int64_t y0,
                          std::int64_t x0, bool flip) {
    const std::int64_t h = shape.height(), w = shape.width(), c = shape.channels(), wide = w + 2 * p;
    std::vector<float> padded(static_cast<std::size_t>((h + 2 * p) * wide * c), -1.0F);
    for (std::int64_t y = 0; y < h; ++y) {
        for (std::int64_t i = 0; i < w * c; ++i) {
            padded[static_cast<std::size_t>(((y + p) * wide + p) * c + i)] =
                static_cast<float>(image[static_cast<std::size_t>(y * w * c + i)] / 128.0 - 1.0);
        }
    }
    std::vector<float> piece;
    for (std::int64_t y = 0; y < h; ++y) {
        for (std::int64_t x = 0; x < w; ++x) {
            const std::int64_t column = flip ? w - 1 - x : x;
            for (std::int64_t k = 0; k < c; ++k)
                piece.push_back(padded[static_cast<std::size_t>(((y0 + y) * wide + x0 + column) * c + k)]);
        }
    }
    return piece;
}

std::vector<float> augmented(const RandomCropFlip& d, const ImageSet& set, std::uint32_t epoch) {
    std::vector<float> to(static_cast<std::size_t>(set.sample_shape().size()), std::numeric_limits<float>::quiet_NaN());
    d(set.sample(0), set.sample_shape(), RandomStream(7, RngDomain::augmentation, epoch, 0), to.data());
    return to;
}

static_assert(SampleTransform<RandomCropFlip, ImageSet> && SampleTransform<ScaledPixels, ImageSet>);

}  // namespace

TEST_CASE("an image is padded, cropped and flipped as by separate loops") {
    for (const Shape& shape :
         {Shape{32, 32, 3}, Shape{5, 7, 3}, Shape{1, 1, 3}, Shape{2, 600, 3}, Shape{32, 32, 1}, Shape{2, 600, 1}}) {
        const ImageSet set = random_images(1, shape.height(), shape.width(), 7, shape.channels());
        for (const std::int64_t padding : {4, 0, 1, 9}) {
            for (std::uint32_t epoch = 0; epoch < 40; ++epoch) {
                const auto words = RandomStream(7, RngDomain::augmentation, epoch, 0).words(0);
                const auto places = static_cast<std::uint64_t>(2 * padding + 1);
                const std::uint64_t place = (words[0] * (places * places)) >> 32;
                const auto y = static_cast<std::int64_t>(place / places), x = static_cast<std::int64_t>(place % places);
                const bool flip = words[1] >= 0x8000'0000U;
                CHECK(augmented({.padding = padding}, set, epoch) == oracle(set.sample(0), shape, padding, y, x, flip));
                CHECK(augmented({.padding = padding, .flip = false}, set, epoch) ==
                      oracle(set.sample(0), shape, padding, y, x, false));
                CHECK(augmented({.padding = padding, .crop = false}, set, epoch) ==
                      oracle(set.sample(0), shape, padding, padding, padding, flip));
            }
        }
    }
}

TEST_CASE("images with other than three channels are padded, cropped and flipped in the same way") {
    for (const std::int64_t channels : {1, 2, 4}) {
        const Shape shape{4, 9, channels};
        std::vector<std::uint8_t> image(static_cast<std::size_t>(shape.size()));
        for (std::size_t i = 0; i < image.size(); ++i) image[i] = static_cast<std::uint8_t>(i * 37);
        for (std::uint32_t epoch = 0; epoch < 40; ++epoch) {
            const RandomStream random(7, RngDomain::augmentation, epoch, 0);
            const auto words = random.words(0);
            const std::uint64_t place = (words[0] * std::uint64_t{49}) >> 32;
            std::vector<float> to(image.size() + 1, 77.0F);
            RandomCropFlip{.padding = 3}(image, shape, random, to.data());
            CHECK(to.back() == 77.0F);
            to.pop_back();
            CHECK(to == oracle(image, shape, 3, static_cast<std::int64_t>(place / 7),
                               static_cast<std::int64_t>(place % 7), words[1] >= 0x8000'0000U));
        }
    }
}

TEST_CASE("every position of the crop and both orientations are equally frequent") {
    // For an image of one pixel and a padding of 1, each crop has one of nine positions.
    std::vector<std::uint8_t> wide(3 * 3 * 3, 128);  // 128 becomes 0
    wide[4 * 3] = 255;                               // the middle pixel
    const Shape shape{3, 3, 3};
    std::map<std::size_t, int> at;
    constexpr int draws = 9000;
    for (std::uint32_t i = 0; i < draws; ++i) {
        std::vector<float> to(27);
        RandomCropFlip{.padding = 1, .flip = false}(wide, shape, RandomStream(3, RngDomain::augmentation, 0, i),
                                                    to.data());
        for (std::size_t pixel = 0; pixel < 9; ++pixel) at[pixel] += to[pixel * 3] > 0.0F ? 1 : 0;
    }
    int flipped = 0;
    std::vector<std::uint8_t> left(27, 128);
    left[0] = 255;
    for (std::uint32_t i = 0; i < draws; ++i) {
        std::vector<float> to(27);
        RandomCropFlip{.padding = 0}(left, shape, RandomStream(3, RngDomain::augmentation, 0, i), to.data());
        flipped += to[6] > 0.0F ? 1 : 0;
    }
    REQUIRE(at.size() == 9);
    for (const auto& [place, count] : at) CHECK(std::abs(count - draws / 9) < 5 * 30);  // five deviations
    CHECK(std::abs(flipped - draws / 2) < 5 * 48);
}

TEST_CASE("in evaluation images are only scaled") {
    const ImageSet set = random_images(1, 4, 4);
    std::vector<float> to(48);
    ScaledPixels{}(set.sample(0), set.sample_shape(), RandomStream(1, RngDomain::augmentation, 0, 0), to.data());
    for (std::size_t i = 0; i < to.size(); ++i) CHECK(to[i] == static_cast<float>(set.sample(0)[i]) / 128.0F - 1.0F);
    CHECK(ScaledPixels{}.output(Shape{4, 4, 3}) == Shape{4, 4, 3});
    CHECK(RandomCropFlip{}.output(Shape{4, 4, 3}) == Shape{4, 4, 3});
}

TEST_CASE("images that cannot be padded are rejected") {
    CHECK(message_of<InvalidArgument>([] {
              static_cast<void>(RandomCropFlip{.padding = -1}.output(Shape{4, 4, 3}));
          }) == "the padding must be 0 to 16384 pixels on each side, not -1");
    CHECK(message_of<InvalidArgument>([] { static_cast<void>(RandomCropFlip{}.output(Shape{48})); }) ==
          "images must be height x width x channels, not 48");
}

TEST_CASE("the description has the options") {
    CHECK(RandomCropFlip{}.description() == "RandomCropFlip, padding 4");
    CHECK(RandomCropFlip{.padding = 2, .crop = false, .flip = false}.description() ==
          "RandomCropFlip, padding 2, no crop, no flip");
}
