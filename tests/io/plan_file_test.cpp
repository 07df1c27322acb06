// SPDX-License-Identifier: Apache-2.0
#include <cupola/io/plan_file.hpp>

#include "../test.hpp"

#include "io/file_support.hpp"
#include "throws_with.hpp"

namespace {

const std::string head = std::string(PlanChoices::head) + '\n';

}  // namespace

TEST_CASE("without a path the choices are kept in memory and nothing is written") {
    PlanFile plans("");
    REQUIRE(plans.choices() != nullptr);
    plans.choices()->set("conv", {.engine = 3, .knobs = {}});
    plans.write();
    CHECK(plans.choices()->size() == 1);
}

TEST_CASE("choices are written, and another run reads them") {
    const io_tests::TemporaryFolder folder;
    PlanFile first(folder.path("plans.txt"));
    REQUIRE(first.choices() != nullptr);
    CHECK(first.choices()->size() == 0);
    first.choices()->set("conv", {.engine = 3, .knobs = {{1, 2}}});
    first.write();
    CHECK(io_tests::read_bytes(folder.path("plans.txt")) == head + "conv\t3 1=2\n");

    PlanFile second(folder.path("plans.txt"));
    REQUIRE(second.choices()->find("conv"));
    CHECK(second.choices()->find("conv")->engine == 3);
    second.choices()->set("linear", {.engine = 4, .knobs = {}});
    second.write();
    CHECK(io_tests::read_bytes(folder.path("plans.txt")) == head + "conv\t3 1=2\nlinear\t4\n");
}

TEST_CASE("a file that would be the same, or another process's, is not written") {
    const io_tests::TemporaryFolder folder;
    io_tests::write_bytes(folder.path("plans.txt"), head + "conv\t3\n");
    PlanFile same(folder.path("plans.txt"));
    std::remove(folder.path("plans.txt").c_str());
    same.write();
    CHECK(folder.names().empty());

    io_tests::write_bytes(folder.path("plans.txt"), head + "conv\t3\n");
    PlanFile reader(folder.path("plans.txt"), false);
    CHECK(reader.choices()->find("conv"));
    reader.choices()->set("linear", {.engine = 4, .knobs = {}});
    reader.write();
    CHECK(io_tests::read_bytes(folder.path("plans.txt")) == head + "conv\t3\n");
}

TEST_CASE("a file of another format, or one that cannot be read, is rejected with its name") {
    const io_tests::TemporaryFolder folder;
    io_tests::write_bytes(folder.path("plans.txt"), "something else\n");
    CHECK(message_of<InvalidArgument>([&] { PlanFile plans(folder.path("plans.txt")); }) ==
          folder.path("plans.txt") + " does not begin with \"" + std::string(PlanChoices::head) + '"');
    io_tests::write_bytes(folder.path("plans.txt"), "cupola plan choices 9\nconv\t3\n");
    CHECK(message_of<InvalidArgument>([&] { PlanFile plans(folder.path("plans.txt")); }) ==
          folder.path("plans.txt") +
              " has plan choices of format 9, and this program reads the formats 1 and 2: use the "
              "program that wrote it, or another file");
    CHECK(message_of<DataError>([&] { PlanFile plans(folder.path()); }) ==
          folder.path() + " cannot be read: Is a directory");
}
