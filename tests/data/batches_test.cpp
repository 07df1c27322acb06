// SPDX-License-Identifier: Apache-2.0
//
// Batches as a pure function of seed, step and replica.
#include <cupola/data/batches.hpp>

#include "../test.hpp"

#include <cupola/data/evaluation.hpp>
#include <cupola/data/in_memory.hpp>
#include <cupola/data/standardization.hpp>
#include <cupola/data/weighted_order.hpp>
#include <cupola/models/tutorial_augmentation.hpp>

#include "labelled.hpp"
#include "support.hpp"

using namespace cupola_tests;

namespace {

/// Samples that contain their own index.
struct Numbered {
    explicit Numbered(std::size_t count) : values(count), labels(count), data(fill()) {}
    const InMemory& fill_and_get() { return data; }
    std::vector<float> values;
    std::vector<std::int32_t> labels;
    InMemory data;

private:
    InMemory fill() {
        for (std::size_t i = 0; i < values.size(); ++i) {
            values[i] = static_cast<float>(i);
            labels[i] = static_cast<std::int32_t>(i % 3);
        }
        return {Shape{1}, values, labels, 3, "numbered"};
    }
};

/// A data set whose last sample has more values than the others.
struct UnequalSamples {
    std::vector<float> values = std::vector<float>(8);
    [[nodiscard]] std::string_view name() const { return "of unequal samples"; }
    [[nodiscard]] std::int64_t size() const { return 5; }
    [[nodiscard]] Shape sample_shape() const { return {3}; }
    [[nodiscard]] std::span<const float> sample(std::int64_t i) const {
        return std::span(values).first(i == 4 ? 8 : 3);
    }
    [[nodiscard]] std::int32_t label(std::int64_t) const { return 0; }
    [[nodiscard]] std::int64_t class_count() const { return 1; }
};

static_assert(SampleTransform<TutorialAugmentation, ImageSet> && SampleTransform<CenterCrop, ImageSet>);
static_assert(SampleTransform<IdentityTransform, ImageSet> && SampleTransform<IdentityTransform, InMemory>);
static_assert(!SampleTransform<TutorialAugmentation, InMemory>, "pixels are bytes");
static_assert(!SampleTransform<int, ImageSet>);
static_assert(BatchSource<TrainingBatches<ImageSet, TutorialAugmentation>> && !BatchSource<ImageSet>);
static_assert(
    !std::is_constructible_v<TrainingBatches<InMemory, IdentityTransform>, InMemory&&, IdentityTransform, BatchOptions>,
    "a data set that is a temporary would be gone at once");

}  // namespace

TEST_CASE("a run uses each sample exactly once per epoch and on one replica, across epoch boundaries") {
    Numbered numbered(50);
    const TrainingBatches batches(numbered.data, IdentityTransform{}, {.batch_size = 4, .replicas = 3, .seed = 8});
    CHECK(batches.global_batch_size() == 12);
    std::vector<float> samples(4), stream;
    std::vector<std::int32_t> labels(4);
    for (std::int64_t step = 0; step < 25; ++step) {  // 300 samples: six epochs, whose edges are not steps' edges
        for (int replica = 0; replica < 3; ++replica) {
            batches.fill(step, replica, labelled(batches, samples.data(), labels.data()));
            for (std::size_t i = 0; i < 4; ++i) CHECK(labels[i] == static_cast<std::int32_t>(samples[i]) % 3);
            stream.insert(stream.end(), samples.begin(), samples.end());
        }
    }
    for (std::size_t epoch = 0; epoch < 6; ++epoch) {
        std::vector<int> seen(50);
        for (std::size_t i = 0; i < 50; ++i) ++seen[static_cast<std::size_t>(stream[epoch * 50 + i])];
        CHECK(seen == std::vector<int>(50, 1));
    }
}

TEST_CASE("replicas share one stream: R batches of B are one batch of R x B") {
    const ImageSet set = random_images(70, 12, 12);
    const TutorialAugmentation d{.height = 8, .width = 8};
    const std::size_t sample = 8 * 8 * 3;
    const TrainingBatches one(set, d, {.batch_size = 24, .replicas = 1, .seed = 4});
    const TrainingBatches four(set, d, {.batch_size = 6, .replicas = 4, .seed = 4});
    std::vector<float> whole(24 * sample), parts(24 * sample);
    std::vector<std::int32_t> whole_labels(24), parts_labels(24);
    for (std::int64_t step = 0; step < 9; ++step) {
        one.fill(step, 0, labelled(one, whole.data(), whole_labels.data()));
        for (int r = 0; r < 4; ++r) {
            four.fill(
                step, r,
                labelled(four, parts.data() + static_cast<std::size_t>(r) * 6 * sample, parts_labels.data() + r * 6));
        }
        CHECK(whole == parts);
        CHECK(whole_labels == parts_labels);
    }
}

TEST_CASE("a batch does not depend on earlier requests, nor on the pieces in which it is filled") {
    const ImageSet set = random_images(90, 12, 12);
    const TutorialAugmentation d{.height = 8, .width = 8};
    const TrainingBatches batches(set, d, {.batch_size = 40, .replicas = 2, .seed = 4});
    const std::size_t size = 40 * 8 * 8 * 3;
    std::vector<float> forward(size), again(size);
    std::vector<std::int32_t> labels(40), labels_again(40);
    for (const std::int64_t step : {7, 0, 1000, 3, 2, 7}) {
        batches.fill(step, 1, labelled(batches, forward.data(), labels.data()));
        const TrainingBatches fresh(set, d, {.batch_size = 40, .replicas = 2, .seed = 4});
        for (const auto& [begin, end] : {std::pair{39, 40}, std::pair{0, 1}, std::pair{1, 34}, std::pair{34, 39}}) {
            fresh.fill(step, 1, begin, end, labelled(fresh, again.data(), labels_again.data()));
        }
        CHECK(forward == again);
        CHECK(labels == labels_again);
    }
}

TEST_CASE("a sample is augmented anew in each epoch, by its index and not by its position") {
    const ImageSet set = random_images(4, 12, 12);
    const TutorialAugmentation d{.height = 8, .width = 8};
    const std::size_t size = 8 * 8 * 3;
    // Batches of 4 and of 1 meet the same images of an epoch at other places of other batches.
    const TrainingBatches whole(set, d, {.batch_size = 4, .replicas = 1, .seed = 1});
    std::map<std::pair<std::int64_t, std::int32_t>, std::vector<float>> seen;
    std::vector<float> samples(4 * size);
    std::vector<std::int32_t> labels(4);
    for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
        whole.fill(epoch, 0, labelled(whole, samples.data(), labels.data()));
        for (std::size_t i = 0; i < 4; ++i) {
            const auto at = samples.begin() + static_cast<std::ptrdiff_t>(i * size);
            seen[{epoch, labels[i]}].assign(at, at + static_cast<std::ptrdiff_t>(size));
        }
    }
    REQUIRE(seen.size() == 12);
    std::vector<float> direct(size);
    for (const auto& [key, sample] : seen) {
        const auto [epoch, index] = key;  // labels are the indices here
        d(set.sample(index), set.sample_shape(),
          RandomStream(1, RngDomain::augmentation, static_cast<std::uint32_t>(epoch),
                       static_cast<std::uint64_t>(index)),
          direct.data());
        CHECK(sample == direct);
        CHECK((epoch == 0 || sample != seen[{epoch - 1, index}]));
    }
}

TEST_CASE("seeds give different runs") {
    Numbered numbered(64);
    std::vector<float> one(32), other(32);
    std::vector<std::int32_t> labels(32);
    const TrainingBatches first(numbered.data, IdentityTransform{}, {.batch_size = 32, .replicas = 1, .seed = 1});
    const TrainingBatches second(numbered.data, IdentityTransform{}, {.batch_size = 32, .replicas = 1, .seed = 2});
    first.fill(0, 0, labelled(first, one.data(), labels.data()));
    second.fill(0, 0, labelled(second, other.data(), labels.data()));
    CHECK(one != other);
}

TEST_CASE("a global batch that is larger than the data set, or empty, is rejected with the numbers") {
    Numbered numbered(300);
    const auto refusal = [&](BatchOptions options) {
        return message_of<Error>([&] { TrainingBatches(numbered.data, IdentityTransform{}, options); });
    };
    CHECK(refusal({.batch_size = 100, .replicas = 3}) == "(no exception)");
    CHECK(refusal({.batch_size = 101, .replicas = 3}) ==
          "the global batch (3 replicas of 101 samples) is larger than the data set numbered, which has 300 samples");
    CHECK(refusal({.batch_size = 301, .replicas = 1}) ==
          "the global batch (1 replica of 301 samples) is larger than the data set numbered, which has 300 samples");
    CHECK(refusal({.batch_size = 1LL << 62, .replicas = 2'000'000'000}) ==
          "the global batch (2000000000 replicas of 4611686018427387904 samples) is larger than 4294967295");
    CHECK(refusal({.batch_size = 0}) == "a batch must have at least 1 sample, not 0");
    CHECK(refusal({.batch_size = -128}) == "a batch must have at least 1 sample, not -128");
    CHECK(refusal({.batch_size = 1, .replicas = 0}) == "there must be at least 1 replica, not 0");
}

TEST_CASE("a sample of another number of values than the data set states is rejected before it is written") {
    const UnequalSamples data;
    std::vector<float> inputs(15);
    std::vector<std::int32_t> labels(5);
    const TrainingBatches batches(data, IdentityTransform{}, {.batch_size = 5});
    const EvaluationBatches evaluation(data, IdentityTransform{}, 5);
    SerialContext context;
    const std::string message = "sample 4 of the data set of unequal samples has 8 values, and samples of 3 have 3";
    CHECK(message_of<DataError>([&] { batches.fill(0, 0, labelled(batches, inputs.data(), labels.data())); }) ==
          message);
    CHECK(message_of<DataError>([&] { evaluation(0, 0, context); }) == message);
    CHECK(message_of<DataError>([&] { (void)Standardization::of(data); }) == message);
}

TEST_CASE("a global batch has at most 2^32 - 1 samples, whatever the order of the samples is") {
    Numbered numbered(3);
    const std::vector<double> weights(3, 1.0);
    CHECK(message_of<InvalidArgument>([&] {
              TrainingBatches(numbered.data, IdentityTransform{}, {.batch_size = 1LL << 62, .replicas = 4},
                              WeightedOrder(weights, 1));
          }) == "the global batch (4 replicas of 4611686018427387904 samples) is larger than 4294967295");
}

TEST_CASE("a step or replica out of range is rejected") {
    Numbered numbered(10);
    const TrainingBatches batches(numbered.data, IdentityTransform{}, {.batch_size = 2, .replicas = 2});
    std::vector<float> samples(2);
    std::vector<std::int32_t> labels(2);
    const auto refusal = [&](std::int64_t step, int replica) {
        return message_of<InvalidArgument>(
            [&] { batches.fill(step, replica, labelled(batches, samples.data(), labels.data())); });
    };
    CHECK(refusal(-1, 0) == "step -1 is out of range for batches of 4 samples");
    CHECK(refusal(std::numeric_limits<std::int64_t>::max(), 0) ==
          "step 9223372036854775807 is out of range for batches of 4 samples");
    CHECK(contains(refusal(1LL << 60, 0), "of the sample stream is outside the epochs 0 to 4294967295"));
    CHECK(refusal(0, 2) == "replica 2 is out of range: the number of replicas is 2");
    CHECK(refusal(0, -1) == "replica -1 is out of range: the number of replicas is 2");
}
