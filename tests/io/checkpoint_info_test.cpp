// SPDX-License-Identifier: Apache-2.0
#include "../test.hpp"

#include <cupola/io/checkpoint_info.hpp>

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

TEST_CASE("Texts of a file come into the message of a difference without control characters, and not without end") {
    CHECK(to_string(InfoDifference{"loss", "a\x1B[2J", "b"}) == "loss was a?[2J and is b");
    CHECK(to_string(InfoDifference{"loss", std::string(5000, 'a'), "b"}).size() < 1100);
    CHECK(to_string(InfoDifference{"classes", "a\x07\nb", "c\nb"}) == "classes[0] was a? and is c");
}

TEST_CASE("Any list of one or more texts is a text, and back") {
    using cupola::list_elements, cupola::list_text;
    const std::vector<std::string> plain{"bird", "cat"};
    CHECK(list_text(plain) == "bird\ncat");
    for (const std::vector<std::string>& list :
         {plain, {"1"}, {""}, {"", ""}, {"a\nb", "\\n", "\\", "x\\"}, {"\xFF", "\xC3", "\xC3\xA9", "\\xFF"}}) {
        CHECK(list_elements(list_text(list)) == list);
    }
    CHECK(list_text(std::vector<std::string>{"\xFF\\"}) == "\\xFF\\\\");
    CHECK(list_elements("a\\") == std::vector<std::string>{"a\\"});  // what list_text does not write is kept
    CHECK(list_elements("\\x4") == std::vector<std::string>{"x4"});
}

TEST_CASE("Of two lists the first elements that differ are reported") {
    CHECK(to_string(InfoDifference{"classes", "1\n10\n2", "1\n2\n10"}) == "classes[1] was 10 and is 2");
    CHECK(to_string(InfoDifference{"classes", "a\nb", "a\nb\nc"}) == "classes[2] was none and is c");
    CHECK(to_string(InfoDifference{"classes", "a\nb", "a"}) == "classes[1] was b and is none");
    CHECK(to_string(InfoDifference{"classes", "", "a\nb\nc"}) == "classes was not recorded and is a list of 3");
    CHECK(to_string(InfoDifference{"classes", "a\nb", "ab\nb"}) == "classes[0] was a and is ab");
}
