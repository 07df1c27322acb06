// SPDX-License-Identifier: Apache-2.0
//
// Opens an archive, by libarchive: a tar, plain or packed by xz, gzip, bzip2, zstd or lzma, or a zip.
//
// A small file can need much: a dictionary of 4 GiB, or hours of unpacking files that are then skipped. So only
// one packing is unpacked, chosen by the file's first bytes; its dictionary is limited before it is allocated; all that
// it unpacks to is counted; and of a zip only what its two usual methods pack is read.
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <archive.h>
#include <archive_entry.h>

#include <cupola/data/impl/files.hpp>
#include <cupola/data/impl/image_list.hpp>
#include <cupola/data/impl/xz_dictionary.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

struct FreeArchive {
    void operator()(archive* handle) const { archive_read_free(handle); }
};
using Archive = std::unique_ptr<archive, FreeArchive>;

[[nodiscard]] inline bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }

/// Throws DataError with libarchive's last message about `handle`.
[[noreturn]] inline void throw_archive_error(const std::string& path, archive* handle) {
    const char* said = archive_error_string(handle);
    std::string reason = said == nullptr ? "no reason given" : said;
    std::erase_if(reason, is_control);  // some of its messages end a line
    throw DataError(text(path, " is truncated or is not an archive: ", reason,
                         "; expected a tar or zip of train/<class>/ and test/<class>/ with images"));
}

[[nodiscard]] inline Archive new_archive(const std::string& path) {
    Archive handle(archive_read_new());
    require<OutOfMemory>(handle != nullptr, "libarchive could not allocate memory to read ", path);
    return handle;
}

/// The filter of libarchive's that unpacks the file, by its first bytes.
[[nodiscard]] inline int filter_of(const std::string& path) {
    using namespace std::string_view_literals;
    struct FirstBytes {
        std::string_view bytes;
        int filter;
    };
    static constexpr std::array<FirstBytes, 5> known{{{"\xFD\x37zXZ\0"sv, ARCHIVE_FILTER_XZ},
                                                      {"\x1F\x8B"sv, ARCHIVE_FILTER_GZIP},
                                                      {"BZh"sv, ARCHIVE_FILTER_BZIP2},
                                                      {"\x28\xB5\x2F\xFD"sv, ARCHIVE_FILTER_ZSTD},
                                                      {"\x5D\0\0"sv, ARCHIVE_FILTER_LZMA}}};
    InputFile file(path);
    std::array<std::uint8_t, 6> head{};
    file.read(head.data(), std::min(head.size(), file.size()));
    const std::string_view begin(reinterpret_cast<const char*>(head.data()), head.size());
    for (const FirstBytes& packing : known) {
        if (begin.starts_with(packing.bytes)) return packing.filter;
    }
    return ARCHIVE_FILTER_NONE;
}

inline void check_dictionary(const std::string& path, int filter, const ImageFolderOptions& limits) {
    const std::uint64_t bytes = filter == ARCHIVE_FILTER_XZ     ? XzWalk(path).largest_dictionary()
                                : filter == ARCHIVE_FILTER_LZMA ? lzma_dictionary(path)
                                                                : 0;
    require<DataError>(bytes <= limits.dictionary_bytes, path, " needs a dictionary of ", bytes, " bytes; at most ",
                       limits.dictionary_bytes, " are accepted");
}

/// A packed file as a stream of its unpacked bytes, which are counted.
class UnpackedFile {
public:
    UnpackedFile(const std::string& path, int filter, const ImageFolderOptions& limits)
        : handle_(new_archive(path)), limit_(limits.stream_bytes()) {
        if (filter != ARCHIVE_FILTER_NONE) archive_read_append_filter(handle_.get(), filter);
        archive_read_support_format_raw(handle_.get());
        archive_read_support_format_empty(handle_.get());
        constexpr std::size_t block = 1 << 16;
        archive_entry* entry = nullptr;
        const int opened = archive_read_open_filename(handle_.get(), path.c_str(), block);
        const int status = opened == ARCHIVE_OK ? archive_read_next_header(handle_.get(), &entry) : opened;
        if (status != ARCHIVE_OK && status != ARCHIVE_EOF) throw_archive_error(path, handle_.get());
        ended_ = status == ARCHIVE_EOF;
    }

    /// Whether more came than the limits allow: the next call of `read` then failed.
    [[nodiscard]] bool too_large() const { return count_ > limit_; }
    [[nodiscard]] std::uint64_t limit() const { return limit_; }

    /// The callback of libarchive that reads the next bytes.
    static la_ssize_t read(archive* reader, void* self, const void** bytes) {
        auto& file = *static_cast<UnpackedFile*>(self);
        if (file.ended_) return 0;
        std::size_t size = 0;
        la_int64_t offset = 0;
        const int status = archive_read_data_block(file.handle_.get(), bytes, &size, &offset);
        file.ended_ = status == ARCHIVE_EOF;
        if (file.ended_) return 0;
        if (status != ARCHIVE_OK) {
            const char* said = archive_error_string(file.handle_.get());
            archive_set_error(reader, archive_errno(file.handle_.get()), "%s",
                              said == nullptr ? "no reason given" : said);
            return -1;
        }
        file.count_ += size;
        if (!file.too_large()) return static_cast<la_ssize_t>(size);
        archive_set_error(reader, EFBIG, "it is too large");
        return -1;
    }

private:
    Archive handle_;
    std::uint64_t limit_, count_ = 0;
    bool ended_ = false;
};

struct OpenArchive {
    /// The stream that the handle of a tar reads; null for a zip.
    std::unique_ptr<UnpackedFile> file;
    Archive handle;
    bool packed = false;

    [[noreturn]] void fail(const std::string& what, const std::string& path) const {
        if (file != nullptr && file->too_large())
            throw DataError(text(path, " unpacks to more than ", file->limit(), " bytes"));
        throw_archive_error(what, handle.get());
    }
};

[[nodiscard]] inline OpenArchive open_archive(const std::string& path, const ImageFolderOptions& limits) {
    InputFile readable(path);  // libarchive's own words for a file that is missing say less
    require<DataError>(readable.size() > 0, path, " is empty");
    std::array<std::uint8_t, 2> head{};
    readable.read(head.data(), std::min(head.size(), readable.size()));
    OpenArchive result{nullptr, new_archive(path)};
    int status = ARCHIVE_OK;
    if (head[0] == 'P' && head[1] == 'K') {
        archive_read_support_format_zip_seekable(result.handle.get());
        constexpr std::size_t block = 1 << 16;
        status = archive_read_open_filename(result.handle.get(), path.c_str(), block);
    } else {
        const int filter = filter_of(path);
        check_dictionary(path, filter, limits);
        result.packed = filter != ARCHIVE_FILTER_NONE;
        result.file = std::make_unique<UnpackedFile>(path, filter, limits);
        archive_read_support_format_tar(result.handle.get());
        archive_read_set_format_option(result.handle.get(), "tar", "read_concatenated_archives", "1");
        status = archive_read_open(result.handle.get(), result.file.get(), nullptr, UnpackedFile::read, nullptr);
    }
    if (status != ARCHIVE_OK) result.fail(path, path);
    return result;
}

/// Accepts deflated and uncompressed files of a zip only: other methods may need gigabytes.
inline void check_method(const std::string& path, const std::string& name, archive* handle) {
    const char* format = archive_format_name(handle);
    if ((archive_format(handle) & ARCHIVE_FORMAT_BASE_MASK) != ARCHIVE_FORMAT_ZIP || format == nullptr) return;
    const std::string_view method(format);
    const bool usual =
        method.find("(deflation)") != std::string_view::npos || method.find("(uncompressed)") != std::string_view::npos;
    require<DataError>(usual, path, ": ", name, " is compressed as ", method,
                       "; in a zip archive only deflated and stored files are supported");
}

}}}  // namespace cupola::CUPOLA_ABI::impl
