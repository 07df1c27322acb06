// SPDX-License-Identifier: Apache-2.0
//
// The first number that is not finite is found at every position, and reported with its indices.
#include <cupola/tensor/finite.hpp>

#include "../test.hpp"

namespace {
constexpr float infinity = std::numeric_limits<float>::infinity(),
                not_a_number = std::numeric_limits<float>::quiet_NaN();
}

TEST_CASE("a non-finite number is found at every position") {
    CHECK(all_finite(std::vector<float>{}));
    for (const std::size_t size : {1, 7, 16, 33}) {
        std::vector<float> values(size, std::numeric_limits<float>::max());
        CHECK(all_finite(values));
        for (std::size_t i = 0; i < size; ++i) {
            for (const float bad : {infinity, -infinity, not_a_number, -not_a_number}) {
                values[i] = bad;
                CHECK(!all_finite(values));
                values[i] = std::numeric_limits<float>::denorm_min();
            }
        }
        CHECK(all_finite(values));
    }
}

TEST_CASE("an element is reported with one index per extent, and only the first one") {
    const Shape shape{2, 3, 4};
    std::vector<float> values(24, 1.0F);
    CHECK(non_finite_element("weight", shape, values) == "");
    values[23] = -infinity;
    CHECK(non_finite_element("weight", shape, values) == "weight is -inf at [1, 2, 3]");
    values[1 * 12 + 0 * 4 + 2] = not_a_number;
    CHECK(non_finite_element("weight", shape, values) == "weight is nan at [1, 0, 2]");
    CHECK(non_finite_element("bias", Shape{24}, values) == "bias is nan at [14]");
}

TEST_CASE("a sample is reported with its number in the batch") {
    const Shape shape{2, 3};
    std::vector<float> samples(24, 1.0F);
    CHECK(non_finite_sample(shape, samples) == "");
    samples[3 * 6 + 4] = infinity;
    CHECK(non_finite_sample(shape, samples) == "sample 3 is inf at [1, 1]");
    samples[5] = not_a_number;
    CHECK(non_finite_sample(shape, samples) == "sample 0 is nan at [1, 2]");
}
