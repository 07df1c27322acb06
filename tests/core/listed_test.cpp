// SPDX-License-Identifier: Apache-2.0
#include <cupola/core/listed.hpp>

#include "../test.hpp"

TEST_CASE("a few names are listed all, and of many the first and how many more there are") {
    std::vector<std::string> names;
    CHECK(listed(names).empty());
    for (const char* const name : {"a", "b", "c", "d", "e", "f", "g", "h"}) names.emplace_back(name);
    CHECK(listed(names) == "a, b, c, d, e, f, g, h");
    names.emplace_back("i");
    CHECK(listed(names) == "a, b, c, d, e, f, g, h and 1 more");
    names.emplace_back("j");
    CHECK(listed(
              names, [](const std::string& name) { return "the " + name; }, "; ", 2) == "the a; the b and 8 more");
}
