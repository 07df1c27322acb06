// SPDX-License-Identifier: Apache-2.0
//
// The caller's own numbers as training batches.
#include <cupola/data/in_memory.hpp>

#include <doctest/doctest.h>

#include <numeric>

#include "support.hpp"

using namespace cupola;
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
                ++seen[static_cast<std::size_t>(batch.labels[i])];
                in_order = in_order && batch.labels[i] == step * 10 + replica * 5 + i;
                for (int k = 0; k < 4; ++k)
                    CHECK(batch.samples[i * 4 + k] == static_cast<float>(batch.labels[i] * 4 + k));
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
    CHECK(refusal({4}, {0, 1}) == "the data set in memory has 2 labels and 12 values; samples of 4 need 8");
    CHECK(refusal({4}, {}) == "the data set in memory has no samples");
    CHECK(refusal({0}, {0}) == "samples of the data set in memory have no values: 0");
}

TEST_CASE("a batch larger than the data set is rejected with both numbers") {
    const std::vector<float> samples(12);
    const std::vector<std::int32_t> labels(12);
    const InMemory data(Shape{1}, samples, labels, 2);
    CHECK(message_of<DataError>([&] { InMemoryBatches(data, {.batch_size = 7, .replicas = 2}); }) ==
          "the global batch (2 replicas of 7 samples) is larger than the data set in memory, which has 12 samples");
}
