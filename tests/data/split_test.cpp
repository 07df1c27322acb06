// SPDX-License-Identifier: Apache-2.0
//
// The split of a data set into a part for training and one for validation.
#include <cupola/data/split.hpp>

#include "../test.hpp"

#include <cupola/data/batches.hpp>
#include <cupola/data/evaluation.hpp>
#include <cupola/data/in_memory.hpp>

#include "support.hpp"

using namespace cupola_tests;

static_assert(Dataset<Subset<ImageSet>>);
static_assert(Dataset<Subset<Subset<InMemory>>>);

namespace {

std::vector<std::uint32_t> all(const Split<ImageSet>& parts) {
    std::vector<std::uint32_t> result = parts.training.indices();
    result.insert(result.end(), parts.validation.indices().begin(), parts.validation.indices().end());
    std::ranges::sort(result);
    return result;
}

}  // namespace

TEST_CASE("each sample is in one of the two parts, as a view of the data set") {
    const ImageSet images = random_images(50, 4, 3);
    const auto parts = split(images, {.validation = 0.3, .seed = 7});
    CHECK(parts.training.size() == 35);
    CHECK(parts.validation.size() == 15);
    std::vector<std::uint32_t> expected(50);
    std::iota(expected.begin(), expected.end(), 0U);
    CHECK(all(parts) == expected);
    CHECK(std::ranges::is_sorted(parts.validation.indices()));
    CHECK(parts.validation.name() == "random images (validation part)");
    CHECK(parts.training.sample_shape() == Shape{4, 3, 3});
    CHECK(parts.training.class_count() == 10);
    for (std::int64_t i = 0; i < 15; ++i) {
        const std::int64_t index = parts.validation.indices()[static_cast<std::size_t>(i)];
        CHECK(parts.validation.sample(i).data() == images.sample(index).data());
        CHECK(parts.validation.label(i) == images.label(index));
    }
}

TEST_CASE("a split is a function of the seed, and each sample is as likely for validation as any other") {
    const ImageSet images = random_images(20, 1, 1);
    const auto validation = [&](std::uint64_t seed) {
        return split(images, {.validation = 0.25, .seed = seed}).validation.indices();
    };
    CHECK(validation(1) == validation(1));
    CHECK(validation(1) != validation(2));
    std::vector<int> often(20);
    constexpr int splits = 4000;
    for (std::uint64_t seed = 0; seed < splits; ++seed) {
        for (const std::uint32_t index : validation(seed)) ++often[index];
    }
    // Six deviations of a binomial number with p = 1/4.
    for (const int count : often) CHECK(std::abs(count - splits / 4) < 6 * std::sqrt(splits * 0.25 * 0.75));
}

TEST_CASE("a stratified split takes the fraction of every class") {
    // 40 samples of class 0, 10 of class 1, 4 of class 3, none of class 2.
    std::vector<std::int32_t> labels(54, 0);
    std::fill(labels.begin() + 40, labels.begin() + 50, 1);
    std::fill(labels.begin() + 50, labels.end(), 3);
    const std::vector<float> samples(54);
    const InMemory data(Shape{1}, samples, labels, 4);
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        const auto parts = split(data, {.validation = 0.25, .seed = seed, .stratified = true});
        std::vector<int> counts(4);
        for (const std::uint32_t index : parts.validation.indices()) ++counts[static_cast<std::size_t>(labels[index])];
        REQUIRE(parts.validation.target_columns()[0] == ColumnSpec{"target", ElementType::int32, {1}});
        std::int32_t last = -1;
        std::memcpy(&last, parts.validation.target(parts.validation.size() - 1, 0), sizeof last);
        CHECK(last == labels[parts.validation.indices().back()]);
        CHECK(parts.validation.size() == 14);  // 13.5, rounded
        CHECK(counts[0] == 10);
        CHECK((counts[1] == 2 || counts[1] == 3));
        CHECK(counts[2] == 0);
        CHECK((counts[3] == 1 || counts[3] == 2));
    }
}

TEST_CASE("a stratified split draws for each class by itself") {
    std::vector<std::int32_t> labels(40);
    for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<std::int32_t>(i % 2);
    const std::vector<float> samples(40);
    const InMemory data(Shape{1}, samples, labels, 2);
    std::vector<std::uint32_t> drawn[2];
    const auto parts = split(data, {.validation = 0.5, .stratified = true});
    for (const std::uint32_t index : parts.validation.indices()) drawn[index % 2].push_back(index / 2);
    CHECK(drawn[0].size() == drawn[1].size());
    CHECK(drawn[0] != drawn[1]);
}

TEST_CASE("both parts have a sample however small the fraction is") {
    const ImageSet images = random_images(3, 1, 1);
    CHECK(split(images, {.validation = 1e-6}).validation.size() == 1);
    CHECK(split(images, {.validation = 0.999}).training.size() == 1);
    CHECK(split(images, {.validation = 0.999, .stratified = true}).training.size() == 1);
}

TEST_CASE("batches for training and evaluation take the parts") {
    const ImageSet images = random_images(40, 2, 2);
    const auto [training, validation] = split(images, {.validation = 0.2, .seed = 3});
    const TrainingBatches batches(training, IdentityTransform{}, {.batch_size = 16, .replicas = 2, .seed = 1});
    std::vector<SampleOfEpoch> places(16);
    batches.samples_at(0, 1, 0, places);
    for (const SampleOfEpoch& place : places) CHECK(place.index < 32);
    EvaluationBatches test(validation, IdentityTransform{}, 5);
    CHECK(test.count() == 2);
    CHECK(test.size_of(1) == 3);
}

TEST_CASE("a fraction that leaves a part empty, and too few samples, are rejected") {
    const ImageSet images = random_images(5, 1, 1), one = random_images(1, 1, 1);
    for (const double fraction : {0.0, 1.0, -0.5, std::numeric_limits<double>::quiet_NaN()}) {
        CHECK(message_of<InvalidArgument>([&] { static_cast<void>(split(images, {.validation = fraction})); }) ==
              text("the fraction of samples for validation must be above 0 and below 1, not ", fraction));
    }
    CHECK(message_of<InvalidArgument>([&] { static_cast<void>(split(one)); }) ==
          "the data set random images has 1 sample, and a split needs at least 2");
    CHECK(message_of<InvalidArgument>([&] {
              Subset(images, {1, 5}, "a part");
          }) == "a part has sample 5, and the data set has 5");
    CHECK(message_of<InvalidArgument>([&] { Subset(images, {}, "a part"); }) == "a part has no samples");
}
