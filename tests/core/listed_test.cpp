// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <functional>
#include <string>
#include <vector>

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

TEST_CASE("a list is sorted by a part of its elements, in either order") {
    struct Entry {
        std::string name;
        int step = 0;
    };
    std::vector<Entry> entries;
    for (const int step : {3, 1, 4, 1, 5, 9, 2, 6})
        entries.push_back({std::string(1, static_cast<char>('a' + step)), step});
    heap_sort(entries, {}, &Entry::name);
    CHECK(std::ranges::is_sorted(entries, {}, &Entry::step));
    heap_sort(entries, std::ranges::greater(), &Entry::step);
    CHECK(std::ranges::is_sorted(entries, std::ranges::greater(), &Entry::step));
    std::vector<int> none;
    heap_sort(none);
    CHECK(none.empty());
}
