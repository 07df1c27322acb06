// SPDX-License-Identifier: Apache-2.0
#include <cupola/data/impl/archive_list.hpp>

#include <map>
#include <string>

#include <doctest/doctest.h>
#include <throws_with.hpp>

#include "../files_support.hpp"

using namespace cupola;
using namespace cupola_tests;

TEST_CASE("an archive with a control character in a name is refused, so that a sentence stays one line") {
    const TemporaryFolder folder;
    for (const char* name : {"train/cat/a\nb.jpg", "train/c\x1b[2Jat/a.jpg", "train/\x7f/a.jpg"}) {
        write_archive(folder.path("a.tar"), std::map<std::string, Bytes>{{name, jpeg(8, 6, 1, 2, 3)}}, Packing::tar);
        CHECK(message_of<DataError>([&] { (void)impl::list_archive(folder.path("a.tar"), {}); }) ==
              folder.path("a.tar") + " holds a file with a control character in its name");
    }
}

TEST_CASE("an archive with a name beyond all measure is refused with its length") {
    const TemporaryFolder folder;
    const std::string name = "train/" + std::string(200, 'a') + "/" + std::string(813, 'b') + ".jpg";
    for (const bool longer : {false, true}) {
        const std::map<std::string, Bytes> files{{(longer ? "x" : "") + name, jpeg(8, 6, 1, 2, 3)}};
        write_archive(folder.path("a.tar"), files, Packing::tar);
        const std::string said = message_of<DataError>([&] { (void)impl::list_archive(folder.path("a.tar"), {}); });
        CHECK(said == (longer
                           ? folder.path("a.tar") + " holds a file with a name of 1025 bytes; at most 1024 are accepted"
                           : "(no exception)"));
    }
}

TEST_CASE("what libarchive says of a damaged archive is one line") {
    const TemporaryFolder folder;
    const std::map<std::string, Bytes> files{{"train/cat/a.jpg", jpeg(8, 6, 1, 2, 3)}};
    write_archive(folder.path("a.zip"), files, Packing::zip);
    const Bytes bytes = read_bytes(folder.path("a.zip"));
    bool wrong_size = false;  // the message of a wrong size ends a line
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        Bytes damaged = bytes;
        damaged[i] ^= 1;
        folder.write("a.zip", damaged);
        const std::string said = message_of<DataError>([&] { (void)impl::list_archive(folder.path("a.zip"), {}); });
        CHECK(said.find('\n') == std::string::npos);
        wrong_size = wrong_size || contains(said, "wrong size");
    }
    CHECK(wrong_size);
}
