// SPDX-License-Identifier: Apache-2.0
#include <cupola/data/one_hot_targets.hpp>

#include "../test.hpp"

#include <cupola/data/evaluation.hpp>
#include <cupola/data/in_memory.hpp>
#include <cupola/data/split.hpp>

#include "support.hpp"

using namespace cupola_tests;

static_assert(Dataset<OneHotTargets<InMemory>> && HasTargets<OneHotTargets<ImageSet>>);
static_assert(Dataset<Subset<OneHotTargets<Subset<ImageSet>>>>);

namespace {

const std::vector<float> samples{1, 2, 3, 4};

/// Labels that are not checked before.
struct Unchecked {
    std::string_view name() const { return "unchecked"; }
    std::int64_t size() const { return 4; }
    Shape sample_shape() const { return {1}; }
    std::span<const float> sample(std::int64_t i) const {
        return std::span(samples).subspan(static_cast<std::size_t>(i), 1);
    }
    std::int32_t label(std::int64_t i) const { return static_cast<std::int32_t>(i - 1); }
    std::int64_t class_count() const { return classes; }
    std::int64_t classes = 2;
};

}  // namespace

TEST_CASE("the target of a sample is 1 for its class and 0 for the others") {
    const std::vector<std::int32_t> labels{2, 0, 1, 2};
    const InMemory data({1}, samples, labels, 3);
    const OneHotTargets targets(data);
    EvaluationBatches batches(targets, IdentityTransform{}, 4);
    SerialContext context;
    const BatchView batch = batches(0, 0, context);
    CHECK(batch.columns() == Columns{{"input", ElementType::float32, {1}}, {"target", ElementType::float32, {3}}});
    const float* const target = batch.data<float>("target");
    CHECK(std::vector<float>(target, target + 12) == std::vector<float>{0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 1});
    CHECK(std::vector<float>(batch.inputs(), batch.inputs() + 4) == samples);
}

TEST_CASE("labels that are no classes, and less than two classes, are errors") {
    const Unchecked data, single{.classes = 1};
    const OneHotTargets targets(data);
    CHECK(message_of<DataError>([&] { (void)targets.target(0, 0); }) ==
          "the data set unchecked has label -1 at sample 0");
    CHECK(static_cast<const float*>(targets.target(1, 0))[0] == 1);
    CHECK(message_of<DataError>([&] { (void)targets.target(3, 0); }) ==
          "the data set unchecked has label 2 at sample 3; with 2 classes labels are 0 to 1");
    const std::vector<float> prices(4);
    const InMemory numbers({1}, samples, {1}, prices);
    CHECK(message_of<InvalidArgument>([&] {
              const OneHotTargets none(numbers);
          }).starts_with("a one-hot target needs classes, and the targets of the data set in memory are float32"));
    CHECK(message_of<InvalidArgument>([&] { const OneHotTargets none(single); }) ==
          "one-hot targets need at least 2 classes, and the data set unchecked has 1");
}
