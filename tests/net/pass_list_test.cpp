// SPDX-License-Identifier: Apache-2.0
#include <cupola/net/pass_list.hpp>

#include "../test.hpp"

using namespace cupola;

TEST_CASE("a list of passes runs forward in the order of the nodes, the outputs, and backward in the reverse order") {
    const FixedArray<NodePass> passes = list_passes(3, true);
    REQUIRE(passes.size() == 7);
    for (std::size_t i = 0; i < 3; ++i) {
        CHECK(passes[i].kind == PassKind::forward);
        CHECK(passes[i].node == i);
        CHECK(passes[6 - i].kind == PassKind::backward);
        CHECK(passes[6 - i].node == i);
    }
    CHECK(passes[3].kind == PassKind::outputs);
}

TEST_CASE("a list without backward ends with the outputs") {
    const FixedArray<NodePass> passes = list_passes(2, false);
    REQUIRE(passes.size() == 3);
    CHECK(passes[2].kind == PassKind::outputs);
}
