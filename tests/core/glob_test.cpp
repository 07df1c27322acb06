// SPDX-License-Identifier: Apache-2.0
#include <cupola/core/glob.hpp>

#include "../test.hpp"

static_assert(glob_matches("conv?.*", "conv1.weight"));

TEST_CASE("a pattern without stars and question marks matches itself alone") {
    CHECK(glob_matches("conv1.weight", "conv1.weight"));
    CHECK_FALSE(glob_matches("conv1.weight", "conv1.weights"));
    CHECK_FALSE(glob_matches("conv1.weight", "conv1.weigh"));
    CHECK_FALSE(glob_matches("conv1.weight", "conv1xweight"));
    CHECK(glob_matches("", ""));
    CHECK_FALSE(glob_matches("", "a"));
    CHECK_FALSE(glob_matches("[ab]", "a"));
}

TEST_CASE("a star matches any characters, dots and none included, and a question mark exactly one") {
    CHECK(glob_matches("*", ""));
    CHECK(glob_matches("*", "layer1.0.conv1.bias"));
    CHECK(glob_matches("*.bias", "layer1.0.conv1.bias"));
    CHECK_FALSE(glob_matches("*.bias", "layer1.0.conv1.biases"));
    CHECK(glob_matches("layer?.*.bias", "layer1.0.conv1.bias"));
    CHECK_FALSE(glob_matches("layer?.*.bias", "layer12.conv1.bias"));
    CHECK_FALSE(glob_matches("?", ""));
    CHECK(glob_matches("conv1.**", "conv1."));
}

TEST_CASE("a star gives up characters until the rest matches") {
    CHECK(glob_matches("*ab", "aab"));
    CHECK(glob_matches("*a*b*c", "xxabxbxc"));
    CHECK_FALSE(glob_matches("*a*b*c", "xxabxbxcx"));
    CHECK(glob_matches("a*?b", "axxb"));
    CHECK_FALSE(glob_matches("a*?b", "ab"));
    // Backtracking over the last star alone: this ends.
    CHECK_FALSE(glob_matches("*a*a*a*a*a*a*a*b", std::string(2000, 'a')));
}

TEST_CASE("the parts of a name that the stars match are given") {
    const auto stars = [](std::string_view pattern, std::string_view name) {
        std::vector<std::string_view> found(static_cast<std::size_t>(std::ranges::count(pattern, '*')), "unset");
        CHECK(glob_matches(pattern, name, found));
        return found;
    };
    using Stars = std::vector<std::string_view>;
    CHECK(stars("h.*.attn.*", "h.11.attn.c.bias") == Stars{"11", "c.bias"});
    CHECK(stars("*", "a.b") == Stars{"a.b"});
    CHECK(stars("*", "") == Stars{""});
    CHECK(stars("a*", "a") == Stars{""});
    CHECK(stars("a**", "abc") == Stars{"", "bc"});
    CHECK(stars("*.weight", "weight.weight") == Stars{"weight"});
    // Each but the last is as short as it can be.
    CHECK(stars("*.*", "a.b.c") == Stars{"a", "b.c"});
    CHECK(stars("*a*b*c", "xxabxbxc") == Stars{"xx", "", "xbx"});
    CHECK(stars("*b?", "abbb.bc") == Stars{"abbb."});
    // Fewer than there are stars.
    std::string_view first;
    CHECK(glob_matches("*.*.*", "a.b.c", std::span(&first, 1)));
    CHECK(first == "a");
}
