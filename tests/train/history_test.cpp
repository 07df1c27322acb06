// SPDX-License-Identifier: Apache-2.0
#include <cupola/train/history.hpp>

#include "../test.hpp"

#include <cupola/io/atomic_file.hpp>

#include "temporary_folder.hpp"
#include "throws_with.hpp"

namespace {

std::string content(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("a history is written as CSV with all digits, and what a record lacks is empty") {
    const TemporaryFolder folder;
    const std::string path = folder.path("history.csv");
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

TEST_CASE("the results of metrics have a column each, and a name with a comma or a quote is quoted") {
    const TemporaryFolder folder;
    const std::string path = folder.path("history.csv");
    History history;
    history.records = {{.step = 3,
                        .loss = 1,
                        .validation_loss = 2,
                        .metrics = {{"accuracy", 0.75}, {"within 0,5", 1}, {"the \"other\"", 0.1}},
                        .learning_rate = 0.5,
                        .seconds = 1},
                       {.step = 4, .loss = 1, .validation_loss = 3, .metrics = {{"accuracy", 1}}, .seconds = 2}};
    history.write_csv(path);
    CHECK(content(path) ==
          "epoch,step,loss,validation_loss,accuracy,\"within 0,5\",\"the \"\"other\"\"\",learning_rate,seconds\n"
          ",3,1,2,0.75,1,0.1,0.5,1\n"
          ",4,1,3,1,,,0,2\n");
    CHECK(history.records[0].metric("accuracy") == 0.75);
    CHECK(message_of<InvalidArgument>([&] { (void)history.records[1].metric("auc"); }) ==
          "this record has no metric auc, but: accuracy");
}

TEST_CASE("a history that cannot be written is an error, and leaves the file as it was") {
    const TemporaryFolder folder;
    const History history;
    CHECK(message_of<DataError>([&] { history.write_csv(folder.path()); }) ==
          folder.path() + " cannot be written: it exists and is not a regular file");
    CHECK(message_of<DataError>([&] { history.write_csv(folder.path("none/history.csv")); }) ==
          folder.path("none/history.csv cannot be written: No such file or directory"));
    CHECK(std::filesystem::is_empty(folder.path()));
}
