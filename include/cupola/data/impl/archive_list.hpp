// SPDX-License-Identifier: Apache-2.0
//
// Reads the image files of an ImageFolder data set out of an archive, by libarchive: tar (plain, or packed by xz, gzip,
// bzip2, zstd or lzma) and zip. Nothing is written to disk.
//
// An archive that is cut short is an error wherever it is cut. So a tar is read to the end of its file and not only to
// its end mark, and a zip by its directory, which is at its end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <archive.h>
#include <archive_entry.h>

#include <cupola/data/impl/files.hpp>
#include <cupola/data/impl/image_list.hpp>

namespace cupola::inline CUPOLA_ABI::impl {

struct FreeArchive {
    void operator()(archive* handle) const { archive_read_free(handle); }
};
using Archive = std::unique_ptr<archive, FreeArchive>;

/// Throws the sentence for what libarchive last said about `handle`.
[[noreturn]] inline void throw_archive_error(const std::string& path, archive* handle) {
    const char* said = archive_error_string(handle);
    throw DataError(text(path, " is cut short or is no archive: ", said == nullptr ? "no reason given" : said,
                         "; expected a tar or zip of train/<class>/*.jpg and test/<class>/*.jpg"));
}

[[nodiscard]] inline Archive open_archive(const std::string& path) {
    const InputFile readable(path);  // libarchive's own words for a file that is missing say less
    require<DataError>(readable.size() > 0, path, " is empty");
    Archive handle(archive_read_new());
    require<OutOfMemory>(handle != nullptr, "libarchive had no memory to read ", path);
    archive_read_support_filter_xz(handle.get());
    archive_read_support_filter_gzip(handle.get());
    archive_read_support_filter_bzip2(handle.get());
    archive_read_support_filter_zstd(handle.get());
    archive_read_support_filter_lzma(handle.get());
    archive_read_support_format_tar(handle.get());
    archive_read_support_format_zip_seekable(handle.get());
    archive_read_set_format_option(handle.get(), "tar", "read_concatenated_archives", "1");
    constexpr std::size_t block = 1 << 16;
    const int status = archive_read_open_filename(handle.get(), path.c_str(), block);
    if (status != ARCHIVE_OK) throw_archive_error(path, handle.get());
    return handle;
}

/// "train/cat/1.jpg" with what is before it, split at the slashes; `split` is 2 where neither split is in the path.
struct ArchivePath {
    std::string prefix, class_name, file;
    std::size_t split = 2;
    bool deeper = false;
};

[[nodiscard]] inline ArchivePath parse_archive_path(std::string_view path) {
    ArchivePath result;
    std::size_t depth = 0;  // below the split's folder
    while (!path.empty()) {
        const std::size_t slash = path.find('/');
        const std::string part(path.substr(0, slash));
        path = slash == std::string_view::npos ? std::string_view() : path.substr(slash + 1);
        if (part.empty() || part == ".") continue;
        if (result.split == 2) {
            if (part == split_names[0])
                result.split = 0;
            else if (part == split_names[1])
                result.split = 1;
            else
                result.prefix += part + "/";
            continue;
        }
        ++depth;
        if (depth == 1) result.class_name = part;
        if (depth == 2) result.file = part;
        if (depth > 2) result.deeper = true;
    }
    return result;
}

/// Adds one entry of the archive to the list, with its bytes.
inline void add_entry(ImageList& list, archive* handle, archive_entry* entry, const ImageFolderLimits& limits) {
    const char* raw = archive_entry_pathname(entry);
    if (raw == nullptr) raw = archive_entry_pathname_utf8(entry);
    require<DataError>(raw != nullptr, list.path, " holds a file whose name cannot be read");
    const std::string path(raw);
    const ArchivePath at = parse_archive_path(path);
    const bool folder = archive_entry_filetype(entry) == AE_IFDIR;
    const bool hidden = at.class_name.starts_with('.') || at.file.starts_with('.') || at.prefix.starts_with('.') ||
                        at.prefix.starts_with("__MACOSX");
    if (at.split == 2 || hidden) return;
    ImageList::Split& split = list.splits[at.split];
    const bool first = !list.splits[0].found && !list.splits[1].found;
    if (first) list.prefix = at.prefix;
    require<DataError>(first || at.prefix == list.prefix, list.path, " holds more than one data set: ", path,
                       " is not below '", list.prefix, "'");
    split.found = true;
    if (at.class_name.empty() || (at.file.empty() && !folder))
        return;  // a split's folder, or a file beside the classes
    if (split.classes.empty() || split.classes.back() != at.class_name) split.classes.push_back(at.class_name);
    if (at.file.empty()) return;
    const bool plain = archive_entry_filetype(entry) == AE_IFREG && archive_entry_hardlink(entry) == nullptr;
    require<DataError>(plain && !at.deeper && is_jpeg_name(at.file), list.path, ": ", path,
                       " is not a .jpg or .jpeg file; a class folder holds nothing else");
    require<DataError>(list.splits[0].files.size() + list.splits[1].files.size() < limits.files, list.path,
                       " has more than ", limits.files, " files");
    ImageFile file{at.class_name, at.file, list.bytes.size(), 0};
    while (true) {
        const void* block = nullptr;
        std::size_t count = 0;
        la_int64_t offset = 0;
        const int status = archive_read_data_block(handle, &block, &count, &offset);
        if (status == ARCHIVE_EOF) break;
        if (status != ARCHIVE_OK) throw_archive_error(text(list.path, ", at ", path, ","), handle);
        require<DataError>(offset == static_cast<la_int64_t>(file.size), list.path, ": ", path, " is a sparse file");
        require<DataError>(file.size + count <= limits.bytes_per_file, list.path, ": ", path, " is larger than ",
                           limits.bytes_per_file, " bytes");
        require<DataError>(list.bytes.size() + count <= limits.total_bytes, list.path, " unpacks to more than ",
                           limits.total_bytes, " bytes");
        const auto* bytes = static_cast<const std::uint8_t*>(block);
        list.bytes.insert(list.bytes.end(), bytes, bytes + count);
        file.size += count;
    }
    split.files.push_back(std::move(file));
}

/// A tar that is not packed has nothing to show that its end is missing but the two blocks of zeros that end it.
inline void check_end_of_tar(const std::string& path, archive* handle) {
    const bool tar = (archive_format(handle) & ARCHIVE_FORMAT_BASE_MASK) == ARCHIVE_FORMAT_TAR;
    if (!tar || archive_filter_code(handle, 0) != ARCHIVE_FILTER_NONE) return;
    InputFile file(path);
    constexpr std::size_t end_mark = 1024;
    bool ended = file.size() >= end_mark && file.size() % 512 == 0;
    if (ended) {
        std::uint8_t last[end_mark];
        file.skip(file.size() - end_mark);
        file.read(last, end_mark);
        for (const std::uint8_t byte : last) ended = ended && byte == 0;
    }
    require<DataError>(ended, path, " is cut short: the end mark of a tar archive is missing");
}

[[nodiscard]] inline ImageList list_archive(const std::string& path, const ImageFolderLimits& limits) {
    ImageList list;
    list.path = path;
    list.from_archive = true;
    const Archive handle = open_archive(path);
    while (true) {
        archive_entry* entry = nullptr;
        const int status = archive_read_next_header(handle.get(), &entry);
        if (status == ARCHIVE_EOF) break;
        // ARCHIVE_WARN: a name that the locale cannot show, or the like; the bytes are whole.
        if (status != ARCHIVE_OK && status != ARCHIVE_WARN) throw_archive_error(path, handle.get());
        add_entry(list, handle.get(), entry, limits);
    }
    check_end_of_tar(path, handle.get());
    return list;
}

}  // namespace cupola::inline CUPOLA_ABI::impl
