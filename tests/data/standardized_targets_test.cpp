// SPDX-License-Identifier: Apache-2.0
//
// Targets in units of their deviation, and back.
#include <cupola/data/standardized_targets.hpp>

#include "../test.hpp"

#include <cupola/data/evaluation.hpp>
#include <cupola/data/in_memory.hpp>
#include <cupola/data/split.hpp>

#include "support.hpp"

using namespace cupola_tests;

static_assert(Dataset<StandardizedTargets<InMemory>>);
static_assert(Dataset<Subset<StandardizedTargets<Subset<InMemory>>>>);

namespace {

const std::vector<float> samples{1, 2, 3, 4};
const std::vector<float> boxes{100, 1, 300, 1, 200, 4, 400, 2};
const std::vector<std::int32_t> kinds{0, 1, 1, 0};

}  // namespace

TEST_CASE("a column of targets is standardized with constants of the same column, and the others are not") {
    const InMemory data({1}, samples, {{"kind", {1}, kinds}, {"box", {2}, boxes}});
    const Standardization constants = Standardization::of_targets(data, "box");
    CHECK(constants.means() == std::vector<double>{250, 2});
    const StandardizedTargets targets(data, constants, "box");
    EvaluationBatches batches(targets, IdentityTransform{}, 4);
    SerialContext context;
    const BatchView batch = batches(0, 0, context);
    CHECK(batch.columns() == columns_of(data, {1}));
    const float* const box = batch.data<float>("box");
    for (std::size_t c = 0; c < 2; ++c) {
        double sum = 0, squares = 0;
        for (std::size_t i = 0; i < 4; ++i) {
            const double value = static_cast<double>(box[2 * i + c]);
            sum += value;
            squares += value * value;
            CHECK(value == doctest::Approx((static_cast<double>(boxes[2 * i + c]) - constants.means()[c]) /
                                           constants.deviations()[c]));
        }
        CHECK(sum / 4 == doctest::Approx(0));
        CHECK(squares / 4 == doctest::Approx(1));
    }
    CHECK(std::vector<std::int32_t>(batch.data<std::int32_t>("kind"), batch.data<std::int32_t>("kind") + 4) == kinds);
    CHECK(std::vector<float>(batch.inputs(), batch.inputs() + 4) == samples);
    std::vector<float> back(box, box + 8);
    constants.undo(back);
    for (std::size_t i = 0; i < 8; ++i) CHECK(back[i] == doctest::Approx(boxes[i]));
}

TEST_CASE("a column of one value comes back too") {
    const std::vector<float> same{7, 7, 7, 7};
    const InMemory data({1}, samples, {1}, same);
    const Standardization constants = Standardization::of_targets(data);
    const StandardizedTargets targets(data, constants);
    float value = 1;
    std::memcpy(&value, targets.target(2, 0), sizeof value);
    CHECK(value == 0);
    std::vector<float> predicted{0.5F};
    constants.undo(predicted);
    CHECK(predicted[0] == 7.5F);
}

TEST_CASE("columns that cannot be standardized are rejected") {
    const InMemory data({1}, samples, {{"kind", {1}, kinds}, {"box", {2}, boxes}});
    const Standardization one({0}, {1});
    const auto refusal = [](const auto& f) { return message_of<InvalidArgument>(f); };
    CHECK(refusal([&] { static_cast<void>(Standardization::of_targets(data)); }) ==
          "the data set in memory has no column of floats \"target\" to standardize: its columns are kind, box");
    CHECK(refusal([&] { static_cast<void>(Standardization::of_targets(data, "kind")); }) ==
          "the data set in memory has no column of floats \"kind\" to standardize: its columns are kind, box");
    CHECK(refusal([&] { StandardizedTargets(data, one, "kind"); }) ==
          "the data set in memory has no column of floats \"kind\" to standardize: its columns are kind, box");
    CHECK(refusal([&] { StandardizedTargets(data, one, "box"); }) ==
          "samples of 2 cannot be standardized with 1 mean: the last extent must be that number");
    std::vector<float> three(3);
    CHECK(refusal([&] {
              Standardization({0, 0}, {1, 1}).undo(three);
          }) == "3 values cannot have been standardized with 2 means");
}
