// SPDX-License-Identifier: Apache-2.0
//
// The caller's own numbers as training batches.
#include <cupola/data/in_memory.hpp>

#include "../test.hpp"

#include "support.hpp"

using namespace cupola_tests;

TEST_CASE("samples in memory are returned in batches with their labels, each once per epoch") {
    std::vector<float> samples(30 * 4);
    std::iota(samples.begin(), samples.end(), 0.0F);
    std::vector<std::int32_t> labels(30);
    std::iota(labels.begin(), labels.end(), 0);
    const InMemory data(Shape{2, 2, 1}, samples, labels, 30);
    InMemoryBatches batches(data, {.batch_size = 5, .replicas = 2, .seed = 3});
    CHECK(batches.sample_shape() == Shape{2, 2, 1});
    SerialContext context;
    std::vector<int> seen(30);
    bool in_order = true;
    for (std::int64_t step = 0; step < 3; ++step) {
        for (int replica = 0; replica < 2; ++replica) {
            const BatchView batch = batches(step, replica, context);
            REQUIRE(batch.size == 5);
            for (std::int64_t i = 0; i < 5; ++i) {
                ++seen[static_cast<std::size_t>(batch.labels()[i])];
                in_order = in_order && batch.labels()[i] == step * 10 + replica * 5 + i;
                for (int k = 0; k < 4; ++k)
                    CHECK(batch.inputs()[i * 4 + k] == static_cast<float>(batch.labels()[i] * 4 + k));
            }
        }
    }
    CHECK(seen == std::vector<int>(30, 1));
    CHECK_FALSE(in_order);
}

TEST_CASE("inconsistent numbers of samples and labels are rejected") {
    const std::vector<float> samples(12);
    const auto refusal = [&](const Shape& shape, std::vector<std::int32_t> labels) {
        return message_of<DataError>([&] { InMemory(shape, samples, labels, 3); });
    };
    CHECK(refusal({4}, {0, 1, 2}) == "(no exception)");
    CHECK(refusal({4}, {0, 1, 3}) ==
          "the data set in memory has label 3 at sample 2; with 3 classes labels are 0 to 2");
    CHECK(refusal({4}, {0, -1, 2}) ==
          "the data set in memory has label -1 at sample 1; with 3 classes labels are 0 to 2");
    CHECK(refusal({4}, {0, 1}) ==
          "the data set in memory has 3 samples and 2 values in its column target; of 1 it needs 3");
    CHECK(refusal({4}, {}) ==
          "the data set in memory has 3 samples and 0 values in its column target; of 1 it needs 3");
    CHECK(refusal({0}, {0}) == "samples of the data set in memory have no values: 0");
    CHECK(refusal({-4, -1}, {0}) == "samples of the data set in memory have no values: -4 x -1");
    CHECK(refusal({1LL << 62, 4, 3}, {0}) ==
          "samples of the data set in memory have too many values: 4611686018427387904 x 4 x 3");
}

TEST_CASE("a batch larger than the data set is rejected with both numbers") {
    const std::vector<float> samples(12);
    const std::vector<std::int32_t> labels(12);
    const InMemory data(Shape{1}, samples, labels, 2);
    CHECK(message_of<DataError>([&] { InMemoryBatches(data, {.batch_size = 7, .replicas = 2}); }) ==
          "the global batch (2 replicas of 7 samples) is larger than the data set in memory, which has 12 samples");
}

TEST_CASE("a data set in memory has targets of floats, or any columns of targets") {
    const std::vector<float> inputs{0, 1, 2, 3, 4, 5}, prices{10, 11, 12}, boxes{0, 1, 2, 3, 4, 5};
    const std::vector<std::int32_t> kinds{7, 8, 9};
    const InMemory houses({2}, inputs, {1}, prices);
    CHECK(houses.size() == 3);
    CHECK(houses.class_count() == 0);
    CHECK(houses.target_columns() == Columns{{"target", ElementType::float32, {1}}});
    const InMemory shapes({2}, inputs, {{"kind", {1}, kinds}, {"box", {2}, boxes}}, "shapes");
    SerialContext context;
    InMemoryBatches batches(shapes, {.batch_size = 3, .replicas = 1, .seed = 4});
    const BatchView batch = batches(0, 0, context);
    for (std::int64_t i = 0; i < 3; ++i) {
        const std::int32_t kind = batch.data<std::int32_t>("kind")[i];
        CHECK(batch.inputs()[2 * i] == static_cast<float>(2 * (kind - 7)));
        CHECK(batch.data<float>("box")[2 * i + 1] == static_cast<float>(2 * (kind - 7) + 1));
    }
}

TEST_CASE("targets of another number, without values or not finite are rejected with the column") {
    const std::vector<float> inputs{0, 1, 2, 3, 4, 5}, two{1, 2}, nan{1, std::nanf(""), 3};
    const auto refusal = [&](const Shape& shape, std::span<const float> targets) {
        return message_of<DataError>([&] { InMemory({2}, inputs, shape, targets, "houses"); });
    };
    CHECK(refusal({1}, two) == "the data set houses has 3 samples and 2 values in its column target; of 1 it needs 3");
    CHECK(refusal({0}, two) == "the column target of the data set houses has no values: 0");
    CHECK(refusal({-1, -1}, two) == "the column target of the data set houses has no values: -1 x -1");
    CHECK(refusal({1LL << 62, 4}, two) ==
          "the column target of the data set houses has too many values: 3 times 4611686018427387904 x 4");
    CHECK(refusal({1}, nan) == "the data set houses has nan in its column target at sample 1");
    CHECK(message_of<DataError>([&] { InMemory({4}, inputs, {1}, two); }) ==
          "the data set in memory has 6 values, which is not a multiple of the 4 of a sample of 4");
}
