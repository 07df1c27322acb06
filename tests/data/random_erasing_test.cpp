// SPDX-License-Identifier: Apache-2.0
#include <cupola/data/batches.hpp>
#include <cupola/data/random_erasing.hpp>

#include "../test.hpp"

#include "support.hpp"

namespace {

RandomStream stream(std::uint64_t index) { return {7, RngDomain::augmentation, 0, index}; }

/// torchvision's RandomErasing.get_params, with the random numbers of the stream.
std::optional<ErasedPart> oracle(std::int64_t height, std::int64_t width, const RandomErasing& erasing,
                                 const RandomStream& random) {
    const auto number = [&](std::uint32_t block, std::size_t word, double low, double high) {
        return low + (high - low) * (random.words(block)[word] >> 8) / 16777216.0;
    };
    if (number(48, 0, 0, 1) >= erasing.probability) return {};
    for (std::uint32_t block = 49; block < 59; ++block) {
        const double area =
            static_cast<double>(height * width) * number(block, 0, erasing.min_scale, erasing.max_scale);
        const double ratio = std::exp(number(block, 1, std::log(erasing.min_ratio), std::log(erasing.max_ratio)));
        const auto h = std::lrint(std::sqrt(area * ratio)), w = std::lrint(std::sqrt(area / ratio));
        if (!(h < height && w < width)) continue;
        const auto y = (random.words(block)[2] * static_cast<std::uint64_t>(height - h + 1)) >> 32;
        const auto x = (random.words(block)[3] * static_cast<std::uint64_t>(width - w + 1)) >> 32;
        return ErasedPart{static_cast<std::int64_t>(y), static_cast<std::int64_t>(x), h, w};
    }
    return {};
}

static_assert(SampleTransform<RandomErasing, BasicImageSet<float>> && !SampleTransform<RandomErasing, ImageSet>);

}  // namespace

TEST_CASE("a rectangle is drawn as by torchvision and filled with the value") {
    int none = 0;
    for (const Shape& shape : {Shape{20, 31, 3}, Shape{9, 6, 1}, Shape{1, 8, 2}, Shape{3, 40, 4}}) {
        for (const RandomErasing& erasing :
             {RandomErasing{}, RandomErasing{.probability = 1, .value = -2.5F},
              RandomErasing{
                  .probability = 0.9, .min_scale = 0.2, .max_scale = 0.9, .min_ratio = 0.1, .max_ratio = 5}}) {
            for (std::uint64_t i = 0; i < 60; ++i) {
                const std::optional<ErasedPart> part = erasing.draw(shape.height(), shape.width(), stream(i));
                CHECK(part == oracle(shape.height(), shape.width(), erasing, stream(i)));
                none += part ? 0 : 1;
                std::vector<float> image(static_cast<std::size_t>(shape.size()));
                std::iota(image.begin(), image.end(), 1.0F);
                std::vector<float> to(image.size() + 1, 77.0F), expected = image;
                for (std::int64_t k = 0; k < shape.size() && part; ++k) {
                    const std::int64_t y = k / shape.channels() / shape.width(),
                                       x = k / shape.channels() % shape.width();
                    if (y >= part->y && y < part->y + part->height && x >= part->x && x < part->x + part->width)
                        expected[static_cast<std::size_t>(k)] = erasing.value;
                }
                erasing(image, shape, stream(i), to.data());
                CHECK(to.back() == 77.0F);
                to.pop_back();
                CHECK(to == expected);
            }
        }
    }
    CHECK(none > 100);
}

TEST_CASE("a rectangle of extreme proportions fits into no image") {
    for (std::uint64_t i = 0; i < 20; ++i) {
        CHECK_FALSE(RandomErasing{.probability = 1, .min_ratio = 1e-300, .max_ratio = 1e-250}.draw(9, 9, stream(i)));
        CHECK_FALSE(RandomErasing{.probability = 1, .min_ratio = 1e250, .max_ratio = 1e300}.draw(9, 9, stream(i)));
    }
}

TEST_CASE("noise has the mean 0 and the deviation 1, and other numbers for each value") {
    const Shape shape{60, 50, 3};
    const std::vector<float> image(9000, 100.0F);
    std::vector<float> noise;
    for (std::uint64_t i = 0; i < 20; ++i) {
        std::vector<float> to(9000);
        RandomErasing{.noise = true}(image, shape, stream(i), to.data());
        std::ranges::copy_if(to, std::back_inserter(noise), [](float x) { return x != 100.0F; });
    }
    const auto count = static_cast<double>(noise.size());
    REQUIRE(count > 2000);
    const double mean = std::accumulate(noise.begin(), noise.end(), 0.0) / count;
    double variance = 0;
    for (const float x : noise) variance += (x - mean) * (x - mean) / count;
    // Five deviations of the mean and of the variance of independent normal numbers.
    CHECK(std::abs(mean) < 5 / std::sqrt(count));
    CHECK(std::abs(variance - 1) < 5 * std::sqrt(2 / count));
    std::ranges::sort(noise);
    CHECK(std::ranges::unique(noise).size() < noise.size() / 100);  // equal only by the rounding to floats
}

TEST_CASE("probability and area have torchvision's distributions") {
    constexpr int draws = 8000;
    int erased = 0;
    double area = 0;
    for (std::uint64_t i = 0; i < draws; ++i) {
        const auto part =
            RandomErasing{.probability = 0.25, .min_ratio = 1, .max_ratio = 1}.draw(1000, 1000, stream(i));
        if (!part) continue;
        ++erased;
        area += static_cast<double>(part->height * part->width) / 1e6;
        CHECK(part->height == part->width);
    }
    // Five deviations, of a binomial distribution and of the mean of numbers that are uniform in [0.02, 0.33].
    CHECK(std::abs(erased - 0.25 * draws) < 5 * std::sqrt(draws * 0.25 * 0.75));
    CHECK(std::abs(area / erased - 0.175) < 5 * 0.31 / std::sqrt(12.0 * erased));
    for (std::uint64_t i = 0; i < 100; ++i) {
        CHECK(RandomErasing{.probability = 1}.draw(99, 99, stream(i)).has_value());
        CHECK_FALSE(RandomErasing{.probability = 0}.draw(99, 99, stream(i)).has_value());
    }
}

TEST_CASE("options that are out of range and samples that are no images are errors") {
    const double nan = impl::not_a_number<double>();
    const auto message = [](const RandomErasing& erasing) {
        return message_of<InvalidArgument>([&] { static_cast<void>(erasing.output(Shape{4, 4, 3})); });
    };
    CHECK(message({.probability = 1.5}) == "the probability of RandomErasing must be 0 to 1, not 1.5");
    CHECK(message({.probability = nan}).starts_with("the probability of RandomErasing must be 0 to 1, not"));
    CHECK(message({.probability = -0.1}) == "the probability of RandomErasing must be 0 to 1, not -0.1");
    CHECK(message({.min_scale = 0}).starts_with("RandomErasing erases 0 < min_scale"));
    CHECK(message({.max_scale = 1.5}).starts_with("RandomErasing erases 0 < min_scale"));
    CHECK(message({.max_ratio = std::numeric_limits<double>::infinity()})
              .starts_with("RandomErasing erases parts with ratios"));
    CHECK(message({.min_scale = 0.5}) ==
          "RandomErasing erases 0 < min_scale <= max_scale <= 1 of an image's area, not 0.5 to 0.33");
    CHECK(message({.max_scale = nan}).starts_with("RandomErasing erases 0 < min_scale"));
    CHECK(message({.min_ratio = 0}) ==
          "RandomErasing erases parts with ratios of height to width 0 < min_ratio <= max_ratio, not 0 to 3.3");
    CHECK(message({.min_ratio = nan}).starts_with("RandomErasing erases parts with ratios"));
    CHECK(message({.min_ratio = 4}).starts_with("RandomErasing erases parts with ratios"));
    CHECK(
        message({.value = impl::not_a_number<float>()}).starts_with("the value of RandomErasing must be finite, not"));
    CHECK(message_of<InvalidArgument>([] { static_cast<void>(RandomErasing{}.output(Shape{48})); }) ==
          "images must be height x width x channels, not 48");
    CHECK(message_of<InvalidArgument>([] {
              static_cast<void>(RandomErasing{}.output(Shape{4, 4, 0}));
          }) == "images must be height x width x channels, not 4 x 4 x 0");
    CHECK(message_of<InvalidArgument>([] {
              std::vector<float> image(11), to(12);
              RandomErasing{}(image, Shape{2, 2, 3}, stream(0), to.data());
          }) == "an image of 2 x 2 x 3 has 12 values, not 11");
    CHECK(RandomErasing{}.description() ==
          "RandomErasing, probability 0.5, scale 0.02 to 0.33, ratio 0.3 to 3.3, value 0");
    CHECK(RandomErasing{.max_scale = 0.1234567, .value = 1.234567F}.description() ==
          text("RandomErasing, probability 0.5, scale 0.02 to 0.1234567, ratio 0.3 to 3.3, value ",
               exact_text(static_cast<double>(1.234567F))));
    CHECK(RandomErasing{.noise = true}.description() ==
          "RandomErasing, probability 0.5, scale 0.02 to 0.33, ratio 0.3 to 3.3, noise");
}
