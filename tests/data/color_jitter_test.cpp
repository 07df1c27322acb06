// SPDX-License-Identifier: Apache-2.0
//
// The expected bytes are those of torchvision's adjust_brightness, adjust_contrast, adjust_saturation and adjust_hue
// for images of Pillow.
#include <cupola/data/batches.hpp>
#include <cupola/data/color_jitter.hpp>

#include "../test.hpp"

#include "patterned.hpp"
#include "support.hpp"

using cupola_tests::hash_of, cupola_tests::patterned, cupola_tests::random_images;

namespace {

RandomStream stream(std::uint64_t index) { return {7, RngDomain::augmentation, 0, index}; }

std::vector<std::uint8_t> adjusted(Image image, const ColorAdjustment& adjustment) {
    adjust_colors(image.pixels, image.channels, adjustment);
    return image.pixels;
}

/// Every 15th value of each channel.
Image color_cube() {
    Image cube{1, 18 * 18 * 18, 3, {}};
    for (int red = 0; red < 256; red += 15) {
        for (int green = 0; green < 256; green += 15) {
            for (int blue = 0; blue < 256; blue += 15) {
                for (const int value : {red, green, blue}) cube.pixels.push_back(static_cast<std::uint8_t>(value));
            }
        }
    }
    return cube;
}

static_assert(SampleTransform<ColorJitter, ImageSet> && !SampleTransform<ColorJitter, BasicImageSet<float>>);

}  // namespace

TEST_CASE("brightness, contrast, saturation and hue are adjusted to the bytes of torchvision") {
    const Image image = patterned(6, 7, 3), cube = color_cube();
    struct Case {
        double by;
        std::uint64_t brightness, contrast, saturation;
    };
    for (const Case& each : {Case{0, 0x9183fc343753559d, 0x0b8b348ccf21a867, 0xd633847ac1579a26},
                             {0.3, 0x26aa23f7e521741b, 0x4aa548a21540b69f, 0x00460df454997f20},
                             {0.7, 0x2541a6acaf17c802, 0xd9977a359b4357ef, 0x44ddb9867141ae99},
                             {1, 0x25ad4acec99610d1, 0x25ad4acec99610d1, 0x25ad4acec99610d1},
                             {1.4, 0x99215fcace06b45f, 0xbfe0bcdac53b2da8, 0xefae49ca53272ad8},
                             {2.5, 0xdd50a81f63ca1bc6, 0x7bef77f65070c4b4, 0x05c90746e5704270}}) {
        CAPTURE(each.by);
        CHECK(hash_of(adjusted(image, {.brightness = each.by})) == each.brightness);
        CHECK(hash_of(adjusted(image, {.contrast = each.by})) == each.contrast);
        CHECK(hash_of(adjusted(image, {.saturation = each.by})) == each.saturation);
    }
    const std::pair<double, std::uint64_t> turned[] = {{-0.5, 0x2dc9b32c0988efef},
                                                       {-0.1, 0xf67a52c57e7c9230},
                                                       {0.003, 0xc5f0a25686aa19a2},
                                                       {0.25, 0xf5a755a639c32567},
                                                       {0.5, 0xaab0e4a52274d2eb}};
    for (const auto& each : turned) {
        CAPTURE(each.first);
        CHECK(hash_of(adjusted(image, {.hue = each.first})) == each.second);
    }
    CHECK(adjusted(image, {}) == image.pixels);
    CHECK(hash_of(adjusted(cube, {.brightness = 1.37})) == 0x7d42ffe9d5deb555U);
    CHECK(hash_of(adjusted(cube, {.contrast = 0.63})) == 0x001c291237981c95U);
    CHECK(hash_of(adjusted(cube, {.saturation = 1.9})) == 0x27e18ab6afa2135cU);
    CHECK(hash_of(adjusted(cube, {.hue = 0.1})) == 0xc8f6594c0e9dd402U);
    CHECK(hash_of(adjusted(cube, {.hue = -0.37})) == 0x71dca527a4b07ff3U);
}

TEST_CASE("a grey image has brightness and contrast") {
    const Image grey = patterned(6, 7, 1);
    CHECK(hash_of(adjusted(grey, {.brightness = 1.4})) == 0xbd793391fd3e8bddU);
    CHECK(hash_of(adjusted(grey, {.contrast = 1.4})) == 0xb207efe54cec2aa4U);
    CHECK(adjusted(grey, {.saturation = 1.4, .hue = 0.2}) == grey.pixels);
}

TEST_CASE("the steps are done in the order that is given") {
    const Image image = patterned(6, 7, 3);
    using enum ColorStep;
    CHECK(hash_of(adjusted(image, {1.3, 1.2, 0.6, 0.1, {brightness, saturation, contrast, hue}})) ==
          0xd64dc636f60ff5a1U);
    CHECK(hash_of(adjusted(image, {1.3, 1.2, 0.6, 0.1, {hue, saturation, contrast, brightness}})) !=
          0xd64dc636f60ff5a1U);
}

TEST_CASE("factors are uniform around 1, the hue around 0, and all orders are equally frequent") {
    constexpr ColorJitter jitter{.brightness = 0.4, .contrast = 1.5, .saturation = 0.2, .hue = 0.1};
    constexpr int draws = 9600;
    double sums[4] = {}, least[4] = {9, 9, 9, 9}, most[4] = {-9, -9, -9, -9};
    std::map<std::array<ColorStep, 4>, int> orders;
    for (std::uint64_t i = 0; i < draws; ++i) {
        const ColorAdjustment drawn = jitter.draw(stream(i));
        const double numbers[4] = {drawn.brightness, drawn.contrast, drawn.saturation, drawn.hue};
        for (std::size_t k = 0; k < 4; ++k) {
            sums[k] += numbers[k] / draws;
            least[k] = std::min(least[k], numbers[k]);
            most[k] = std::max(most[k], numbers[k]);
        }
        ++orders[drawn.order];
    }
    const double low[4] = {0.6, 0, 0.8, -0.1}, high[4] = {1.4, 2.5, 1.2, 0.1};
    for (std::size_t k = 0; k < 4; ++k) {
        CAPTURE(k);
        const double range = high[k] - low[k];
        // Five deviations of the mean of uniform numbers, whose own is range / sqrt(12).
        CHECK(std::abs(sums[k] - (low[k] + high[k]) / 2) < 5 * range / std::sqrt(12.0 * draws));
        // None of 9600 uniform numbers is in a 500th of the range with the probability exp(-19).
        CHECK((least[k] >= low[k] && least[k] < low[k] + range / 500));
        CHECK((most[k] <= high[k] && most[k] > high[k] - range / 500));
    }
    REQUIRE(orders.size() == 24);
    // Five deviations of the binomial distribution.
    for (const auto& [order, count] : orders)
        CHECK(std::abs(count - draws / 24) < 5 * std::sqrt(draws / 24.0 * (1 - 1 / 24.0)));
    CHECK(ColorJitter{}.draw(stream(3)).brightness == 1);
    CHECK(ColorJitter{}.draw(stream(3)).hue == 0);
}

TEST_CASE("a sample is the image with the drawn adjustment") {
    const ImageSet set = random_images(3, 5, 4);
    constexpr ColorJitter jitter{.brightness = 0.4, .contrast = 0.4, .saturation = 0.4, .hue = 0.2};
    for (std::uint64_t i = 0; i < 3; ++i) {
        const auto sample = set.sample(static_cast<std::int64_t>(i));
        std::vector<std::uint8_t> to(61, 77);
        jitter(sample, set.sample_shape(), stream(i), to.data());
        CHECK(to.back() == 77);
        to.pop_back();
        CHECK(to == adjusted({5, 4, 3, {sample.begin(), sample.end()}}, jitter.draw(stream(i))));
        ColorJitter{}(sample, set.sample_shape(), stream(i), to.data());
        CHECK(std::ranges::equal(to, sample));
    }
}

TEST_CASE("options and factors that are out of range, and samples that are no images, are errors") {
    const double nan = impl::not_a_number<double>();
    const auto message = [](const ColorJitter& jitter) {
        return message_of<InvalidArgument>([&] { static_cast<void>(jitter.output(Shape{4, 4, 3})); });
    };
    CHECK(message({.brightness = -0.1}) == "the brightness of a ColorJitter must be 0 to 255, not -0.1");
    CHECK(message({.brightness = 1e300}) == "the brightness of a ColorJitter must be 0 to 255, not 1e+300");
    CHECK(message({.contrast = nan}).starts_with("the contrast of a ColorJitter must be 0 to 255, not"));
    CHECK(message({.saturation = -1}) == "the saturation of a ColorJitter must be 0 to 255, not -1");
    CHECK(message({.hue = nan}).starts_with("the hue of a ColorJitter must be 0 to 0.5, not"));
    CHECK(message({.hue = 0.6}) == "the hue of a ColorJitter must be 0 to 0.5, not 0.6");
    CHECK(message({.hue = -0.1}) == "the hue of a ColorJitter must be 0 to 0.5, not -0.1");
    CHECK(message({.brightness = 255, .contrast = 255, .saturation = 255, .hue = 0.5}) == "(no exception)");
    CHECK(message_of<InvalidArgument>([] {
              static_cast<void>(ColorJitter{}.output(Shape{0, 4, 3}));
          }) == "images are height x width x 1 (grey) or 3 (red, green, blue), not 0 x 4 x 3");
    CHECK(message_of<InvalidArgument>([] {
              static_cast<void>(ColorJitter{}.output(Shape{4, 4, 2}));
          }) == "images are height x width x 1 (grey) or 3 (red, green, blue), not 4 x 4 x 2");
    CHECK(message_of<InvalidArgument>([] { (void)adjusted(patterned(2, 2, 3), {.brightness = -1}); }) ==
          "the factor of an adjustment must be 0 to 256, not -1");
    CHECK(message_of<InvalidArgument>([] { (void)adjusted(patterned(2, 2, 3), {.contrast = 257}); }) ==
          "the factor of an adjustment must be 0 to 256, not 257");
    CHECK(message_of<InvalidArgument>([] { (void)adjusted(patterned(2, 2, 3), {.hue = 0.7}); }) ==
          "the hue is turned by -0.5 to 0.5, not by 0.7");
    CHECK(message_of<InvalidArgument>([] {
              using enum ColorStep;
              (void)adjusted(patterned(2, 2, 3), {.order = {brightness, contrast, hue, contrast}});
          }) == "the order of an adjustment has step 1 twice: each of the four steps occurs once");
    CHECK(message_of<InvalidArgument>([] { (void)adjusted(patterned(2, 2, 2), {}); }) ==
          "colours are adjusted of images of 1 or 3 channels, not 2");
    CHECK(message_of<InvalidArgument>([] {
              (void)adjusted({1, 1, 3, {1, 2}}, {});
          }) == "2 bytes are not whole pixels of 3 channels");
    CHECK(message_of<InvalidArgument>([] {
              std::vector<std::uint8_t> image(11), to(12);
              ColorJitter{}(image, Shape{2, 2, 3}, stream(0), to.data());
          }) == "an image of 2 x 2 x 3 has 12 bytes, not 11");
    CHECK(ColorJitter{.brightness = 0.4000001, .hue = 0.1}.description() ==
          "ColorJitter, brightness 0.4000001, contrast 0, saturation 0, hue 0.1");
}
