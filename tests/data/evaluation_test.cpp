// SPDX-License-Identifier: Apache-2.0
//
// Evaluation sees each sample once, in order, with a remainder at the end.
#include <cupola/data/evaluation.hpp>

#include "../test.hpp"

#include <cupola/data/augmentation.hpp>
#include <cupola/data/standardization.hpp>
#include <cupola/tensor/algorithms.hpp>

#include "support.hpp"

using namespace cupola_tests;

TEST_CASE("the batches of an evaluation are the samples in order, the last one smaller") {
    const ImageSet set = random_images(53, 12, 12);
    const CenterCrop crop{.height = 8, .width = 8};
    const std::size_t size = 8 * 8 * 3;
    std::vector<float> expected(size);
    for (const int threads : {1, several_threads}) {
        HostContext context(0, {.threads = threads});
        const EvaluationBatches batches(set, crop, 20);
        REQUIRE(batches.count() == 3);
        CHECK(batches.sample_shape() == Shape{8, 8, 3});
        std::int64_t sample = 0;
        for (std::int64_t b = 0; b < batches.count(); ++b) {
            const BatchView batch = batches(b, 0, context);
            CHECK(batch.size == (b < 2 ? 20 : 13));
            CHECK(batch.size == batches.size_of(b));
            for (std::int64_t i = 0; i < batch.size; ++i, ++sample) {
                crop(set.sample(sample), set.sample_shape(), RandomStream(9, RngDomain::user, 9, 9), expected.data());
                CHECK(
                    std::equal(expected.begin(), expected.end(), batch.inputs() + i * static_cast<std::int64_t>(size)));
                CHECK(batch.labels()[i] == set.label(sample));
            }
        }
        CHECK(sample == set.size());
    }
}

TEST_CASE("slots have memory of their own") {
    const ImageSet set = random_images(10, 12, 12);
    SerialContext context;
    const EvaluationBatches batches(set, CenterCrop{.height = 8, .width = 8}, 5, 2);
    const BatchView first = batches(0, 0, context);
    const float before = first.inputs()[7];
    const BatchView second = batches(1, 1, context);
    CHECK(first.inputs() != second.inputs());
    CHECK(first.inputs()[7] == before);
}

TEST_CASE("a batch size above the data set's gives one smaller batch, and a batch out of range is rejected") {
    const ImageSet set = random_images(5, 8, 8);
    SerialContext context;
    const EvaluationBatches batches(set, CenterCrop{.height = 8, .width = 8}, 1'000'000'000'000);
    CHECK(batches.count() == 1);
    CHECK(batches(0, 0, context).size == 5);
    CHECK(
        EvaluationBatches(set, CenterCrop{.height = 8, .width = 8}, std::numeric_limits<std::int64_t>::max()).count() ==
        1);
    struct None {
        [[nodiscard]] std::string_view name() const { return "of nothing"; }
        [[nodiscard]] std::int64_t size() const { return 0; }
        [[nodiscard]] Shape sample_shape() const { return {1}; }
        [[nodiscard]] std::span<const float> sample(std::int64_t) const { return {}; }
        [[nodiscard]] std::int32_t label(std::int64_t) const { return 0; }
        [[nodiscard]] std::int64_t class_count() const { return 1; }
    } none;
    CHECK(message_of<DataError>([&] { EvaluationBatches(none, IdentityTransform{}, 4); }) ==
          "the data set of nothing has no samples");
    CHECK(message_of<DataError>([&] { (void)Standardization::of(none); }) == "the data set of nothing has no samples");
    CHECK(message_of<InvalidArgument>([&] { batches(1, 0, context); }) ==
          "batch 1 is out of range: the number of batches is 1");
    CHECK(message_of<InvalidArgument>([&] { batches(0, 1, context); }) ==
          "slot 1 is out of range: the number of slots is 1");
    CHECK(message_of<InvalidArgument>([&] { EvaluationBatches(set, CenterCrop{.height = 8, .width = 8}, 0); }) ==
          "a batch must have at least 1 sample, not 0");
    CHECK(message_of<InvalidArgument>([&] { EvaluationBatches(set, CenterCrop{.height = 8, .width = 8}, 1, 0); }) ==
          "there must be at least 1 slot, not 0");
}
