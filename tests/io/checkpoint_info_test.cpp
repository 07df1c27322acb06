// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cupola/io/checkpoint_info.hpp>

using cupola::CheckpointInfo;

TEST_CASE("The entries of a run keep their order, and a second value replaces the first") {
    CheckpointInfo info;
    info.set("seed", "1");
    info.set("batch", "128");
    info.set("seed", "2");
    CHECK(info.entries() == std::vector<CheckpointInfo::Entry>{{"seed", "2"}, {"batch", "128"}});
    REQUIRE(info.find("seed") != nullptr);
    CHECK(*info.find("seed") == "2");
    CHECK(info.find("see") == nullptr);
}

TEST_CASE("Differences between two runs are reported with both values") {
    CheckpointInfo before, now;
    before.set("seed", "1");
    before.set("batch", "128");
    before.set("devices", "2");
    now.set("batch", "64");
    now.set("seed", "1");
    now.set("decay", "0.9999");
    now.set("note", "");
    const auto found = differences(before, now);
    REQUIRE(found.size() == 3);
    CHECK(to_string(found[0]) == "batch was 128 and is 64");
    CHECK(to_string(found[1]) == "devices was 2 and is not recorded");
    CHECK(to_string(found[2]) == "decay was not recorded and is 0.9999");
    CHECK(differences(now, now).empty());
}
