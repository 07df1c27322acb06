// SPDX-License-Identifier: Apache-2.0
//
// The text form of choices of engines.
#include "../test.hpp"

#include <cupola/device/plan_choices.hpp>

#include "../throws_with.hpp"

namespace {

std::string refusal(const std::string& text) {
    return message_of<InvalidArgument>([&] { const PlanChoices choices(text, "plans.txt"); });
}

const std::string head = "cupola plan choices 2\n";

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
    for (const char* other :
         {"cupola plans", "cupola plan choices ", "cupola plan choices x", "cupola plan choices 3 "})
        CHECK(refusal(text(other, "\n")) == "plans.txt does not begin with \"cupola plan choices 2\"");
    for (const char* format : {"0", "3", "22"}) {
        CAPTURE(format);
        CHECK(refusal(text("cupola plan choices ", format, "\na\t1\n")) ==
              text("plans.txt has plan choices of format ", format,
                   ", and this program reads the formats 1 and 2: use the program that wrote it, or another file"));
    }
    CHECK(refusal(head + "a\t1\nb\t2") == "plans.txt is truncated in line 3");
    const std::string form = ": expected a key, a tab, the number of an engine and its knobs as number=number";
    for (const char* line : {"a 1", "\t1", "a\t", "a\tx", "a\t1 ", "a\t1 2", "a\t1 2=", "a\t1 2=3,4=5", "a\t1x",
                             "a\t99999999999999999999", "", "a\x1B[1m\t1"}) {
        CAPTURE(line);
        CHECK(refusal(head + "z\t1\n" + line + "\n") == "plans.txt, line 3" + form);
    }
    CHECK(refusal(head + "a\t1\na\t2\n") == "plans.txt, line 3: the key is that of an earlier line");
}

TEST_CASE("a text says with which driver it was made, and another driver is announced once") {
    PlanChoices made;
    made.set_driver("CUDA 13.0");
    made.set("a", {1, {}});
    const std::string written = made.to_text();
    CHECK(written == head + "driver CUDA 13.0\na\t1\n");
    PlanChoices same(written, "plans.txt");
    CHECK(same.to_text() == written);
    same.set_driver("CUDA 13.0");
    CHECK(same.take_lines().empty());
    PlanChoices other(written, "plans.txt");
    for (int device = 0; device < 2; ++device) other.set_driver("CUDA 13.1");
    CHECK(other.take_lines() ==
          std::vector<std::string>{"plans.txt has choices that were made with a driver for CUDA 13.0, and this driver "
                                   "is for CUDA 13.1: they are used, and may not be the fastest any more"});
    CHECK(other.find("a") == EngineChoice{1, {}});
    // Its choices remain those of the first driver.
    CHECK(other.to_text() == written);
    // The older format has no driver, and a text without choices has one that counts for those to come.
    PlanChoices old("cupola plan choices 1\na\t1\n");
    old.set_driver("CUDA 13.1");
    CHECK(old.take_lines().empty());
    CHECK(old.to_text() == head + "a\t1\n");
    PlanChoices empty(head + "driver CUDA 13.0\n");
    empty.set_driver("CUDA 13.1");
    CHECK(empty.take_lines().empty());
    CHECK(empty.to_text() == head + "driver CUDA 13.1\n");
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

TEST_CASE("a text of another GPU's choices is announced once, and one of another version's once per library") {
    const std::string of_a = "cuBLASLt 7, A GPU, p\t1\ncuDNN 1, A GPU, a\t4\ncuDNN 2, A GPU, a, b\t4\n";
    const auto lines_for = [&](const std::string& kept, std::initializer_list<const char*> made) {
        PlanChoices choices(head + kept, "plans.txt");
        for (const char* key : made) choices.record({.key = key, .choice = {}, .name = "engine 0"});
        std::vector<std::string> lines = choices.take_lines();
        std::erase_if(lines, [](const std::string& line) { return line.starts_with("plan of "); });
        return lines;
    };
    using Lines = std::vector<std::string>;
    CHECK(lines_for(of_a, {"cuDNN 1, B GPU, a", "cuDNN 1, B GPU, b", "cuBLASLt 7, B GPU, q"}) ==
          Lines{"plans.txt has 3 choices for A GPU and none for B GPU: new ones are made"});
    CHECK(lines_for(of_a + "cuDNN 2, C GPU, a\t1\n", {"cuDNN 1, B GPU, a", "cuDNN 1, D GPU, a"}) ==
          Lines{"plans.txt has 3 choices for A GPU, 1 choice for C GPU and none for B GPU: new ones are made",
                "plans.txt has 3 choices for A GPU, 1 choice for C GPU and none for D GPU: new ones are made"});
    CHECK(
        lines_for(of_a, {"cuDNN 3, A GPU, a", "cuDNN 3, A GPU, b", "cuBLASLt 8, A GPU, p"}) ==
        Lines{
            "plans.txt has 1 choice for cuDNN 1, 1 choice for cuDNN 2 and none for cuDNN 3 on A GPU: new ones are made",
            "plans.txt has 1 choice for cuBLASLt 7 and none for cuBLASLt 8 on A GPU: new ones are made"});
    // Operations without a choice are not worth a line, nor is a library without any.
    CHECK(lines_for(of_a, {"cuDNN 1, A GPU, z", "cuBLASLt 7, A GPU, q"}).empty());
    CHECK(lines_for("cuDNN 1, A GPU, a\t4\n", {"cuBLASLt 7, A GPU, q"}).empty());
    CHECK(lines_for("", {"cuDNN 1, A GPU, a"}).empty());
    for (const char* key : {"", "a", "a, b", "a, b, c"}) {
        CAPTURE(key);
        CHECK(PlanChoices::origin_of(key) == (std::string(key) == "a, b, c" ? "a, b" : key));
    }
}
