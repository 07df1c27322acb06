// SPDX-License-Identifier: Apache-2.0
//
// The first id that is out of range, and its description.
#include "../test.hpp"

#include <cupola/tensor/ids.hpp>

TEST_CASE("the first id that is out of range is found") {
    CHECK(first_bad_id({}, 3) == -1);
    CHECK(first_bad_id(std::vector<std::int32_t>{0, 1, 2, 2}, 3) == -1);
    CHECK(first_bad_id(std::vector<std::int32_t>{0, 1, 3, -1}, 3) == 2);
    CHECK(first_bad_id(std::vector<std::int32_t>{std::numeric_limits<std::int32_t>::min(), 3}, 3) == 0);
}

TEST_CASE("an id that is out of range is described by its sample, its position and the ids that there are") {
    const ColumnSpec input{"input", ElementType::int32, {2, 3}}, word{"word", ElementType::int32, {4}};
    CHECK(bad_id_text(input, 3 * 6 + 5, 10, 10) == "sample 3 has the id 10 at [1, 2], and ids are 0 to 9");
    CHECK(bad_id_text(word, 2, -7, 1) == "column word of sample 0 has the id -7 at [2], and ids are 0 to 0");
}
