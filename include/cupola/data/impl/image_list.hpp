// SPDX-License-Identifier: Apache-2.0
//
// The image files of an ImageFolder data set before they are decoded, found in a folder or in an archive alike.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <cupola/core/error.hpp>

namespace cupola::inline CUPOLA_ABI {

/// How a folder or an archive of images is read, and limits, so that a file made to fill the memory is an error. Images of 16 bits
/// per sample are asked for by type: read_image_folder<float>.
struct ImageFolderOptions {
    /// 3 for red, green and blue, 1 for grey; images of the other kind are converted.
    int channels = 3;
    std::size_t files = 2'000'000;
    std::size_t bytes_per_file = std::size_t{1} << 25;
    std::int64_t pixels_per_image = std::int64_t{1} << 24;
    /// The limit of the bytes of all files as stored, and of those of all images as decoded.
    std::size_t total_bytes = std::size_t{1} << 33;
    /// The limit of the dictionary of a file packed by xz or lzma. zstd's own limit is 128 MiB; others need less.
    std::uint64_t dictionary_bytes = std::uint64_t{1} << 27;

    /// The limit of the bytes of a whole tar, with headers and files that are skipped.
    [[nodiscard]] constexpr std::uint64_t stream_bytes() const {
        constexpr std::uint64_t overhead_per_file = 4096;
        return total_bytes + files * overhead_per_file;
    }
};

namespace impl {

inline constexpr std::array<std::string_view, 2> split_names{"train", "test"};

/// One image file: its class, and where its bytes are if they are in memory already.
struct ImageFile {
    std::string class_name, name;
    std::size_t offset = 0, size = 0;
};

struct ImageList {
    struct Split {
        bool found = false;
        std::vector<std::string> classes;  ///< every class folder seen, with images or without
        std::vector<ImageFile> files;
    };
    std::string path;
    std::array<Split, 2> splits;
    bool from_archive = false;
    std::vector<std::uint8_t> bytes;  ///< of all files one after another, where they come from an archive
    std::string prefix;               ///< what comes before train/ and test/ in the archive, or the folder with a slash

    [[nodiscard]] std::string name_of(std::size_t split, const ImageFile& file) const {
        return text(path, ": ", split_names[split], '/', file.class_name, '/', file.name);
    }
};

/// Puts the classes and files into their order, by name, and checks what can be checked without decoding: both splits
/// are there, with the same classes, at least two, none empty, no file twice.
inline void sort_and_check(ImageList& list) {
    for (std::size_t s = 0; s < 2; ++s) {
        ImageList::Split& split = list.splits[s];
        require<DataError>(split.found, list.path, " has no folder ", split_names[s],
                           "/; expected train/<class>/ and test/<class>/ with images");
        std::sort(split.classes.begin(), split.classes.end());
        split.classes.erase(std::unique(split.classes.begin(), split.classes.end()), split.classes.end());
        std::sort(split.files.begin(), split.files.end(), [](const ImageFile& a, const ImageFile& b) {
            const int order = a.class_name.compare(b.class_name);
            return order != 0 ? order < 0 : a.name < b.name;
        });
        for (std::size_t i = 1; i < split.files.size(); ++i) {
            const ImageFile &one = split.files[i - 1], &other = split.files[i];
            require<DataError>(one.class_name != other.class_name || one.name != other.name, list.name_of(s, other),
                               " appears twice");
        }
        require<DataError>(split.classes.size() >= 2, list.path, " has ", split.classes.size(), " class folders in ",
                           split_names[s], "/; classification needs at least 2");
        std::size_t file = 0;
        for (const std::string& name : split.classes) {
            const std::size_t first = file;
            while (file < split.files.size() && split.files[file].class_name == name) ++file;
            require<DataError>(file > first, list.path, " has no image in the class folder ", split_names[s], '/',
                               name);
        }
    }
    for (std::size_t s = 0; s < 2; ++s) {
        const std::vector<std::string>&mine = list.splits[s].classes, &other = list.splits[1 - s].classes;
        for (const std::string& name : mine) {
            require<DataError>(std::binary_search(other.begin(), other.end(), name), list.path, " has a class folder ",
                               split_names[s], '/', name, " but no ", split_names[1 - s], '/', name);
        }
    }
}

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
