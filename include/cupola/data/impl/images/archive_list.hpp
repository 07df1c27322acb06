// SPDX-License-Identifier: Apache-2.0
//
// Reads the image files of an ImageFolder data set out of an archive, by libarchive: tar (plain, or packed by xz, gzip,
// bzip2, zstd or lzma) and zip. Nothing is written to disk.
//
// An archive that is cut short is an error wherever it is cut. So a tar is read to the end of its file and not only to
// its end mark, and a zip by its directory, which is at its end. Names are UTF-8 whatever the locale of the process.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <archive.h>
#include <archive_entry.h>
#include <locale.h>

#include <cupola/data/impl/files.hpp>
#include <cupola/data/impl/image_list.hpp>
#include <cupola/data/impl/images/image_formats.hpp>
#include <cupola/data/impl/images/open_archive.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

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

/// The name of an entry. Throws DataError for a name that a message cannot show.
[[nodiscard]] inline std::string path_of(const ImageList& list, archive_entry* entry) {
    const char* raw = archive_entry_pathname(entry);
    if (raw == nullptr) raw = archive_entry_pathname_utf8(entry);
    require<DataError>(raw != nullptr, list.path, " contains a file whose name cannot be read");
    std::string path(raw);
    // A message that contains the name stays one line of bounded length.
    constexpr std::size_t longest_name = 1024;
    require<DataError>(path.size() <= longest_name, list.path, " contains a file with a name of ", path.size(),
                       " bytes; at most ", longest_name, " are accepted");
    require<DataError>(std::ranges::none_of(path, is_control), list.path,
                       " contains a file with a control character in its name");
    return path;
}

/// Reads the entry that the archive is at; its bytes follow those of the list.
[[nodiscard]] inline ImageFile read_entry(ImageList& list, const OpenArchive& opened, const std::string& path,
                                          ImageFile file, const ImageFolderOptions& limits) {
    archive* const handle = opened.handle.get();
    check_method(list.path, path, handle);
    file.offset = list.bytes.size();
    while (true) {
        const void* block = nullptr;
        std::size_t count = 0;
        la_int64_t offset = 0;
        const int status = archive_read_data_block(handle, &block, &count, &offset);
        if (status == ARCHIVE_EOF) return file;
        if (status != ARCHIVE_OK) opened.fail(text(list.path, ", at ", path, ","), list.path);
        require<DataError>(offset == static_cast<la_int64_t>(file.size), list.path, ": ", path, " is a sparse file");
        require<DataError>(file.size + count <= limits.bytes_per_file, list.path, ": ", path, " is larger than ",
                           limits.bytes_per_file, " bytes");
        require<DataError>(list.bytes.size() + count <= limits.total_bytes, list.path, " unpacks to more than ",
                           limits.total_bytes, " bytes");
        const auto* bytes = static_cast<const std::uint8_t*>(block);
        list.bytes.insert(list.bytes.end(), bytes, bytes + count);
        file.size += count;
    }
}

/// Whether it is a file with bytes of its own, and an image by its name.
[[nodiscard]] inline bool is_image(archive_entry* entry, const std::string& name) {
    return archive_entry_filetype(entry) == AE_IFREG && archive_entry_hardlink(entry) == nullptr &&
           image_ending(name) != nullptr;
}

/// Adds one entry of the archive to the list, with its bytes.
inline void add_entry(ImageList& list, const OpenArchive& opened, archive_entry* entry,
                      const ImageFolderOptions& limits) {
    const std::string path = path_of(list, entry);
    const ArchivePath at = parse_archive_path(path);
    const bool folder = archive_entry_filetype(entry) == AE_IFDIR;
    const bool hidden = at.class_name.starts_with('.') || at.file.starts_with('.') || at.prefix.starts_with('.') ||
                        at.prefix.starts_with("__MACOSX");
    if (at.split == 2 || hidden) return;
    ImageList::Split& split = list.splits[at.split];
    const bool first = !list.splits[0].found && !list.splits[1].found;
    if (first) list.prefix = at.prefix;
    require<DataError>(first || at.prefix == list.prefix, list.path, " contains more than one data set: ", path,
                       " is not below '", list.prefix, "'");
    split.found = true;
    if (at.class_name.empty() || (at.file.empty() && !folder))
        return;  // a split's folder, or a file beside the classes
    if (split.classes.empty() || split.classes.back() != at.class_name) split.classes.push_back(at.class_name);
    if (at.file.empty()) return;
    require<DataError>(!at.deeper && is_image(entry, at.file), list.path, ": ", path, " is not a ",
                       image_endings_text(), " file; a class folder may contain nothing else");
    require<DataError>(list.splits[0].files.size() + list.splits[1].files.size() < limits.files, list.path,
                       " has more than ", limits.files, " files");
    split.files.push_back(read_entry(list, opened, path, {at.class_name, at.file, 0, 0}, limits));
}

/// The entries of an archive whose images are split by an option. The place of its class folders is known only at its
/// end: they may be in a folder of any name, or in none.
class UnsplitEntries {
public:
    void add(ImageList& list, const OpenArchive& opened, archive_entry* entry, const ImageFolderOptions& limits) {
        const std::string path = path_of(list, entry);
        std::vector<std::string> parts;
        for (std::size_t begin = 0; begin <= path.size();) {
            const std::size_t end = std::min(path.find('/', begin), path.size());
            const std::string part = path.substr(begin, end - begin);
            begin = end + 1;
            if (part.empty() || part == ".") continue;
            if (part.starts_with('.') || part == "__MACOSX") return;
            parts.push_back(part);
        }
        if (archive_entry_filetype(entry) == AE_IFDIR) return add_folder(list, parts, limits);
        if (parts.size() < 2) return;
        const std::string& name = parts.back();
        const std::string& class_name = parts[parts.size() - 2];
        std::string root;
        for (std::size_t i = 0; i + 2 < parts.size(); ++i) root += parts[i] + "/";
        if (!is_image(entry, name)) {
            others_.emplace_back(root, path);
            require<DataError>(others_.size() <= limits.files, list.path, " has more than ", limits.files, " files");
            return;
        }
        ImageList::Split& train = list.splits[0];
        if (train.files.empty()) root_ = root;
        const auto is_test = [](const std::string& of) { return of == "test/" || of.ends_with("/test/"); };
        require<DataError>(root == root_ || !(is_test(root) || is_test(root_)), list.path,
                           " has a folder test/, and the option .split is for images without it");
        require<DataError>(root == root_, list.path, " contains more than one data set: ", path, " is not below '",
                           root_, "'");
        require<DataError>(train.files.size() < limits.files, list.path, " has more than ", limits.files, " files");
        if (train.classes.empty() || train.classes.back() != class_name) train.classes.push_back(class_name);
        train.files.push_back(read_entry(list, opened, path, {class_name, name, 0, 0}, limits));
    }

    void finish(ImageList& list) const {
        for (const auto& [root, name] : folders_) {
            if (root == root_) list.splits[0].classes.push_back(name);
        }
        for (const auto& [root, path] : others_) {
            require<DataError>(root != root_ || list.splits[0].files.empty(), list.path, ": ", path, " is not a ",
                               image_endings_text(), " file; a class folder may contain nothing else");
        }
        const bool in_train = root_ == "train/" || root_.ends_with("/train/");
        list.folders.fill(in_train ? "train/" : "");
        list.prefix = root_.substr(0, root_.size() - list.folders[0].size());
        list.splits[0].found = true;
    }

private:
    /// A folder may be that of a class; a class without images is an error, as it is in a folder that is not packed.
    void add_folder(const ImageList& list, const std::vector<std::string>& parts, const ImageFolderOptions& limits) {
        if (parts.empty()) return;
        std::string root;
        for (std::size_t i = 0; i + 1 < parts.size(); ++i) root += parts[i] + "/";
        folders_.emplace_back(root, parts.back());
        require<DataError>(folders_.size() <= limits.files, list.path, " has more than ", limits.files, " folders");
    }

    std::string root_;                                          ///< of the class folders
    std::vector<std::pair<std::string, std::string>> folders_,  ///< where, and the name
        others_;                                                ///< files that are not images: where, and the path
};

/// A tar that is not packed shows only by the two blocks of zeros at its end that it is complete.
inline void check_end_of_tar(const std::string& path, const OpenArchive& opened) {
    if (opened.file == nullptr || opened.packed) return;
    InputFile file(path);
    constexpr std::size_t end_mark = 1024;
    bool ended = file.size() >= end_mark && file.size() % 512 == 0;
    if (ended) {
        std::uint8_t last[end_mark];
        file.skip(file.size() - end_mark);
        file.read(last, end_mark);
        for (const std::uint8_t byte : last) ended = ended && byte == 0;
    }
    require<DataError>(ended, path, " is truncated: the end-of-archive marker of the tar file is missing");
}

/// While it exists, the calling thread's characters are UTF-8. libarchive converts names to the thread's character set
/// and returns none where that lacks a character: in the locale "C", in which every program starts, for a zip's name
/// with an umlaut. Only the calling thread is affected, not the process. Where the system has no UTF-8 locale nothing
/// changes.
class Utf8Names {
public:
    Utf8Names() : utf8_(newlocale(LC_CTYPE_MASK, "C.UTF-8", locale_t{})) {
        if (utf8_ != locale_t{}) before_ = uselocale(utf8_);
    }
    Utf8Names(const Utf8Names&) = delete;
    Utf8Names& operator=(const Utf8Names&) = delete;
    ~Utf8Names() {
        if (utf8_ == locale_t{}) return;
        uselocale(before_);
        freelocale(utf8_);
    }

private:
    locale_t utf8_, before_{};
};

[[nodiscard]] inline ImageList list_archive(const std::string& path, const ImageFolderOptions& limits) {
    const Utf8Names utf8;  // before the archive is opened, and until it is closed
    ImageList list;
    list.path = path;
    list.from_archive = true;
    const OpenArchive opened = open_archive(path, limits);
    UnsplitEntries unsplit;
    const bool splits = limits.split.validation != 0;
    while (true) {
        archive_entry* entry = nullptr;
        const int status = archive_read_next_header(opened.handle.get(), &entry);
        if (status == ARCHIVE_EOF) break;
        // ARCHIVE_WARN: a name that the locale cannot show, or the like; the bytes are whole.
        if (status != ARCHIVE_OK && status != ARCHIVE_WARN) opened.fail(path, path);
        if (splits) {
            unsplit.add(list, opened, entry, limits);
        } else {
            add_entry(list, opened, entry, limits);
        }
    }
    if (splits) unsplit.finish(list);
    check_end_of_tar(path, opened);
    return list;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
