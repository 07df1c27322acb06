// SPDX-License-Identifier: Apache-2.0
//
// The expected bytes are those of torchvision's `resized_crop` and `hflip` for images of Pillow.
#include <cupola/data/batches.hpp>
#include <cupola/data/prefetch.hpp>
#include <cupola/data/random_resized_crop.hpp>

#include "../test.hpp"

#include "patterned.hpp"
#include "support.hpp"

using cupola_tests::hash_of, cupola_tests::patterned, cupola_tests::random_images;

namespace {

RandomStream stream(std::uint32_t epoch, std::uint64_t index = 0) { return {7, RngDomain::augmentation, epoch, index}; }

/// torchvision's RandomResizedCrop.get_params, with the random numbers of the stream.
DrawnPart oracle(std::int64_t height, std::int64_t width, const RandomResizedCrop& crop, const RandomStream& random) {
    const auto number = [&](std::uint32_t block, std::size_t word, double low, double high) {
        return low + (high - low) * (random.words(block)[word] >> 8) / 16777216.0;
    };
    const bool flip = number(11, 0, 0, 1) >= 1 - crop.flip;
    for (std::uint32_t attempt = 1; attempt <= 10; ++attempt) {
        const double area = static_cast<double>(height * width) * number(attempt, 0, crop.min_scale, crop.max_scale);
        const double ratio = std::exp(number(attempt, 1, std::log(crop.min_ratio), std::log(crop.max_ratio)));
        const auto w = std::lrint(std::sqrt(area * ratio)), h = std::lrint(std::sqrt(area / ratio));
        if (w <= 0 || w > width || h <= 0 || h > height) continue;
        const auto y =
            static_cast<std::int64_t>((random.words(attempt)[2] * static_cast<std::uint64_t>(height - h + 1)) >> 32);
        const auto x =
            static_cast<std::int64_t>((random.words(attempt)[3] * static_cast<std::uint64_t>(width - w + 1)) >> 32);
        return {y, x, h, w, flip};
    }
    std::int64_t h = height, w = width;
    const double ratio = static_cast<double>(width) / static_cast<double>(height);
    if (ratio < crop.min_ratio) h = std::lrint(static_cast<double>(w) / crop.min_ratio);
    if (ratio > crop.max_ratio) w = std::lrint(static_cast<double>(h) * crop.max_ratio);
    return {(height - h) / 2, (width - w) / 2, h, w, flip};
}

std::vector<int> values(const Image& image) { return {image.pixels.begin(), image.pixels.end()}; }

static_assert(SampleTransform<RandomResizedCrop, ImageSet> && TransformsAsStored<RandomResizedCrop, ImageSet>);
static_assert(SampleTransform<RandomResizedCrop, BasicImageSet<float>> && !Transforms<RandomResizedCrop, ImageSet>);

}  // namespace

TEST_CASE("a part of an image is resized and flipped to the bytes of torchvision") {
    const Image image = patterned(20, 31, 3);
    CHECK(values(RandomResizedCrop{.height = 2, .width = 3}(image, DrawnPart{3, 5, 12, 9, false})) ==
          std::vector<int>{118, 130, 134, 130, 128, 122, 123, 123, 124, 132, 134, 125, 128, 137, 120, 118, 122, 121});
    CHECK(values(RandomResizedCrop{.height = 2, .width = 3}(image, DrawnPart{3, 5, 12, 9, true})) ==
          std::vector<int>{123, 123, 124, 130, 128, 122, 118, 130, 134, 118, 122, 121, 128, 137, 120, 132, 134, 125});
    const RandomResizedCrop enlarging{.height = 24, .width = 24};
    CHECK(hash_of(enlarging(image, DrawnPart{0, 0, 20, 31, false}).pixels) == 0xbe0674ad415c1b8aU);
    CHECK(hash_of(enlarging(image, DrawnPart{7, 30, 13, 1, false}).pixels) == 0xe992f54f5b5125cdU);
    const RandomResizedCrop bicubic{.height = 9, .width = 16, .filter = ResizeFilter::bicubic};
    CHECK(hash_of(bicubic(image, DrawnPart{1, 2, 17, 26, true}).pixels) == 0x7463471fac588864U);
}

TEST_CASE("the part is drawn as by torchvision, and is the largest allowed one in the centre after 10 attempts") {
    for (const auto& [height, width] : {std::pair{20, 31}, {31, 20}, {224, 224}, {3, 40}, {40, 3}, {1, 1}, {200, 9}}) {
        for (const RandomResizedCrop& crop :
             {RandomResizedCrop{},
              RandomResizedCrop{.min_scale = 0.5, .max_scale = 0.5, .min_ratio = 1, .max_ratio = 1},
              RandomResizedCrop{.min_scale = 0.9, .min_ratio = 0.2, .max_ratio = 7, .flip = 0.25}}) {
            for (std::uint32_t epoch = 0; epoch < 200; ++epoch) {
                const DrawnPart part = crop.draw(height, width, stream(epoch));
                CHECK(part == oracle(height, width, crop, stream(epoch)));
                CHECK((part.y >= 0 && part.x >= 0 && part.height >= 1 && part.width >= 1));
                CHECK((part.y + part.height <= height && part.x + part.width <= width));
            }
        }
    }
    CHECK(RandomResizedCrop{.min_scale = 1, .flip = 1}.draw(3, 40, stream(0)) == DrawnPart{0, 18, 3, 4, true});
    CHECK(RandomResizedCrop{.min_scale = 1, .flip = 1}.draw(41, 3, stream(0)) == DrawnPart{18, 0, 4, 3, true});
    CHECK(RandomResizedCrop{.min_scale = 1, .min_ratio = 3, .max_ratio = 3}.draw(90, 1, stream(0)).height == 1);
    CHECK(RandomResizedCrop{.min_ratio = 1e-300, .max_ratio = 1e-250, .flip = 0}.draw(9, 7, stream(0)) ==
          DrawnPart{0, 3, 9, 1, false});
    CHECK(RandomResizedCrop{.min_ratio = 1e250, .max_ratio = 1e300, .flip = 0}.draw(9, 7, stream(0)) ==
          DrawnPart{4, 0, 1, 7, false});
}

TEST_CASE("area, ratio, place and flip have torchvision's distributions") {
    constexpr int draws = 8000;
    double area = 0, ratio = 0, y = 0, x = 0, flips = 0, least = 1, most = 0;
    for (std::uint32_t i = 0; i < draws; ++i) {
        const DrawnPart part = RandomResizedCrop{.max_scale = 0.5}.draw(1000, 1000, stream(0, i));
        const double fraction = static_cast<double>(part.height * part.width) / 1e6;
        area += fraction / draws;
        least = std::min(least, fraction);
        most = std::max(most, fraction);
        ratio += std::log(static_cast<double>(part.width) / static_cast<double>(part.height)) / draws;
        y += static_cast<double>(part.y) / static_cast<double>(1000 - part.height) / draws;
        x += static_cast<double>(part.x) / static_cast<double>(1000 - part.width) / draws;
        flips += part.flip ? 1.0 / draws : 0;
    }
    // A part of 1000 x 1000 is within 1 / 200 of its area before it was rounded; none of 8000 uniform numbers is in a 200th
    // of the range with the probability exp(-40).
    CHECK((least > 0.079 && least < 0.083 && most > 0.495 && most < 0.503));
    // Uniform numbers have the deviation (high - low) / sqrt(12): five deviations of the mean of 8000.
    CHECK(std::abs(area - 0.29) < 5 * 0.42 / std::sqrt(12.0 * draws));
    CHECK(std::abs(ratio) < 5 * 2 * std::log(4.0 / 3) / std::sqrt(12.0 * draws));
    CHECK(std::abs(y - 0.5) < 5 / std::sqrt(12.0 * draws));
    CHECK(std::abs(x - 0.5) < 5 / std::sqrt(12.0 * draws));
    CHECK(std::abs(flips - 0.5) < 5 * 0.5 / std::sqrt(1.0 * draws));
    for (std::uint32_t i = 0; i < 100; ++i) {
        CHECK(RandomResizedCrop{.flip = 1}.draw(9, 9, stream(0, i)).flip);
        CHECK_FALSE(RandomResizedCrop{.flip = 0}.draw(9, 9, stream(0, i)).flip);
    }
}

TEST_CASE("batches have another part in each epoch, and the same ones for any number of workers") {
    const ImageSet set = random_images(6, 20, 31);
    const RandomResizedCrop crop{.height = 8, .width = 10};
    using Batches = TrainingBatches<ImageSet, RandomResizedCrop>;
    const Batches batches(set, crop, {.batch_size = 6, .seed = 7});
    CHECK(batches.columns()[0] == ColumnSpec{"input", ElementType::uint8, {8, 10, 3}});
    std::vector<std::vector<std::uint8_t>> seen;
    for (const int workers : {0, 1, 3}) {
        Prefetch prefetched(Batches(set, crop, {.batch_size = 6, .seed = 7}), {.workers = workers});
        cupola_tests::SerialContext context;
        for (std::int64_t step = 0; step < 4; ++step) {
            const BatchView view = prefetched(step, 0, context);
            const auto* const bytes = static_cast<const std::uint8_t*>(view.data(0));
            for (std::int64_t i = 0; i < 6; ++i) {
                std::array<SampleOfEpoch, 1> place;
                batches.samples_at(step, 0, i, place);
                std::vector<std::uint8_t> expected(240);
                const Image image{20, 31, 3, {set.sample(place[0].index).begin(), set.sample(place[0].index).end()}};
                const RandomStream random(7, RngDomain::augmentation, place[0].epoch, place[0].index);
                CHECK(
                    std::ranges::equal(crop(image, crop.draw(20, 31, random)).pixels, std::span(bytes + i * 240, 240)));
                if (workers == 0) seen.emplace_back(bytes + i * 240, bytes + (i + 1) * 240);
            }
        }
    }
    std::ranges::sort(seen);
    CHECK(std::ranges::adjacent_find(seen) == seen.end());
}

TEST_CASE("the range of an image's values stays that of its file") {
    BasicImage<float> scan{2, 3, 1, {0, 65535, 1, 2, 3, 4}, 16};
    CHECK(RandomResizedCrop{.height = 2, .width = 2}(scan, DrawnPart{0, 1, 2, 2, true}).pixels ==
          std::vector<float>{1, 65535, 4, 3});
    CHECK(RandomResizedCrop{.height = 2, .width = 2}(scan, DrawnPart{0, 1, 2, 2, true}).bits == 16);
}

TEST_CASE("images of floats are resized without rounding") {
    const Image bytes = patterned(12, 10, 1);
    const std::vector<float> floats(bytes.pixels.begin(), bytes.pixels.end());
    const RandomResizedCrop crop{.height = 5, .width = 6};
    std::vector<std::uint8_t> from_bytes(30);
    std::vector<float> from_floats(30);
    crop(std::span<const std::uint8_t>(bytes.pixels), bytes.shape(), stream(3), from_bytes.data());
    crop(std::span<const float>(floats), bytes.shape(), stream(3), from_floats.data());
    int fractions = 0;
    for (std::size_t i = 0; i < 30; ++i) {
        CHECK(std::abs(from_floats[i] - static_cast<float>(from_bytes[i])) <= 1.01F);
        fractions += from_floats[i] != std::floor(from_floats[i]) ? 1 : 0;
    }
    CHECK(fractions > 10);
}

TEST_CASE("options that are out of range, samples that are no images and parts outside are errors") {
    const double nan = impl::not_a_number<double>(), infinity = std::numeric_limits<double>::infinity();
    const auto message = [](const RandomResizedCrop& crop) {
        return message_of<InvalidArgument>([&] { static_cast<void>(crop.output(Shape{4, 4, 3})); });
    };
    CHECK(message({.min_scale = 0.5, .max_scale = 0.2}) ==
          "RandomResizedCrop takes a part of 0 < min_scale <= max_scale <= 1 of an image's area, not of 0.5 to 0.2");
    for (const RandomResizedCrop& crop :
         {RandomResizedCrop{.min_scale = 0}, RandomResizedCrop{.min_scale = -1}, RandomResizedCrop{.min_scale = nan},
          RandomResizedCrop{.max_scale = nan}, RandomResizedCrop{.max_scale = 1.5}})
        CHECK(message(crop).starts_with("RandomResizedCrop takes a part of 0 < min_scale"));
    CHECK(message({.min_ratio = 0}) ==
          "RandomResizedCrop takes parts with ratios of width to height 0 < min_ratio <= max_ratio, not 0 to 1.33333");
    for (const RandomResizedCrop& crop :
         {RandomResizedCrop{.min_ratio = 2}, RandomResizedCrop{.min_ratio = -1}, RandomResizedCrop{.min_ratio = nan},
          RandomResizedCrop{.max_ratio = nan}, RandomResizedCrop{.max_ratio = infinity}})
        CHECK(message(crop).starts_with("RandomResizedCrop takes parts with ratios"));
    CHECK(message({.flip = 1.5}) == "the probability of a flip must be 0 to 1, not 1.5");
    CHECK(message({.flip = -0.5}) == "the probability of a flip must be 0 to 1, not -0.5");
    CHECK(message({.flip = nan}).starts_with("the probability of a flip must be 0 to 1, not"));
    CHECK(message({.height = 0}) == "the height and width of an image must be at least 1, not 0 x 224");
    CHECK(message_of<InvalidArgument>([] { static_cast<void>(RandomResizedCrop{}.output(Shape{48})); }) ==
          "images must be height x width x channels, not 48");
    CHECK(message_of<InvalidArgument>([] {
              static_cast<void>(RandomResizedCrop{}.output(Shape{4, 0, 3}));
          }) == "images must be height x width x channels, not 4 x 0 x 3");
    CHECK(message({.width = 70'000}) == "the height and width of an image must be at most 65535, not 224 x 70000");
    CHECK(message_of<InvalidArgument>([] {
              static_cast<void>(RandomResizedCrop{}(patterned(4, 5, 1), DrawnPart{2, 0, 3, 3, false}));
          }) == "a part of 3 x 3 at (2, 0) cannot be cut out of an image of 4 x 5");
    CHECK(message_of<InvalidArgument>([] {
              std::vector<std::uint8_t> short_image(11), to(224 * 224 * 3);
              RandomResizedCrop{}(std::span<const std::uint8_t>(short_image), Shape{2, 2, 3}, stream(0), to.data());
          }) == "an image of 2 x 2 x 3 has 12 values, not 11");
}

TEST_CASE("the description has the options") {
    CHECK(RandomResizedCrop{}.description() ==
          "RandomResizedCrop 224 x 224, scale 0.08 to 1, ratio 0.75 to 1.3333333333333333, flip 0.5, bilinear");
    CHECK(RandomResizedCrop{.flip = 0, .filter = ResizeFilter::bicubic}.description() ==
          "RandomResizedCrop 224 x 224, scale 0.08 to 1, ratio 0.75 to 1.3333333333333333, flip 0, bicubic");
}
