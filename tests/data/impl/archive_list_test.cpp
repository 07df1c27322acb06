// SPDX-License-Identifier: Apache-2.0
#include <cupola/data/impl/images/archive_list.hpp>

#include "../../test.hpp"

#include <locale.h>
#include <throws_with.hpp>

#include "../files_support.hpp"

using namespace cupola_tests;

namespace {

/// Says of every name in a zip that it is UTF-8, as the usual programs that make zips do: bit 11 of the flags, which
/// libarchive sets only where the process's locale is UTF-8.
Bytes with_utf8_names(Bytes zip) {
    const auto mark = [&](const char* signature, std::size_t flags) {
        const std::string text(zip.begin(), zip.end());
        for (std::size_t at = text.find(signature); at != std::string::npos; at = text.find(signature, at + 4))
            zip[at + flags + 1] |= 0x08;
    };
    mark("PK\x03\x04", 6);
    mark("PK\x01\x02", 8);
    return zip;
}

}  // namespace

TEST_CASE("names are UTF-8 in every kind of archive, whatever the locale of the process, which stays as it is") {
    const TemporaryFolder folder;
    const std::map<std::string, Bytes> files{{"train/K\u00e4fer/\u4e00.jpg", jpeg(8, 6, 1, 2, 3)},
                                             {"test/\u00de\u00fe/a.jpg", jpeg(8, 6, 1, 2, 3)}};
    const auto check_names = [](const impl::ImageList& list) {
        REQUIRE(list.splits[0].files.size() == 1);
        REQUIRE(list.splits[1].files.size() == 1);
        CHECK(list.splits[0].files[0].class_name == "K\u00e4fer");
        CHECK(list.splits[0].files[0].name == "\u4e00.jpg");
        CHECK(list.splits[1].files[0].class_name == "\u00de\u00fe");
    };
    const std::string before = setlocale(LC_ALL, nullptr);
    for (const char* name : {"C", "C.UTF-8"}) {
        REQUIRE(setlocale(LC_ALL, name) != nullptr);
        CAPTURE(name);
        for (const Packing packing : {Packing::tar, Packing::tar_gz, Packing::zip}) {
            CAPTURE(static_cast<int>(packing));
            write_archive(folder.path("a"), files, packing);
            check_names(impl::list_archive(folder.path("a"), {}));
            if (packing != Packing::zip) continue;
            folder.write("a", with_utf8_names(read_bytes(folder.path("a"))));
            check_names(impl::list_archive(folder.path("a"), {}));
        }
        CHECK(uselocale(locale_t{}) == LC_GLOBAL_LOCALE);
        CHECK(setlocale(LC_ALL, nullptr) == std::string(name));
        CHECK(message_of<DataError>([&] { (void)impl::list_archive(folder.path("none"), {}); }) != "(no exception)");
        CHECK(uselocale(locale_t{}) == LC_GLOBAL_LOCALE);
    }
    setlocale(LC_ALL, before.c_str());
}

TEST_CASE("an archive with a control character in a name is rejected, so that the message stays one line") {
    const TemporaryFolder folder;
    for (const char* name : {"train/cat/a\nb.jpg", "train/c\x1b[2Jat/a.jpg", "train/\x7f/a.jpg"}) {
        write_archive(folder.path("a.tar"), std::map<std::string, Bytes>{{name, jpeg(8, 6, 1, 2, 3)}}, Packing::tar);
        CHECK(message_of<DataError>([&] { (void)impl::list_archive(folder.path("a.tar"), {}); }) ==
              folder.path("a.tar") + " contains a file with a control character in its name");
    }
}

TEST_CASE("an archive with a very long name is rejected with its length") {
    const TemporaryFolder folder;
    const std::string name = "train/" + std::string(200, 'a') + "/" + std::string(813, 'b') + ".jpg";
    for (const bool longer : {false, true}) {
        const std::map<std::string, Bytes> files{{(longer ? "x" : "") + name, jpeg(8, 6, 1, 2, 3)}};
        write_archive(folder.path("a.tar"), files, Packing::tar);
        const std::string said = message_of<DataError>([&] { (void)impl::list_archive(folder.path("a.tar"), {}); });
        CHECK(said ==
              (longer ? folder.path("a.tar") + " contains a file with a name of 1025 bytes; at most 1024 are accepted"
                      : "(no exception)"));
    }
}

TEST_CASE("libarchive's message about a damaged archive becomes one line") {
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
