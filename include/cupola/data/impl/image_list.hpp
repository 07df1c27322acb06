// SPDX-License-Identifier: Apache-2.0
//
// The image files of an ImageFolder data set before they are decoded, found in a folder or in an archive alike.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/data/resize.hpp>
#include <cupola/data/split.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// How a folder or an archive of images is read, and limits, so that a file made to fill the memory is an error. Images
/// of 16 bits per sample are requested by type: read_image_folder<float>.
struct ImageFolderOptions {
    /// 3 for red, green and blue, 1 for grey; images of the other kind are converted.
    int channels = 3;
    /// Makes all images of one size, each when it is decoded. Without it, images of different sizes are an error.
    std::optional<ImageFit> fit{};
    std::size_t files = 2'000'000;
    std::size_t bytes_per_file = std::size_t{1} << 25;
    std::int64_t pixels_per_image = std::int64_t{1} << 24;
    /// The limit of the bytes of all files as stored, and of those of all images as decoded.
    std::size_t total_bytes = std::size_t{1} << 33;
    /// The limit of the dictionary of a file packed by xz or lzma. zstd's own limit is 128 MiB; others need less.
    std::uint64_t dictionary_bytes = std::uint64_t{1} << 27;
    /// For images without a folder test/, in train/<class>/ or in <class>/ itself: which of them become the test
    /// images, as `split` chooses them. With the fraction 0 there has to be a folder test/.
    SplitOptions split{.validation = 0};

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
    /// Where the class folders of each split are, below the prefix; both in one folder where the reader splits them.
    std::array<std::string, 2> folders{"train/", "test/"};
    bool from_archive = false;
    std::vector<std::uint8_t> bytes;  ///< of all files one after another, where they come from an archive
    std::string prefix;               ///< what comes before `folders` in the archive, or the folder with a slash

    [[nodiscard]] std::string name_of(std::size_t split, const ImageFile& file) const {
        return text(path, ": ", name_of(split, file.class_name), '/', file.name);
    }
    [[nodiscard]] std::string name_of(std::size_t split, const std::string& class_name) const {
        return folders[split] + class_name;
    }
    /// " in train/", where there is such a folder.
    [[nodiscard]] std::string in_folder(std::size_t split) const {
        return folders[split].empty() ? "" : " in " + folders[split];
    }
};

/// Puts the classes and files of a split into their order, by name, and checks what can be checked without decoding: at
/// least two classes, none empty, no file twice.
inline void sort_and_check(ImageList& list, std::size_t s) {
    ImageList::Split& split = list.splits[s];
    require<DataError>(split.found, list.path, " has no folder ", split_names[s],
                       "/; expected train/<class>/ and test/<class>/ with images, or the option .split of "
                       "read_image_folder");
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
    require<DataError>(split.classes.size() >= 2, list.path, " has ", split.classes.size(), " class folders",
                       list.in_folder(s), "; classification needs at least 2");
    std::size_t file = 0;
    for (const std::string& name : split.classes) {
        const std::size_t first = file;
        while (file < split.files.size() && split.files[file].class_name == name) ++file;
        require<DataError>(file > first, list.path, " has no image in the class folder ", list.name_of(s, name));
    }
}

/// Moves some of the images, which are sorted, to the test images: those that split() takes for validation.
inline void split_images(ImageList& list, const SplitOptions& options) {
    ImageList::Split &train = list.splits[0], &test = list.splits[1];
    std::vector<SplitGroup> groups(options.stratified ? train.classes.size() : 1);
    for (std::size_t i = 0, group = 0; i < train.files.size(); ++i) {
        if (options.stratified && train.files[i].class_name != train.classes[group]) ++group;
        groups[group].number = static_cast<std::uint32_t>(group);
        groups[group].samples.push_back(static_cast<std::uint32_t>(i));
    }
    const std::vector<std::size_t> counts = split_groups(groups, options, list.path);
    std::vector<bool> tested(train.files.size());
    for (std::size_t g = 0; g < groups.size(); ++g) {
        for (std::size_t i = 0; i < counts[g]; ++i) tested[groups[g].samples[i]] = true;
    }
    std::vector<ImageFile> kept;
    for (std::size_t i = 0; i < train.files.size(); ++i)
        (tested[i] ? test.files : kept).push_back(std::move(train.files[i]));
    train.files = std::move(kept);
    test.classes = train.classes;
    test.found = true;
    for (const std::string& name : train.classes) {
        require<DataError>(std::ranges::find(train.files, name, &ImageFile::class_name) != train.files.end(), list.path,
                           ": the split leaves no image of ", list.name_of(0, name), " for training",
                           options.stratified ? "" : "; .stratified = true takes the same fraction of every class");
    }
}

/// Sorts and checks both splits, which must have the same classes; or makes them of one.
inline void sort_and_check(ImageList& list, const SplitOptions& options) {
    sort_and_check(list, 0);
    if (options.validation != 0) return split_images(list, options);
    sort_and_check(list, 1);
    for (std::size_t s = 0; s < 2; ++s) {
        const std::vector<std::string>&mine = list.splits[s].classes, &other = list.splits[1 - s].classes;
        for (const std::string& name : mine) {
            require<DataError>(std::binary_search(other.begin(), other.end(), name), list.path, " has a class folder ",
                               list.name_of(s, name), " but no ", list.name_of(1 - s, name));
        }
    }
}

}  // namespace impl

}}  // namespace cupola::CUPOLA_ABI
