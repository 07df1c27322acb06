// SPDX-License-Identifier: Apache-2.0
//
// MNIST's idx files: what is read, and one message for each way in which files can be wrong.
#include <cupola/data/idx.hpp>

#include "../test.hpp"

#include <cupola/data/batches.hpp>

#include "files_support.hpp"
#include "support.hpp"

using namespace cupola_tests;

namespace {

Bytes header(std::uint8_t rank, const std::vector<std::uint32_t>& extents) {
    Bytes bytes{0, 0, 8, rank};
    for (const std::uint32_t extent : extents) {
        for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<std::uint8_t>(extent >> shift));
    }
    return bytes;
}

/// Images of 2 x 3 pixels whose bytes count on.
Bytes images(std::uint32_t count) {
    Bytes bytes = header(3, {count, 2, 3});
    for (std::uint32_t i = 0; i < 6 * count; ++i) bytes.push_back(static_cast<std::uint8_t>(i));
    return bytes;
}

Bytes labels(const Bytes& values) {
    Bytes bytes = header(1, {static_cast<std::uint32_t>(values.size())});
    bytes.insert(bytes.end(), values.begin(), values.end());
    return bytes;
}

/// The message for these two files, without the folder.
std::string refusal(const Bytes& image_bytes, const Bytes& label_bytes, const IdxOptions& options = {}) {
    const TemporaryFolder folder;
    const std::string i = folder.write("i", image_bytes), l = folder.write("l", label_bytes);
    std::string message = message_of<DataError>([&] { static_cast<void>(read_idx(i, l, options)); });
    for (std::size_t at = message.find(folder.path()); at != std::string::npos; at = message.find(folder.path())) {
        message.erase(at, folder.path().size() + 1);
    }
    return message;
}

Bytes without_last(Bytes bytes) {
    bytes.pop_back();
    return bytes;
}

}  // namespace

TEST_CASE("images and labels are read as grey images of named classes") {
    const TemporaryFolder folder;
    const std::string path = folder.write("images", images(3));
    const ImageSet set = read_idx(path, folder.write("labels", labels({9, 0, 4})));
    CHECK(set.name() == path);
    CHECK(set.size() == 3);
    CHECK(set.sample_shape() == Shape{2, 3, 1});
    CHECK(set.class_count() == 10);
    CHECK(set.classes()[9] == "9");
    CHECK(set.label(0) == 9);
    CHECK(set.label(2) == 4);
    CHECK(std::vector<int>(set.sample(1).begin(), set.sample(1).end()) == std::vector<int>{6, 7, 8, 9, 10, 11});
}

TEST_CASE("the four files of MNIST are read, with either name") {
    for (const std::string& mark : {std::string("-"), std::string(".")}) {
        const TemporaryFolder folder;
        folder.write("train-images" + mark + "idx3-ubyte", images(3));
        folder.write("train-labels" + mark + "idx1-ubyte", labels({1, 0, 1}));
        folder.write("t10k-images" + mark + "idx3-ubyte", images(2));
        const std::string missing = message_of<DataError>([&] { static_cast<void>(read_mnist(folder.path())); });
        CHECK(missing == folder.path("t10k-labels-idx1-ubyte") + " does not exist");
        folder.write("t10k-labels" + mark + "idx1-ubyte", labels({1, 1}));
        const ImageData data = read_mnist(folder.path(), {.classes = {"shirt", "boot"}});
        CHECK(data.train.size() == 3);
        CHECK(data.test.size() == 2);
        CHECK(data.test.classes()[1] == "boot");
        CHECK(data.format == "idx files");
        Bytes wide = header(3, {2, 1, 3});
        wide.resize(wide.size() + 6);
        folder.write("t10k-images" + mark + "idx3-ubyte", wide);
        CHECK(message_of<DataError>([&] { static_cast<void>(read_mnist(folder.path())); }) ==
              folder.path("t10k-images" + mark + "idx3-ubyte") + " has images of 1 x 3 x 1, and " +
                  folder.path("train-images" + mark + "idx3-ubyte") + " has images of 2 x 3 x 1");
    }
    const TemporaryFolder packed;
    packed.write("train-images-idx3-ubyte.gz", {1});
    CHECK(message_of<DataError>([&] { static_cast<void>(read_mnist(packed.path())); }) ==
          packed.path("train-images-idx3-ubyte.gz") + " is packed by gzip; unpack it first (gzip -d)");
    CHECK(message_of<DataError>([&] { static_cast<void>(read_mnist(packed.path("none"))); }) ==
          packed.path("none") + " does not exist");
}

TEST_CASE("a file that is truncated at any byte, or goes on behind its contents, is rejected with its size") {
    const Bytes whole = images(2), both = labels({1, 2});
    CHECK(refusal(whole, both) == "(no exception)");
    CHECK(refusal({}, both) == "i is empty");
    for (std::size_t size = 1; size < whole.size(); ++size) {
        CAPTURE(size);
        const std::string message =
            refusal(Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)), both);
        CHECK(message.starts_with("i is truncated: its size is " + std::to_string(size) + " bytes"));
    }
    CHECK(refusal(without_last(whole), both) ==
          "i is truncated: its size is 27 bytes, too few for images of 2 x 2 x 3");
    CHECK(refusal(whole, without_last(both)) == "l is truncated: its size is 9 bytes, too few for labels of 2");
    CHECK(refusal(header(3, {2, 2}), both) == "i is truncated: its size is 12 bytes, and its header has 16");
    Bytes longer = whole;
    longer.resize(longer.size() + 3);
    CHECK(refusal(longer, both) == "i has 3 bytes behind its images of 2 x 2 x 3");
    // A product of the extents that no 64 bits hold.
    CHECK(refusal(header(3, {0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF}), both) ==
          "i is truncated: its size is 16 bytes, too few for images of 4294967295 x 4294967295 x 4294967295");
}

TEST_CASE("files of another kind are rejected with the bytes that they begin with") {
    CHECK(refusal(labels({1, 2}), labels({1, 2})) ==
          "i is not an idx file of images: it begins with the bytes 0 0 8 1, not with 0 0 8 3");
    CHECK(refusal(images(2), images(2)) ==
          "l is not an idx file of labels: it begins with the bytes 0 0 8 3, not with 0 0 8 1");
    CHECK(refusal({0x1F, 0x8B, 8, 0, 0}, labels({1})) == "i is packed by gzip; unpack it first (gzip -d)");
}

TEST_CASE("images and labels that do not fit together are rejected with both numbers") {
    CHECK(refusal(images(2), labels({1, 2, 3})) == "i has 2 images, and l has 3 labels");
    CHECK(refusal(images(0), labels({})) == "i has no images");
    CHECK(refusal(images(2), labels({1, 10})) ==
          "l has label 10 at image 1 (counted from 0); with 10 classes labels are 0 to 9");
    CHECK(refusal(header(3, {1, 0, 5}), labels({1})) ==
          "i has images of 0 x 5 pixels; height and width must be 1 to 65535");
}
