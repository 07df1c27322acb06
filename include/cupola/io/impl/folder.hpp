// SPDX-License-Identifier: Apache-2.0
//
// Creates and lists folders by POSIX calls, with one message per error.
#pragma once

#include <cerrno>
#include <cstddef>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include <dirent.h>
#include <sys/stat.h>

#include <cupola/core/error.hpp>
#include <cupola/io/atomic_file.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Makes a folder, and those above it that are missing.
inline void make_folder(const std::string& path) {
    struct stat status {};
    if (stat(path.c_str(), &status) == 0) {
        require<DataError>(S_ISDIR(status.st_mode), path, " is not a folder");
        return;
    }
    int error = errno;
    if (error == ENOENT) {
        const std::string above = folder_of(path);
        if (above != path) make_folder(above);
        error = mkdir(path.c_str(), 0777) == 0 || errno == EEXIST ? sync_folder_if_supported(above) : errno;
    }
    require<DataError>(error == 0, "the folder ", path, " cannot be created: ", std::generic_category().message(error));
}

/// The names in a folder, in no order.
[[nodiscard, gnu::cold]] inline std::vector<std::string> names_in_folder(const std::string& path) {
    struct Close {
        void operator()(DIR* handle) const { closedir(handle); }
    };
    const std::unique_ptr<DIR, Close> handle(opendir(path.c_str()));
    if (handle == nullptr) {
        const int error = errno;
        require<DataError>(error != ENOENT, "the folder ", path, " does not exist");
        throw DataError(text("the folder ", path, " cannot be read: ", std::generic_category().message(error)));
    }
    std::vector<std::string> names;
    while (true) {
        errno = 0;  // an error too ends the listing with null
        const dirent* const entry = readdir(handle.get());
        if (entry == nullptr) break;
        names.emplace_back(entry->d_name);
    }
    const int error = errno;
    require<DataError>(error == 0, "the folder ", path, " cannot be read: ", std::generic_category().message(error));
    return names;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
