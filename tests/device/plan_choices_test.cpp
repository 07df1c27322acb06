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
