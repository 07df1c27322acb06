// SPDX-License-Identifier: Apache-2.0
//
// The reader of CIFAR-10's binary files: the layout, and one message for each way in which files can be wrong.
#include <cupola/data/cifar10.hpp>

#include "../test.hpp"

#include "files_support.hpp"
#include "support.hpp"

using namespace cupola_tests;

namespace {

constexpr std::size_t record_bytes = 3073;

/// Records whose red, green and blue planes are constant: record i has (10 i, 10 i + 1, 10 i + 2) and label i % 10.
Bytes records(int first, int count) {
    Bytes bytes;
    for (int i = first; i < first + count; ++i) {
        bytes.push_back(static_cast<std::uint8_t>(i % 10));
        for (int channel = 0; channel < 3; ++channel)
            bytes.insert(bytes.end(), 1024, static_cast<std::uint8_t>(10 * i + channel));
    }
    return bytes;
}

/// Six files below `root`, two records in each.
void write_set(const TemporaryFolder& folder, const std::string& root) {
    for (int i = 1; i <= 5; ++i)
        folder.write(root + "/data_batch_" + std::to_string(i) + ".bin", records(2 * (i - 1), 2));
    folder.write(root + "/test_batch.bin", records(10, 2));
}

std::string refusal(const std::string& path) {
    return message_of<DataError>([&] { static_cast<void>(read_cifar10(path)); });
}

}  // namespace

TEST_CASE("records with constant planes are read as images of that colour, in file order") {
    const TemporaryFolder folder;
    write_set(folder, "cifar-10-batches-bin");
    for (const std::string& path : {folder.path(), folder.path("cifar-10-batches-bin")}) {
        const ImageData data = read_cifar10(path);
        REQUIRE(data.train.size() == 10);
        REQUIRE(data.test.size() == 2);
        CHECK(data.train.sample_shape() == Shape{32, 32, 3});
        CHECK(data.train.classes()[9] == "truck");
        for (std::int64_t i = 0; i < 10; ++i) {
            CHECK(data.train.label(i) == i);
            bool constant = true;
            const auto image = data.train.sample(i);
            for (std::size_t k = 0; k < image.size(); ++k)
                constant = constant && image[k] == 10 * static_cast<std::size_t>(i) + k % 3;
            CHECK(constant);
        }
        CHECK(data.test.sample(1)[2] == 112);
        CHECK(data.test.label(1) == 1);
    }
}

TEST_CASE("pixels of a plane are read row by row") {
    const TemporaryFolder folder;
    write_set(folder, ".");
    Bytes bytes = records(0, 1);
    bytes[1 + 1024 + 32 * 5 + 7] = 99;  // green, row 5, column 7
    folder.write("data_batch_1.bin", bytes);
    const ImageData data = read_cifar10(folder.path());
    CHECK(data.train.sample(0)[(5 * 32 + 7) * 3 + 1] == 99);
}

TEST_CASE("a record file that is truncated at any byte is rejected with its size") {
    const TemporaryFolder folder;
    write_set(folder, ".");
    const std::string file = folder.path() + "/data_batch_3.bin";
    for (const std::size_t size : {std::size_t{1}, record_bytes - 1, record_bytes + 1, 2 * record_bytes - 1}) {
        Bytes bytes = records(4, 2);
        bytes.resize(size);
        folder.write("data_batch_3.bin", bytes);
        CHECK(refusal(folder.path()) == file + " is truncated or is not a CIFAR-10 file: its size of " +
                                            std::to_string(size) +
                                            " bytes is not a multiple of the record size of 3073 bytes");
    }
    folder.write("data_batch_3.bin", {});
    CHECK(refusal(folder.path()) == file + " is empty");
}

TEST_CASE("a label of 10 is rejected with its record") {
    const TemporaryFolder folder;
    write_set(folder, ".");
    Bytes bytes = records(0, 2);
    bytes[record_bytes] = 10;
    const std::string file = folder.write("test_batch.bin", bytes);
    CHECK(refusal(folder.path()) ==
          folder.path() + "/test_batch.bin has label 10 in record 1 (counted from 0); CIFAR-10's labels are 0 to 9");
}

TEST_CASE("a path that does not exist, or without the files, is rejected") {
    const TemporaryFolder folder;
    CHECK(refusal(folder.path("nowhere")) == folder.path("nowhere") + " does not exist");
    CHECK(refusal(folder.path()) == folder.path() +
                                        " contains neither data_batch_1.bin to data_batch_5.bin and "
                                        "test_batch.bin nor a folder cifar-10-batches-bin with them");
    write_set(folder, ".");
    std::filesystem::remove(folder.path("data_batch_4.bin"));
    CHECK(refusal(folder.path()) == folder.path() + "/data_batch_4.bin does not exist");
    std::filesystem::create_directory(folder.path("data_batch_4.bin"));
    CHECK(refusal(folder.path()) == folder.path() + "/data_batch_4.bin is not a regular file");
}

TEST_CASE("a record file or folder that may not be read is rejected") {
    const TemporaryFolder folder;
    write_set(folder, "set");
    std::filesystem::permissions(folder.path("set/data_batch_2.bin"), std::filesystem::perms::none);
    CHECK(as_nobody([&] { return refusal(folder.path("set")); }) ==
          folder.path("set/data_batch_2.bin") + " cannot be read: Permission denied");
    std::filesystem::permissions(folder.path("set"), std::filesystem::perms::none);
    const std::string message = as_nobody([&] { return refusal(folder.path("set")); });
    CHECK(contains(message, folder.path("set")));
    CHECK(contains(message, "cannot be read: Permission denied"));
    std::filesystem::permissions(folder.path("set"), std::filesystem::perms(0755));
}
