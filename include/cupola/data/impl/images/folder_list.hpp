// SPDX-License-Identifier: Apache-2.0
//
// Finds the image files of an ImageFolder data set in a folder. The files are read later, by the threads that decode.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>

#include <cupola/data/impl/files.hpp>
#include <cupola/data/impl/image_list.hpp>
#include <cupola/data/impl/images/image_formats.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

[[nodiscard]] inline bool has_folders(const std::string& path) {
    if (path_kind_of(path) != PathKind::folder) return false;
    return std::ranges::any_of(names_in(path), [&](const std::string& name) {
        return path_kind_of(text(path, '/', name)) == PathKind::folder;
    });
}

/// Lists `path`/train and `path`/test, or, if an option splits the images, the one folder that has the classes. Hidden
/// files and files beside the class folders are not part of the data set; a file in a class folder that is not an image
/// by its name is an error, since it would otherwise be left out silently.
[[nodiscard]] inline ImageList list_folder(const std::string& path, const ImageFolderOptions& limits) {
    ImageList list;
    list.path = path;
    list.prefix = path + "/";
    const bool splits = limits.split.validation != 0;
    if (splits) {
        // A class may be called "train" or "test": its folder has images and no folders.
        require<DataError>(!has_folders(list.prefix + "test"), path,
                           " has a folder test/, and the option .split is for images without it");
        list.folders.fill(has_folders(list.prefix + "train") ? "train/" : "");
    }
    std::size_t count = 0;
    for (std::size_t s = 0; s < (splits ? 1 : 2); ++s) {
        ImageList::Split& split = list.splits[s];
        std::string root = list.prefix + list.folders[s];
        root.pop_back();  // the slash
        split.found = path_kind_of(root) == PathKind::folder;
        if (!split.found) continue;
        for (const std::string& class_name : names_in(root)) {
            const std::string folder = text(root, '/', class_name);
            if (path_kind_of(folder) != PathKind::folder) continue;
            split.classes.push_back(class_name);
            for (const std::string& name : names_in(folder)) {
                require<DataError>(
                    image_ending(name) != nullptr && path_kind_of(text(folder, '/', name)) != PathKind::folder, folder,
                    '/', name, " is not a ", image_endings_text(), " file; a class folder may contain nothing else");
                require<DataError>(++count <= limits.files, path, " has more than ", limits.files, " files");
                split.files.push_back({class_name, name, 0, 0});
            }
        }
    }
    return list;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
