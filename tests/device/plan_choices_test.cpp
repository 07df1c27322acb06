// SPDX-License-Identifier: Apache-2.0
//
// The text form of choices of engines.
#include <string>
#include <utility>

#include <doctest/doctest.h>
#include <cupola/device/plan_choices.hpp>

#include "../throws_with.hpp"

using namespace cupola;

namespace {

std::string refusal(const std::string& text) {
    return message_of<InvalidArgument>([&] { const PlanChoices choices(text, "plans.txt"); });
}

const std::string head = "cupola plan choices 1\n";

}  // namespace

TEST_CASE("choices are read back from their text, sorted by key") {
    PlanChoices choices;
    CHECK(choices.to_text() == head);
    choices.set("b, of two words: 1 x 2", {7, {{2, 3}, {18, -1}}});
    choices.set("a", {0, {}});
    CHECK(choices.to_text() == head + "a\t0\nb, of two words: 1 x 2\t7 2=3 18=-1\n");
    const PlanChoices read(choices.to_text());
    CHECK(read.to_text() == choices.to_text());
    CHECK(read.size() == 2);
    CHECK(read.find("b, of two words: 1 x 2") == EngineChoice{7, {{2, 3}, {18, -1}}});
    CHECK(read.find("a") == EngineChoice{0, {}});
    CHECK_FALSE(read.find("c").has_value());
    choices.set("a", {1, {}});
    CHECK(choices.find("a")->engine == 1);
    CHECK(choices.size() == 2);
}

TEST_CASE("an invalid text is rejected with its name and line") {
    CHECK(refusal("") == "plans.txt is empty");
    CHECK(refusal("cupola plan choices 2\n") == "plans.txt does not begin with \"cupola plan choices 1\"");
    CHECK(refusal(head + "a\t1\nb\t2") == "plans.txt is truncated in line 3");
    const std::string form = ": expected a key, a tab, the number of an engine and its knobs as number=number";
    for (const char* line : {"a 1", "\t1", "a\t", "a\tx", "a\t1 ", "a\t1 2", "a\t1 2=", "a\t1 2=3,4=5", "a\t1x",
                             "a\t99999999999999999999", ""}) {
        CAPTURE(line);
        CHECK(refusal(head + "z\t1\n" + line + "\n") == "plans.txt, line 3" + form);
    }
    CHECK(refusal(head + "a\t1\na\t2\n") == "plans.txt, line 3: the key is that of an earlier line");
}

TEST_CASE("a key is one line without tabs") {
    PlanChoices choices;
    for (const char* key : {"", "a\tb", "a\nb", "a\rb"}) {
        CHECK(message_of<InvalidArgument>([&] { choices.set(key, {}); }) ==
              "the key of a plan must be one non-empty line without tabs");
    }
    CHECK(choices.size() == 0);
}

TEST_CASE("a record is one line: how the plan was chosen, its time, and that of the next") {
    PlanRecord record{.key = "cuDNN 1, A GPU, forward", .choice = {4, {{2, 8}}}, .name = "engine 4 2=8"};
    CHECK(to_string(record) == "plan of cuDNN 1, A GPU, forward: engine 4 2=8, the first that is offered");
    record.source = PlanRecord::Source::kept;
    CHECK(to_string(record) == "plan of cuDNN 1, A GPU, forward: engine 4 2=8, as chosen before");
    record.source = PlanRecord::Source::timed;
    record.seconds = 12.34e-6;
    record.timed = 1;
    CHECK(to_string(record) == "plan of cuDNN 1, A GPU, forward: engine 4 2=8, 0.0123 ms");
    record.timed = 7;
    record.next_seconds = 14e-6;
    record.not_timed = 2;
    CHECK(
        to_string(record) ==
        "plan of cuDNN 1, A GPU, forward: engine 4 2=8, 0.0123 ms, the fastest of 7 (the next: 0.0140 ms); no time was "
        "left for 2 others");
}

TEST_CASE("records and notes are lines, each given once, and a plan has one record") {
    PlanChoices choices;
    CHECK(choices.fingerprint().empty());
    choices.record({.key = "cuDNN 1, A GPU, a", .choice = {4, {}}, .name = "engine 4"});
    choices.note("a note");
    choices.record(
        {.key = "cuDNN 1, A GPU, a", .choice = {4, {}}, .name = "engine 4", .source = PlanRecord::Source::kept});
    CHECK(choices.records().size() == 1);
    CHECK(choices.records()[0].source == PlanRecord::Source::first);
    choices.note_once("said once");
    choices.note_once("said once");
    auto lines = choices.take_lines();
    REQUIRE(lines.size() == 3);
    CHECK(lines[2] == "said once");
    choices.note_once("said once");
    CHECK(lines[1] == "a note");
    choices.record({.key = "cuDNN 1, A GPU, a", .choice = {5, {}}, .name = "engine 5"});
    CHECK(choices.records().size() == 1);
    CHECK(choices.records()[0].name == "engine 5");
    lines = choices.take_lines();
    REQUIRE(lines.size() == 1);
    choices.record({.key = "cuDNN 1, A GPU, a", .choice = {4, {}}, .name = "engine 4"});
    CHECK(choices.take_lines().size() == 1);
    CHECK(choices.take_lines().empty());
    // The fingerprint is that of what was used, in any order, and not of all that was read.
    PlanChoices same(head + "cuDNN 1, A GPU, a\t4\ncuDNN 1, A GPU, z\t4\n"), other;
    same.record({.key = "cuDNN 1, A GPU, a", .choice = {4, {}}, .name = "engine 4"});
    other.record({.key = "cuDNN 1, A GPU, a", .choice = {5, {}}, .name = "engine 5"});
    CHECK(choices.fingerprint().substr(0, 3) == "1, ");
    CHECK(choices.fingerprint().size() == 3 + 16);
    CHECK(same.fingerprint() == choices.fingerprint());
    CHECK(other.fingerprint() != choices.fingerprint());
    CHECK(same.take_lines().size() == 1);
}

TEST_CASE("a text of another GPU's choices, or another version's, is announced once per library") {
    PlanChoices choices(head + "cuBLASLt 7, A GPU, p\t1\ncuDNN 1, A GPU, a\t4\ncuDNN 2, A GPU, a, b\t4\n", "plans.txt");
    choices.record({.key = "cuDNN 1, B GPU, a", .choice = {}, .name = "engine 0"});
    choices.record({.key = "cuDNN 1, B GPU, b", .choice = {}, .name = "engine 0"});
    choices.record({.key = "cuBLASLt 7, A GPU, q", .choice = {}, .name = "algorithm 0"});
    const auto lines = choices.take_lines();
    REQUIRE(lines.size() == 5);
    CHECK(lines[0] == "plans.txt has 1 choice of cuDNN 1, A GPU and none of cuDNN 1, B GPU: new ones are made");
    CHECK(lines[1] == "plans.txt has 1 choice of cuDNN 2, A GPU and none of cuDNN 1, B GPU: new ones are made");
    for (const char* key : {"", "a", "a, b", "a, b, c"}) {
        CAPTURE(key);
        CHECK(PlanChoices::origin_of(key) == (std::string(key) == "a, b, c" ? "a, b" : key));
    }
}
