// SPDX-License-Identifier: Apache-2.0
//
// The weights of classes and channels as a user writes them.
#include "../../test.hpp"

#include <cupola/core/error.hpp>
#include <cupola/loss/binary_cross_entropy.hpp>
#include <cupola/loss/impl/weight_per_class.hpp>
#include <cupola/loss/soft_cross_entropy.hpp>
#include <cupola/loss/weighted_cross_entropy.hpp>

#include "throws_with.hpp"

namespace {

template <class Weights>
std::vector<float> values(const Weights& weights) {
    return {weights.begin(), weights.end()};
}

}  // namespace

TEST_CASE("weights of a loss are all 1, or those of a list, an array, a vector or a span") {
    CHECK(values(WeightedCrossEntropy<3>{}.class_weights) == std::vector<float>{1, 1, 1});
    CHECK(values(SoftCrossEntropy<3>{.class_weights = {1, 2, 0.5F}}.class_weights) == std::vector<float>{1, 2, 0.5F});
    const std::array<float, 2> array{3, 4};
    std::vector<float> vector{5, 6};
    CHECK(values(WeightedBinaryCrossEntropy<2>{.positive_weights = array}.positive_weights) ==
          std::vector<float>{3, 4});
    CHECK(values(WeightedCrossEntropy<2>{.class_weights = vector}.class_weights) == vector);
    CHECK(values(WeightedCrossEntropy<2>{.class_weights = std::span(vector)}.class_weights) == vector);

    WeightedCrossEntropy<2> assigned;
    assigned.class_weights = vector;
    assigned.class_weights[1] = 7;
    CHECK(values(assigned.class_weights) == std::vector<float>{5, 7});
    const WeightedCrossEntropy<2> copy = assigned;
    CHECK(values(copy.class_weights) == std::vector<float>{5, 7});
}

TEST_CASE("a number of weights that is not that of the classes or channels is rejected") {
    CHECK(message_of<InvalidArgument>([] {
              (void)WeightedCrossEntropy<3>{.class_weights = {1, 10}};
          }) == "this loss needs 3 weights, one per class or channel, and 2 were given");
    CHECK(message_of<InvalidArgument>([] { (void)WeightedCrossEntropy<3>{.class_weights = {}}; }) ==
          "this loss needs 3 weights, one per class or channel, and 0 were given");
    CHECK(message_of<InvalidArgument>([] { (void)SoftCrossEntropy<3>{.class_weights = {1}}; }) ==
          "this loss needs 3 weights, one per class or channel, and 1 was given");
    CHECK(message_of<InvalidArgument>([] {
              (void)WeightedBinaryCrossEntropy<2>{.positive_weights = std::vector<float>(4, 1.0F)};
          }) == "this loss needs 2 weights, one per class or channel, and 4 were given");
}
