// SPDX-License-Identifier: Apache-2.0
//
// Standardisation: the constants against direct sums, the transform, and the way through a run's description.
#include <cupola/data/standardization.hpp>

#include "../test.hpp"

#include <cupola/data/batches.hpp>
#include <cupola/data/in_memory.hpp>
#include <cupola/data/split.hpp>
#include <cupola/io/checkpoint_info.hpp>

#include "support.hpp"

using namespace cupola_tests;

static_assert(SampleTransform<Standardization, ImageSet>);
static_assert(SampleTransform<Standardization, InMemory>);

namespace {

std::vector<float> transformed(const Standardization& constants, const std::vector<float>& sample) {
    std::vector<float> result(sample.size());
    constants(std::span<const float>(sample), Shape{static_cast<std::int64_t>(sample.size())},
              RandomStream(0, RngDomain::augmentation, 0, 0), result.data());
    return result;
}

}  // namespace

TEST_CASE("the constants of a table are those of its columns") {
    const std::vector<float> samples{1, 10, 2, 10, 6, 40};
    const std::vector<std::int32_t> labels(3);
    const InMemory data(Shape{2}, samples, labels, 1);
    const Standardization constants = Standardization::of(data);
    CHECK(constants.means()[0] == doctest::Approx(3));
    CHECK(constants.means()[1] == doctest::Approx(20));
    CHECK(constants.deviations()[0] == doctest::Approx(std::sqrt(14.0 / 3)));
    CHECK(constants.deviations()[1] == doctest::Approx(std::sqrt(200.0)));
    const std::vector<float> sample = transformed(constants, {6, 10});
    CHECK(sample[0] == doctest::Approx(3 / std::sqrt(14.0 / 3)));
    CHECK(sample[1] == doctest::Approx(-10 / std::sqrt(200.0)));
    std::vector<float> in_place{6, 10, 6, 10};
    constants.apply(in_place);
    CHECK(std::vector<float>(in_place.begin() + 2, in_place.end()) == sample);
}

namespace {

/// Samples that are computed when they are read.
struct Computed {
    std::string_view name() const { return "computed"; }
    std::int64_t size() const { return 3; }
    Shape sample_shape() const { return {2}; }
    std::vector<float> sample(std::int64_t i) const { return {static_cast<float>(i * i), 10 + static_cast<float>(i)}; }
    std::int32_t label(std::int64_t) const { return 0; }
    std::int64_t class_count() const { return 1; }
};

}  // namespace

TEST_CASE("the constants of samples that are computed when they are read are those of their values") {
    const Standardization constants = Standardization::of(Computed{});
    CHECK(constants.means()[0] == doctest::Approx(5.0 / 3));
    CHECK(constants.means()[1] == doctest::Approx(11));
    CHECK(constants.deviations()[0] == doctest::Approx(std::sqrt(26.0) / 3));
    CHECK(constants.deviations()[1] == doctest::Approx(std::sqrt(2.0 / 3)));
}

TEST_CASE("the constants of images are those of their channels") {
    const ImageSet images = random_images(20, 5, 4);
    const Standardization constants = Standardization::of(images);
    REQUIRE(constants.means().size() == 3);
    for (std::size_t c = 0; c < 3; ++c) {
        long double sum = 0, squares = 0;
        for (std::int64_t i = 0; i < 20; ++i) {
            for (std::size_t k = c; k < 60; k += 3) {
                sum += images.sample(i)[k];
                squares += static_cast<long double>(images.sample(i)[k]) * images.sample(i)[k];
            }
        }
        const long double mean = sum / 400;
        CHECK(constants.means()[c] == doctest::Approx(static_cast<double>(mean)).epsilon(1e-14));
        CHECK(constants.deviations()[c] ==
              doctest::Approx(static_cast<double>(std::sqrt(squares / 400 - mean * mean))).epsilon(1e-12));
    }
    CHECK(constants.output(images.sample_shape()) == Shape{5, 4, 3});
    std::vector<float> sample(60);
    double sums[3]{}, squares[3]{};
    for (std::int64_t i = 0; i < 20; ++i) {
        constants(images.sample(i), images.sample_shape(), RandomStream(0, RngDomain::augmentation, 0, 0),
                  sample.data());
        for (std::size_t k = 0; k < 60; ++k) {
            sums[k % 3] += static_cast<double>(sample[k]);
            squares[k % 3] += static_cast<double>(sample[k]) * static_cast<double>(sample[k]);
        }
    }
    for (std::size_t c = 0; c < 3; ++c) {
        CHECK(std::fabs(sums[c] / 400) < 1e-6);
        CHECK(squares[c] / 400 == doctest::Approx(1).epsilon(1e-6));
    }
}

TEST_CASE("a large mean costs no digits of the deviation") {
    std::vector<float> samples;
    for (int i = 0; i < 1000; ++i) samples.push_back(16'000'000.0F + static_cast<float>(i % 2));
    const std::vector<std::int32_t> labels(1000);
    const Standardization constants = Standardization::of(InMemory(Shape{1}, samples, labels, 1));
    CHECK(constants.means()[0] == 16'000'000.5);
    CHECK(constants.deviations()[0] == 0.5);
    CHECK(transformed(constants, {16'000'001}) == std::vector<float>{1});
}

TEST_CASE("a column of one value becomes 0, and its difference from that value elsewhere") {
    const std::vector<float> samples{0.1F, 1, 0.1F, 2, 0.1F, 3, 0.1F, 4, 0.1F, 5, 0.1F, 6, 0.1F, 7};
    const std::vector<std::int32_t> labels(7);
    const Standardization constants = Standardization::of(InMemory(Shape{2}, samples, labels, 1));
    CHECK(constants.deviations()[0] == 0);
    CHECK(constants.means()[0] == static_cast<double>(0.1F));
    CHECK(transformed(constants, {0.1F, 4}) == std::vector<float>{0, 0});
    CHECK(transformed(constants, {2.1F, 4})[0] == doctest::Approx(2));
}

TEST_CASE("the constants are those of the training part only") {
    const ImageSet images = random_images(30, 2, 2);
    const auto [training, validation] = split(images, {.validation = 0.5, .seed = 2});
    const Standardization constants = Standardization::of(training);
    CHECK(constants != Standardization::of(images));
    CHECK(constants != Standardization::of(validation));
    double sum = 0;
    for (const std::uint32_t index : training.indices()) {
        for (std::size_t k = 0; k < 12; k += 3) sum += images.sample(index)[k];
    }
    CHECK(constants.means()[0] == doctest::Approx(sum / 60));
}

TEST_CASE("a run's description contains the constants exactly, and others differ by name") {
    const Standardization constants({1.0 / 3, -1e-300, 0}, {0.1, 0, 12345.678901234567});
    CheckpointInfo info;
    constants.store_in(info);
    CHECK(Standardization::stored_in(info, "a.safetensors") == constants);
    CheckpointInfo other;
    Standardization({1.0 / 3, 2, 0}, {0.1, 0, 12345.678901234567}).store_in(other);
    const auto found = differences(info, other);
    REQUIRE(found.size() == 1);
    CHECK(to_string(found[0]) ==
          "standardization.input.means was 0.3333333333333333 -1e-300 0 and is 0.3333333333333333 2 0");

    const auto refusal = [](const CheckpointInfo& stored) {
        return message_of<DataError>([&] { static_cast<void>(Standardization::stored_in(stored, "a.safetensors")); });
    };
    CHECK(refusal({}) == "a.safetensors has no standardization of the column input");
    for (const char* list : {"", "1,2", "1 ", "1  2", "x", "1 2x"}) {
        info.set("standardization.input.means", list);
        CHECK(refusal(info) == "a.safetensors has a standardization that is not a list of numbers");
    }
    info.set("standardization.input.means", "1 2");
    CHECK(refusal(info) == "a.safetensors: a standardization has 2 means and 3 deviations");
    info.set("standardization.input.means", "1 inf 2");
    CHECK(refusal(info) == "a.safetensors: the mean of column 1 of a standardization must be finite, not inf");
}

TEST_CASE("samples of different extents have the same channels") {
    struct Sample : std::vector<std::uint8_t> {
        Shape extents;
        Sample(const Shape& of, std::uint8_t value)
            : std::vector<std::uint8_t>(static_cast<std::size_t>(of.size()), value), extents(of) {}
        const Shape& shape() const { return extents; }
    };
    struct Photographs {
        std::vector<Shape> shapes;
        std::string_view name() const { return "photographs"; }
        std::int64_t size() const { return static_cast<std::int64_t>(shapes.size()); }
        Shape sample_shape() const { return shapes[0]; }
        Sample sample(std::int64_t i) const {
            return {shapes[static_cast<std::size_t>(i)], static_cast<std::uint8_t>(i)};
        }
        std::int32_t label(std::int64_t) const { return 0; }
        std::int64_t class_count() const { return 1; }
    };
    static_assert(HasSampleExtents<Photographs>);
    const Standardization constants = Standardization::of(Photographs{{{1, 1, 3}, {3, 1, 3}}});
    CHECK(constants.means() == std::vector<double>{0.75, 0.75, 0.75});
    for (const Shape& other : {Shape{2, 5, 1}, Shape{0, 4, 3}}) {
        CHECK(message_of<DataError>([&] {
                  static_cast<void>(Standardization::of(Photographs{{{4, 4, 3}, {2, 2, 3}, other}}));
              }) == text("sample 2 of the data set photographs has the extents ", to_string(other),
                         ", and the first 4 x 4 x 3: the last extents must be the same"));
    }
}

TEST_CASE("constants and samples that do not fit are rejected") {
    const auto refusal = [](std::vector<double> means, std::vector<double> deviations) {
        return message_of<InvalidArgument>([&] { Standardization(std::move(means), std::move(deviations)); });
    };
    CHECK(refusal({}, {}) == "a standardization has 0 means and 0 deviations");
    CHECK(refusal({1, 2}, {1, -1}) ==
          "the deviation of column 1 of a standardization must be finite and at least 0, not -1");
    CHECK(refusal({1}, {std::numeric_limits<double>::quiet_NaN()}) ==
          "the deviation of column 0 of a standardization must be finite and at least 0, not nan");
    CHECK(refusal({1}, {1e-320}) ==
          "the deviation of column 0 of a standardization is 9.99989e-321, which is too small to divide by");
    const Standardization three({0, 0, 0}, {1, 1, 1});
    CHECK(message_of<InvalidArgument>([&] {
              static_cast<void>(three.output({8, 8, 1}));
          }) == "samples of 8 x 8 x 1 cannot be standardized with 3 means: the last extent must be that number");
    std::vector<float> values(7);
    CHECK(message_of<InvalidArgument>([&] { three.apply(values); }) == "7 values cannot be standardized with 3 means");
    const std::vector<float> samples{1, 2, 3, std::numeric_limits<float>::infinity()};
    const std::vector<std::int32_t> labels(2);
    CHECK(message_of<DataError>([&] {
              static_cast<void>(Standardization::of(InMemory(Shape{2}, samples, labels, 1)));
          }) == "column 1 of the input of sample 1 of the data set in memory is not finite");
}

TEST_CASE("the description of a standardization depends on every constant") {
    const auto described = [](std::vector<double> means, std::vector<double> deviations) {
        return Standardization(std::move(means), std::move(deviations)).description();
    };
    const std::string description = described({1, 2}, {3, 4});
    CHECK(description.starts_with("Standardization of 2, hash "));
    CHECK(described({1, 2}, {3, 4}) == description);
    CHECK(described({1, 2.0000001}, {3, 4}) != description);
    CHECK(described({1, 2}, {3, 4.0000001}) != description);
    CHECK(described({3, 4}, {1, 2}) != description);
}
