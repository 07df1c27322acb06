// SPDX-License-Identifier: Apache-2.0
//
// The augmentations against the tutorial's five steps written out one after another in double, and their golden facts.
// Covers: cupola/data/augmentation.hpp
#include <cupola/models/tutorial_augmentation.hpp>

#include "../test.hpp"

#include "data/support.hpp"

using cupola_tests::random_images;

namespace {

/// The five steps as the tutorial has them, with the numbers taken from the four words of the stream.
std::vector<double> oracle(std::span<const std::uint8_t> image, const Shape& shape, const TutorialAugmentation& d,
                           const RandomStream& random) {
    const auto words = random.words(0);
    const auto unit = [&](std::size_t i) { return static_cast<double>(words[i] >> 8) / 16777216.0; };
    const auto places_x = static_cast<std::uint64_t>(shape.width() - d.width + 1);
    const auto places_y = static_cast<std::uint64_t>(shape.height() - d.height + 1);
    const std::uint64_t place = (words[0] * (places_x * places_y)) >> 32;
    const std::int64_t y0 = d.crop ? static_cast<std::int64_t>(place / places_x) : (shape.height() - d.height) / 2;
    const std::int64_t x0 = d.crop ? static_cast<std::int64_t>(place % places_x) : (shape.width() - d.width) / 2;
    const bool flip = d.flip && words[1] >= 0x8000'0000U;
    const double delta = d.brightness ? -63 + 126 * unit(2) : 0;
    const double factor = d.contrast ? 0.2 + 1.6 * unit(3) : 1;

    std::vector<double> out;
    for (std::int64_t y = 0; y < d.height; ++y) {
        for (std::int64_t x = 0; x < d.width; ++x) {
            const std::int64_t from = flip ? d.width - 1 - x : x;
            for (std::int64_t c = 0; c < shape.channels(); ++c) {
                out.push_back(
                    image[static_cast<std::size_t>(((y0 + y) * shape.width() + x0 + from) * shape.channels() + c)]);
            }
        }
    }
    for (double& value : out) value += delta;
    const auto channels = static_cast<std::size_t>(shape.channels());
    const double pixels = static_cast<double>(out.size()) / static_cast<double>(channels);
    for (std::size_t c = 0; c < channels; ++c) {
        double mean = 0;
        for (std::size_t i = c; i < out.size(); i += channels) mean += out[i] / pixels;
        for (std::size_t i = c; i < out.size(); i += channels) out[i] = (out[i] - mean) * factor + mean;
    }
    if (d.standardize) {
        const auto n = static_cast<double>(out.size());
        double mean = 0, variance = 0;
        for (const double value : out) mean += value / n;
        for (const double value : out) variance += (value - mean) * (value - mean) / n;
        const double deviation = std::max(std::sqrt(variance), 1 / std::sqrt(n));
        for (double& value : out) value = (value - mean) / deviation;
    }
    return out;
}

/// Norm of the difference over norm of the reference; NaN, which is below nothing, if a value was not written.
double difference(const std::vector<float>& got, const std::vector<double>& reference) {
    double difference = 0, norm = 0;
    for (std::size_t i = 0; i < reference.size(); ++i) {
        difference += (got[i] - reference[i]) * (got[i] - reference[i]);
        norm += reference[i] * reference[i];
    }
    return std::sqrt(difference / norm);
}

std::vector<float> augmented(const TutorialAugmentation& d, const ImageSet& set, std::int64_t i,
                             const RandomStream& random) {
    constexpr std::size_t guard = 16;
    const auto size = static_cast<std::size_t>(d.output(set.sample_shape()).size());
    std::vector<float> out(size + guard, std::numeric_limits<float>::quiet_NaN());
    d(set.sample(i), set.sample_shape(), random, out.data());
    for (std::size_t k = size; k < out.size(); ++k) REQUIRE(std::isnan(out[k]));  // nothing written past the end
    out.resize(size);
    return out;
}

ImageSet constant_images(std::uint8_t red, std::uint8_t green, std::uint8_t blue) {
    std::vector<std::uint8_t> pixels(32 * 32 * 3);
    for (std::size_t i = 0; i < pixels.size(); i += 3) {
        pixels[i] = red;
        pixels[i + 1] = green;
        pixels[i + 2] = blue;
    }
    return {"constant", {32, 32, 3}, std::move(pixels), {0}, {"a", "b"}};
}

}  // namespace

TEST_CASE("the augmentations are the tutorial's five steps, each switched on and off, in colour and in grey") {
    for (int switches = 0; switches < 64; ++switches) {
        const ImageSet set = random_images(20, 32, 32, 7, switches < 32 ? 3 : 1);
        TutorialAugmentation d;
        d.crop = (switches & 1) != 0;
        d.flip = (switches & 2) != 0;
        d.brightness = (switches & 4) != 0;
        d.contrast = (switches & 8) != 0;
        d.standardize = (switches & 16) != 0;
        for (std::int64_t i = 0; i < set.size(); ++i) {
            const RandomStream random(11, RngDomain::augmentation, 2, static_cast<std::uint64_t>(i));
            CHECK(difference(augmented(d, set, i, random), oracle(set.sample(i), set.sample_shape(), d, random)) <
                  1e-6);
        }
    }
}

TEST_CASE("crops of any size, including a single pixel and the whole image, agree with the five steps") {
    const Shape extents[] = {{32, 32, 3}, {33, 47, 3}, {1, 1, 3}, {90, 121, 3},  {5, 4095, 3},
                             {32, 32, 1}, {33, 47, 1}, {1, 1, 1}, {120, 121, 1}, {5, 12287, 1}};
    for (const Shape& extent : extents) {
        const ImageSet set = random_images(2, extent.height(), extent.width(), 7, extent.channels());
        for (const auto& [height, width] : {std::pair{extent.height(), extent.width()},
                                            std::pair{(extent.height() + 1) / 2, (extent.width() + 1) / 2},
                                            std::pair{extent.height(), std::int64_t{1}}}) {
            TutorialAugmentation d;
            d.height = height;
            d.width = width;
            // One pixel standardized against itself is rounding over the floor of the deviation.
            d.standardize = height * width > 1;
            for (std::uint32_t epoch = 0; epoch < 5; ++epoch) {
                d.crop = epoch > 0;  // and once the centre
                const RandomStream random(3, RngDomain::augmentation, epoch, 1);
                CHECK(difference(augmented(d, set, 1, random), oracle(set.sample(1), extent, d, random)) < 1e-6);
            }
        }
    }
}

TEST_CASE("a sample is standardized: mean 0 and variance 1") {
    const ImageSet set = random_images(1, 32, 32);
    const std::vector<float> out = augmented({}, set, 0, RandomStream(1, RngDomain::augmentation, 0, 0));
    double mean = 0, squares = 0;
    for (const float value : out) {
        mean += static_cast<double>(value) / 1728;
        squares += static_cast<double>(value) * static_cast<double>(value) / 1728;
    }
    CHECK(std::abs(mean) < 1e-5);
    CHECK(squares == doctest::Approx(1).epsilon(1e-5));
}

TEST_CASE("brightness cancels in the standardization, bit for bit") {
    const ImageSet set = random_images(1, 32, 32);
    const RandomStream random(1, RngDomain::augmentation, 0, 0);
    TutorialAugmentation with, without;
    without.brightness = false;
    CHECK(augmented(with, set, 0, random) == augmented(without, set, 0, random));
    with.standardize = without.standardize = false;
    CHECK(augmented(with, set, 0, random) != augmented(without, set, 0, random));
}

TEST_CASE("contrast cancels for a grey image and not for a coloured one") {
    std::vector<std::uint8_t> grey(32 * 32 * 3);
    for (std::size_t i = 0; i < grey.size(); ++i) grey[i] = static_cast<std::uint8_t>((i / 3 * 37) % 256);
    const ImageSet grey_set("grey", {32, 32, 3}, grey, {0}, {"a", "b"});
    for (std::size_t i = 0; i < grey.size(); i += 3) grey[i] = static_cast<std::uint8_t>(grey[i] / 2);
    const ImageSet coloured_set("coloured", {32, 32, 3}, grey, {0}, {"a", "b"});
    const RandomStream random(1, RngDomain::augmentation, 0, 0);
    TutorialAugmentation without;
    without.contrast = false;
    const auto distance = [&](const ImageSet& set) {
        const std::vector<float> other = augmented(without, set, 0, random);
        return difference(augmented({}, set, 0, random), std::vector<double>(other.begin(), other.end()));
    };
    CHECK(distance(grey_set) < 1e-5);
    CHECK(distance(coloured_set) > 1e-2);
}

TEST_CASE("the deviation of a constant image is the floor, 1 / sqrt(1728) = 0.0240563") {
    const std::vector<float> zero =
        augmented({}, constant_images(90, 90, 90), 0, RandomStream(1, RngDomain::augmentation, 0, 0));
    for (const float value : zero) REQUIRE(std::abs(value) < 1e-3F);  // (x - mean) / floor, to rounding
    // One value of 1,728 off by one deviates by sqrt(1 / 1728 - 1 / 1728^2) = 0.0240493: just below the floor, so the
    // floor divides.
    std::vector<std::uint8_t> pixels(32 * 32 * 3, 90);
    pixels[(16 * 32 + 16) * 3] = 91;
    const ImageSet set("one off", {32, 32, 3}, pixels, {0}, {"a", "b"});
    CenterCrop crop;
    std::vector<float> out(1728);
    crop(set.sample(0), set.sample_shape(), RandomStream(0, RngDomain::augmentation, 0, 0), out.data());
    const double step = 1 / 0.0240563;
    CHECK(out[(12 * 24 + 12) * 3] - out[0] == doctest::Approx(step).epsilon(1e-4));
}

TEST_CASE("the floor of the deviation of a constant grey image is 1 / sqrt(576) = 1 / 24") {
    std::vector<std::uint8_t> pixels(32 * 32, 90);
    pixels[16 * 32 + 16] = 91;  // deviates by sqrt(1 / 576 - 1 / 576^2), just below the floor
    const ImageSet set("one off", {32, 32, 1}, pixels, {0}, {"a", "b"});
    std::vector<float> out(576);
    CenterCrop{}(set.sample(0), set.sample_shape(), RandomStream(0, RngDomain::augmentation, 0, 0), out.data());
    CHECK(out[12 * 24 + 12] - out[0] == doctest::Approx(24).epsilon(1e-6));
    CHECK(std::abs(out[0]) < 0.05F);
}

TEST_CASE("planes of one value each are standardized by the mean and deviation of the three values") {
    // Means of channels 0, 100, 200: mean 100, variance (100^2 + 0 + 100^2) / 3; contrast changes nothing.
    const std::vector<float> out =
        augmented({}, constant_images(0, 100, 200), 0, RandomStream(5, RngDomain::augmentation, 0, 0));
    const float expected = std::sqrt(1.5F);
    for (std::size_t i = 0; i < out.size(); i += 3) {
        REQUIRE(out[i] == doctest::Approx(-expected).epsilon(1e-5));
        REQUIRE(std::abs(out[i + 1]) < 1e-5F);
        REQUIRE(out[i + 2] == doctest::Approx(expected).epsilon(1e-5));
    }
}

TEST_CASE(
    "all 81 crop positions are equally frequent, half the images are flipped, brightness and contrast cover their ranges") {
    const Shape shape{32, 32, 3};
    const TutorialAugmentation d;
    std::vector<int> places(81);
    int flips = 0;
    constexpr int count = 81'000;
    double delta = 0, factor = 0, lowest = 1, highest = 1;
    for (std::uint64_t i = 0; i < count; ++i) {
        const auto drawn = d.draw(shape.height(), shape.width(), RandomStream(1, RngDomain::augmentation, 0, i));
        REQUIRE((drawn.y >= 0 && drawn.y <= 8 && drawn.x >= 0 && drawn.x <= 8));
        REQUIRE((drawn.delta >= -63 && drawn.delta < 63 && drawn.factor >= 0.2 && drawn.factor < 1.8));
        ++places[static_cast<std::size_t>(drawn.y * 9 + drawn.x)];
        flips += drawn.flip ? 1 : 0;
        delta += drawn.delta / count;
        factor += drawn.factor / count;
        lowest = std::min(lowest, drawn.factor);
        highest = std::max(highest, drawn.factor);
    }
    double chi_squared = 0;
    for (const int n : places) chi_squared += (n - 1000.0) * (n - 1000.0) / 1000.0;
    CHECK(chi_squared < 130);                  // 80 degrees of freedom: mean 80, deviation 12.6
    CHECK(std::abs(flips - count / 2) < 600);  // 4 deviations of 142
    CHECK(std::abs(delta) < 0.6);              // deviation 36.4 / sqrt(81000) = 0.13
    CHECK(std::abs(factor - 1) < 0.008);
    CHECK(lowest < 0.21);
    CHECK(highest > 1.79);
}

TEST_CASE("the centre crop is standardized and not random") {
    const ImageSet set = random_images(1, 32, 32);
    TutorialAugmentation plain;
    plain.crop = plain.flip = plain.brightness = plain.contrast = false;
    const std::vector<double> expected =
        oracle(set.sample(0), set.sample_shape(), plain, RandomStream(0, RngDomain::user, 0, 0));
    for (std::uint32_t epoch = 0; epoch < 3; ++epoch) {
        std::vector<float> out(1728);
        CenterCrop{}(set.sample(0), set.sample_shape(), RandomStream(4, RngDomain::augmentation, epoch, 0), out.data());
        CHECK(difference(out, expected) < 1e-6);
    }
    std::vector<float> raw(1728);
    CenterCrop{.standardize = false}(set.sample(0), set.sample_shape(), RandomStream(0, RngDomain::user, 0, 0),
                                     raw.data());
    CHECK(raw[0] == static_cast<float>(set.sample(0)[(4 * 32 + 4) * 3]));
}

TEST_CASE("a brightness and a contrast that cannot be drawn are rejected") {
    const auto refusal = [](const TutorialAugmentation& augmentation) {
        return message_of<InvalidArgument>([&] { static_cast<void>(augmentation.output({32, 32, 3})); });
    };
    const std::string range = "the contrast must be from at least 0 to a finite number that is not below it, not from ";
    CHECK(refusal({.max_brightness = -1}) == "max_brightness must be finite and at least 0, not -1");
    CHECK(refusal({.min_contrast = -1}) == range + "-1 to 1.8");
    CHECK(refusal({.min_contrast = 1.8, .max_contrast = 0.2}) == range + "1.8 to 0.2");
    CHECK(refusal({.max_contrast = std::numeric_limits<double>::quiet_NaN()}) == range + "0.2 to nan");
    CHECK(refusal({.min_contrast = std::numeric_limits<double>::quiet_NaN()}) == range + "nan to 1.8");
}

TEST_CASE("a crop that does not fit is rejected with both extents") {
    TutorialAugmentation large;
    large.width = 33;
    CHECK(message_of<InvalidArgument>([&] {
              static_cast<void>(large.output({32, 32, 3}));
          }) == "a crop of 24 x 33 cannot be cut out of images of 32 x 32");
    CHECK(message_of<InvalidArgument>([&] {
              static_cast<void>(CenterCrop{.height = 0}.output({32, 32, 3}));
          }) == "a crop of 0 x 24 cannot be cut out of images of 32 x 32");
    CHECK(message_of<InvalidArgument>([&] {
              static_cast<void>(CenterCrop{.width = 5000}.output({32, 6000, 3}));
          }) == "a crop of 24 x 5000 cannot be cut out of images of 32 x 6000 (at most 4096 wide)");
    CHECK(message_of<InvalidArgument>([&] {
              static_cast<void>(CenterCrop{.width = 12289}.output({32, 20000, 1}));
          }) == "a crop of 24 x 12289 cannot be cut out of images of 32 x 20000 (at most 12288 wide)");
    CHECK(CenterCrop{}.output({32, 32, 1}) == Shape{24, 24, 1});
    for (const Shape& shape : {Shape{32, 32, 2}, Shape{32, 32, 4}, Shape{1024}}) {
        const std::string expected =
            "images are height x width x 1 (grey) or 3 (red, green, blue), not " + to_string(shape);
        CHECK(message_of<InvalidArgument>([&] { static_cast<void>(CenterCrop{}.output(shape)); }) == expected);
        CHECK(message_of<InvalidArgument>([&] { static_cast<void>(TutorialAugmentation{}.output(shape)); }) ==
              expected);
    }
}

TEST_CASE("an image that is given to CenterCrop by hand is checked, too") {
    std::vector<float> out(24 * 24 * 3);
    const auto crop = [&](std::size_t bytes, const Shape& shape) {
        const std::vector<std::uint8_t> pixels(bytes);
        return message_of<InvalidArgument>(
            [&] { CenterCrop{}(pixels, shape, RandomStream(0, RngDomain::user, 0, 0), out.data()); });
    };
    CHECK(crop(32 * 32 * 3, {32, 32, 3}) == "(no exception)");
    CHECK(crop(32 * 32 * 3 - 1, {32, 32, 3}) == "an image of 32 x 32 x 3 has 3072 bytes, not 3071");
    CHECK(crop(20 * 32 * 3, {20, 32, 3}) == "a crop of 24 x 24 cannot be cut out of images of 20 x 32");
    CHECK(crop(32 * 32, {32, 32, 1}) == "(no exception)");
    CHECK(crop(32 * 32, {32, 32, 3}) == "an image of 32 x 32 x 3 has 3072 bytes, not 1024");
    CHECK(crop(32 * 32 * 2, {32, 32, 2}) ==
          "images are height x width x 1 (grey) or 3 (red, green, blue), not 32 x 32 x 2");
}

TEST_CASE("the description has the options") {
    CHECK(TutorialAugmentation{}.description() == "TutorialAugmentation 24 x 24, brightness 63, contrast 0.2 to 1.8");
    CHECK(TutorialAugmentation{
              .height = 8, .crop = false, .flip = false, .brightness = false, .contrast = false, .standardize = false}
              .description() == "TutorialAugmentation 8 x 24, no crop, no flip, not standardized");
    CHECK(CenterCrop{}.description() == "CenterCrop 24 x 24");
    CHECK(CenterCrop{.width = 32, .standardize = false}.description() == "CenterCrop 24 x 32, not standardized");
}
