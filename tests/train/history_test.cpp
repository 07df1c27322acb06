// SPDX-License-Identifier: Apache-2.0
#include <cupola/train/history.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>

#include <doctest/doctest.h>

#include "throws_with.hpp"

using namespace cupola;

namespace {

struct Folder {
    std::string path = (std::filesystem::temp_directory_path() / "history-XXXXXX").string();
    Folder() { REQUIRE(mkdtemp(path.data()) != nullptr); }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    ~Folder() { std::filesystem::remove_all(path); }
};

std::string content(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("a history is written as CSV with all digits, and what a record lacks is empty") {
    const Folder folder;
    const std::string path = folder.path + "/history.csv";
    History history;
    history.write_csv(path);
    CHECK(content(path) == "epoch,step,loss,validation_loss,learning_rate,seconds\n");
    history.records = {
        {.epoch = 1, .step = 3, .loss = 0.1, .validation_loss = 0.000123, .learning_rate = 0.05, .seconds = 1.5},
        {.step = 6, .loss = std::numeric_limits<double>::infinity(), .learning_rate = 0.1 + 0.2, .seconds = 2}};
    history.write_csv(path);
    CHECK(content(path) ==
          "epoch,step,loss,validation_loss,learning_rate,seconds\n"
          "1,3,0.1,0.000123,0.05,1.5\n"
          ",6,inf,,0.30000000000000004,2\n");
}

TEST_CASE("a history that cannot be written is an error, and leaves the file as it was") {
    const Folder folder;
    const History history;
    CHECK(message_of<DataError>([&] { history.write_csv(folder.path); }) ==
          folder.path + " cannot be written: it exists and is not a regular file");
    CHECK(message_of<DataError>([&] { history.write_csv(folder.path + "/none/history.csv"); }) ==
          folder.path + "/none/history.csv cannot be written: No such file or directory");
    CHECK(std::filesystem::is_empty(folder.path));
}
