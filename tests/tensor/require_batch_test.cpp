// SPDX-License-Identifier: Apache-2.0
//
// A batch, or a source of batches, is rejected with both extents, or with what is missing.
#include <cupola/tensor/require_batch.hpp>

#include "../test.hpp"

#include "../throws_with.hpp"

namespace {

constexpr Shape wanted_input{6, 6, 3};
const RequiredColumn wanted[] = {required_input(wanted_input), {{"target", ElementType::int32, {1}}, "cross_entropy"}};
constexpr float samples[2 * 108]{};
constexpr std::int32_t labels[2]{};

struct ShapedBatches {
    Shape shape = wanted_input;
    [[nodiscard]] Columns columns() const {
        return {{"input", ElementType::float32, shape}, {"target", ElementType::int32, {1}}};
    }
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
    forgotten.size = 2;
    CHECK(refusal(forgotten) == "a batch has no column input, which the network reads; the columns are: none");
    CHECK(refusal({samples, labels, 2, Shape{}}) ==
          "a batch has samples of no extents, and the network takes 6 x 6 x 3");
}

TEST_CASE("a batch whose column is missing, or of another type or other extents, is rejected") {
    const float targets[2]{};
    CHECK(refusal({samples, wanted_input, targets, {1}, 2}) ==
          "a batch has a column target of float32 1, and cross_entropy reads int32 1");
    CHECK(refusal({2,
                   {{{"input", ElementType::float32, wanted_input}, samples},
                    {{"kind", ElementType::int32, {1}}, labels}}}) ==
          "a batch has no column target, which cross_entropy reads; the columns are: input, kind");
    CHECK(refusal({2, {{{"input", ElementType::uint8, wanted_input}, samples}}}) ==
          "a batch has a column input of uint8 6 x 6 x 3, and the network reads float32 6 x 6 x 3");
    CHECK(refusal({1,
                   {{{"input", ElementType::float32, wanted_input}, samples},
                    {{"target", ElementType::int32, {2}}, labels}}}) ==
          "a batch has a column target of int32 2, and cross_entropy reads int32 1");
}

TEST_CASE("a batch with samples and a null pointer is rejected, and an empty batch with one is accepted") {
    CHECK(refusal({nullptr, labels, 2, wanted_input}) == "a batch of 2 samples has a null pointer to its column input");
    CHECK(refusal({samples, nullptr, 2, wanted_input}) ==
          "a batch of 2 samples has a null pointer to its column target");
    CHECK(refusal({samples, labels, -1, wanted_input}) == "a batch must have 0 or more samples, not -1");
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
