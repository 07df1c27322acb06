// SPDX-License-Identifier: Apache-2.0
//
// A data set is opened by its path; a path without one is rejected, and the message names what was expected.
#include <cupola/data/open.hpp>

#include "../test.hpp"

#include "files_support.hpp"
#include "support.hpp"

using namespace cupola_tests;

namespace {

std::string refusal(const std::string& path) {
    return message_of<DataError>([&] { static_cast<void>(open_image_data(path)); });
}

}  // namespace

TEST_CASE("the format is found from the path") {
    const TemporaryFolder folder;
    write_all(folder, "images", small_image_folder());
    write_archive(folder.path("images.tar.gz"), small_image_folder(), Packing::tar_gz);
    for (const char* name : {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
                             "data_batch_5.bin", "test_batch.bin"}) {
        folder.write(std::string("cifar/cifar-10-batches-bin/") + name, Bytes(3073));
    }
    CHECK(open_image_data(folder.path("images")).format == "ImageFolder");
    CHECK(open_image_data(folder.path("images.tar.gz"), 2).format == "ImageFolder archive");
    CHECK(open_image_data(folder.path("cifar")).format == "CIFAR-10 binary files");
    CHECK(open_image_data(folder.path("cifar/cifar-10-batches-bin")).train.size() == 5);
    for (const char* part : {"train", "t10k"}) {
        folder.write(text("digits/", part, "-images-idx3-ubyte"),
                     {0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 2, 7, 7});  // one image of 1 x 2 pixels
        folder.write(text("digits/", part, "-labels-idx1-ubyte"), {0, 0, 8, 1, 0, 0, 0, 1, 4});
    }
    CHECK(open_image_data(folder.path("digits")).format == "idx files");
    folder.write("packed/train-images-idx3-ubyte.gz", {0x1F, 0x8B});
    CHECK(refusal(folder.path("packed")) ==
          folder.path("packed/train-images-idx3-ubyte.gz") + " is packed by gzip; unpack it first (gzip -d)");
}

TEST_CASE("a path without a data set is rejected, and the message names what was expected") {
    const TemporaryFolder folder;
    CHECK(refusal(folder.path("nowhere")) == folder.path("nowhere") + " does not exist");
    CHECK(
        refusal(folder.path()) ==
        folder.path() +
            " is not a data set: expected CIFAR-10's data_batch_1.bin to "
            "data_batch_5.bin and test_batch.bin, MNIST's train-images-idx3-ubyte and its other three files, or the folders train/<class>/ and test/<class>/ of JPEG or PNG images; without test/, read_image_folder splits them by its option .split");
    const std::string file = folder.write("notes.txt", Bytes(2000, 'x'));
    const std::string message = refusal(file);
    CHECK(message.starts_with(file + " is truncated or is not an archive: "));
    CHECK(message.ends_with("; expected a tar or zip of train/<class>/ and test/<class>/ with images"));
}

TEST_CASE("a folder without read permission is not reported as a folder without a data set") {
    const TemporaryFolder folder;
    std::filesystem::create_directory(folder.path("set"));
    std::filesystem::permissions(folder.path("set"), std::filesystem::perms(0311));
    CHECK(as_nobody([&] { return refusal(folder.path("set")); }) ==
          folder.path("set") + " cannot be read: Permission denied");
}
