// SPDX-License-Identifier: Apache-2.0
//
// A batch, or a source of batches, is rejected with both extents, or with what is missing.
#include <cupola/tensor/require_batch.hpp>

#include <cstdint>

#include <doctest/doctest.h>

#include "../throws_with.hpp"

using namespace cupola;

namespace {

constexpr Shape wanted{6, 6, 3};
constexpr float samples[2 * 108]{};
constexpr std::int32_t labels[2]{};

struct ShapedBatches {
    Shape shape = wanted;
    [[nodiscard]] const Shape& sample_shape() const { return shape; }
};
struct TrainingSource : ShapedBatches {
    int replica_count = 1;
    [[nodiscard]] int replicas() const { return replica_count; }
};
struct Unknown {};

std::string refusal(const BatchView& batch) {
    return message_of<InvalidArgument>([&] { require_batch(batch, wanted); });
}

}  // namespace

TEST_CASE("a batch of other extents is rejected with both") {
    CHECK_NOTHROW(require_batch({samples, labels, 2, Shape{6, 6, 3}}, wanted));
    CHECK(refusal({samples, labels, 2, Shape{6, 6, 1}}) ==
          "a batch has samples of 6 x 6 x 1, and the network takes 6 x 6 x 3");
    CHECK(refusal({samples, labels, 2, Shape{6, 6, 4}}) ==
          "a batch has samples of 6 x 6 x 4, and the network takes 6 x 6 x 3");
    CHECK(refusal({samples, labels, 2, Shape{108}}) == "a batch has samples of 108, and the network takes 6 x 6 x 3");
    BatchView forgotten;
    forgotten.samples = samples;
    forgotten.labels = labels;
    forgotten.size = 2;
    CHECK(refusal(forgotten) == "a batch has samples of no extents, and the network takes 6 x 6 x 3");
    CHECK(message_of<InvalidArgument>([] {
              require_batch({samples, labels, 2, Shape{6, 6, 1}}, wanted, "their source declared");
          }) == "a batch has samples of 6 x 6 x 1, and their source declared 6 x 6 x 3");
}

TEST_CASE("a batch with samples and a null pointer is rejected, and an empty batch with one is accepted") {
    CHECK(refusal({nullptr, labels, 2, wanted}) == "a batch of 2 samples has a null pointer to the samples");
    CHECK(refusal({samples, nullptr, 2, wanted}) == "a batch of 2 samples has a null pointer to the labels");
    CHECK(refusal({samples, labels, -1, wanted}) == "a batch must have 0 or more samples, not -1");
    CHECK_NOTHROW(require_batch({}, wanted));
    CHECK_NOTHROW(require_batch({samples, labels, 0, Shape{6, 6, 1}}, wanted));
}

TEST_CASE("a batch source that declares other extents or another number of replicas is rejected") {
    CHECK_NOTHROW(require_batches(TrainingSource{}, wanted, 1));
    CHECK_NOTHROW(require_batches(ShapedBatches{}, wanted, 7));
    CHECK_NOTHROW(require_batches(Unknown{}, wanted, 7));
    CHECK_NOTHROW(require_batches(TrainingSource{{}, 2}, wanted));
    CHECK(message_of<InvalidArgument>([] {
              require_batches(ShapedBatches{Shape{6, 6, 1}}, wanted);
          }) == "the batches have samples of 6 x 6 x 1, and the network takes 6 x 6 x 3");
    CHECK(message_of<InvalidArgument>([] {
              require_batches(TrainingSource{{}, 2}, wanted, 1);
          }) == "the batches are made for 2 replicas, and the training has 1");
    CHECK(message_of<InvalidArgument>([] {
              require_batches(TrainingSource{{}, 1}, wanted, 3);
          }) == "the batches are made for 1 replica, and the training has 3");
}
