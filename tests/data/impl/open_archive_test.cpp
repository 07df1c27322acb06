// SPDX-License-Identifier: Apache-2.0
#include <cupola/data/impl/images/open_archive.hpp>

#include "../../test.hpp"

#include <archive.h>
#include <archive_entry.h>
#include <throws_with.hpp>

#include <cupola/data/impl/images/archive_list.hpp>

#include "../files_support.hpp"

using namespace cupola_tests;

namespace {

/// A tar of one image and of `more` zeros beside the data set, packed as `pack` says.
Bytes packed_tar(const TemporaryFolder& folder, const std::function<void(archive*)>& pack, std::size_t more = 0) {
    archive* handle = archive_write_new();
    archive_write_set_format_ustar(handle);
    pack(handle);
    archive_write_open_filename(handle, folder.path("packed").c_str());
    for (const auto& [name, bytes] :
         {std::pair{"train/cat/a.jpg", jpeg(8, 6, 1, 2, 3)}, std::pair{"notes.txt", Bytes(more)}}) {
        archive_entry* entry = archive_entry_new();
        archive_entry_set_pathname(entry, name);
        archive_entry_set_filetype(entry, AE_IFREG);
        archive_entry_set_perm(entry, 0644);
        archive_entry_set_size(entry, static_cast<la_int64_t>(bytes.size()));
        archive_write_header(handle, entry);
        archive_write_data(handle, bytes.data(), bytes.size());
        archive_entry_free(entry);
    }
    archive_write_close(handle);
    archive_write_free(handle);
    return read_bytes(folder.path("packed"));
}

void xz(archive* handle, const char* level) {
    REQUIRE(archive_write_add_filter_xz(handle) == ARCHIVE_OK);
    REQUIRE(archive_write_set_filter_option(handle, "xz", "compression-level", level) == ARCHIVE_OK);
}

std::string refusal(const std::string& path, const ImageFolderOptions& limits = {}) {
    return message_of<DataError>([&] { (void)impl::list_archive(path, limits); });
}

constexpr std::uint64_t mebibyte = 1 << 20;

}  // namespace

TEST_CASE("a dictionary larger than the limit is rejected before it is allocated") {
    const TemporaryFolder folder;
    const std::string a = folder.write("a", packed_tar(folder, [](archive* handle) { xz(handle, "9"); }));
    CHECK(impl::XzWalk(a).largest_dictionary() == 64 * mebibyte);
    CHECK(refusal(a) == "(no exception)");
    CHECK(refusal(a, {.dictionary_bytes = mebibyte}) ==
          a + " needs a dictionary of 67108864 bytes; at most 1048576 are accepted");
    const std::string b = folder.write(
        "b", packed_tar(folder, [](archive* handle) { REQUIRE(archive_write_add_filter_lzma(handle) == ARCHIVE_OK); }));
    CHECK(impl::lzma_dictionary(b) == 8 * mebibyte);
    CHECK(refusal(b) == "(no exception)");
    CHECK(refusal(b, {.dictionary_bytes = mebibyte}) ==
          b + " needs a dictionary of 8388608 bytes; at most 1048576 are accepted");
    // A file of a hundred bytes may need 4 GiB: the byte of the size in the first block's header.
    Bytes bytes = read_bytes(a);
    REQUIRE(bytes[14] == 0x21);
    bytes[16] = 40;
    CHECK(refusal(folder.write("c", bytes)) ==
          folder.path("c") + " needs a dictionary of 4294967295 bytes; at most 134217728 are accepted");
}

TEST_CASE("the dictionary of every stream of an xz file counts") {
    const TemporaryFolder folder;
    const Bytes small = packed_tar(
        folder, [](archive* handle) { xz(handle, "0"); }, 300'000);
    const Bytes large = packed_tar(folder, [](archive* handle) { xz(handle, "9"); });
    for (const std::size_t zeros : {0U, 4U, 16U}) {
        Bytes both = small;
        both.insert(both.end(), zeros, 0);
        both.insert(both.end(), large.begin(), large.end());
        CHECK(impl::XzWalk(folder.write("a", both)).largest_dictionary() == 64 * mebibyte);
    }
    CHECK(impl::XzWalk(folder.write("a", small)).largest_dictionary() == mebibyte / 4);
    for (std::size_t length = 0; length < small.size(); ++length) {
        const Bytes cut(small.begin(), small.begin() + static_cast<std::ptrdiff_t>(length));
        CHECK(impl::XzWalk(folder.write("a", cut)).largest_dictionary() == (length < 17 ? 0 : mebibyte / 4));
    }
}

TEST_CASE("skipped files of an archive count as unpacked") {
    const TemporaryFolder folder;
    const auto gzip = [](archive* handle) { archive_write_add_filter_gzip(handle); };
    const std::string path = folder.write("a", packed_tar(folder, gzip, 8'000'000));
    CHECK(read_bytes(path).size() < 10'000);
    CHECK(refusal(path) == "(no exception)");
    CHECK(refusal(path, {.files = 1, .total_bytes = 1'000'000}) == path + " unpacks to more than 1004096 bytes");
    CHECK(refusal(path, {.files = 1, .total_bytes = 9'000'000}) == "(no exception)");
}

TEST_CASE("an archive that is compressed twice is unpacked once, and so rejected") {
    const TemporaryFolder folder;
    const auto twice = [](archive* handle) {
        archive_write_add_filter_gzip(handle);
        archive_write_add_filter_gzip(handle);
    };
    CHECK(contains(refusal(folder.write("a", packed_tar(folder, twice))), "a is truncated or is not an archive: "));
}

TEST_CASE("a zip archive with another method than deflate is rejected") {
    const TemporaryFolder folder;
    const std::map<std::string, Bytes> files{{"train/cat/a.jpg", jpeg(8, 6, 1, 2, 3)}};
    write_archive(folder.path("a.zip"), files, Packing::zip);
    CHECK(refusal(folder.path("a.zip")) == "(no exception)");
    Bytes bytes = read_bytes(folder.path("a.zip"));
    const std::string text(bytes.begin(), bytes.end());
    constexpr std::uint8_t lzma = 14;
    bytes[text.find("PK\x03\x04") + 8] = lzma;
    bytes[text.find("PK\x01\x02") + 10] = lzma;
    const std::string said = refusal(folder.write("a.zip", bytes));
    CAPTURE(said);
    CHECK(said.starts_with(folder.path("a.zip") + ": train/cat/a.jpg is compressed as ZIP "));
    CHECK(said.ends_with("(lzma); in a zip archive only deflated and stored files are supported"));
}
