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
