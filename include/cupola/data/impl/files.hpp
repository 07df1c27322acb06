// SPDX-License-Identifier: Apache-2.0
//
// Files and folders by POSIX calls, with one message per error. `<filesystem>` would cost every reader of a data
// set half a second to compile.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cupola/core/error.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Throws DataError with the message for `error`, an errno, about `path`.
[[noreturn]] inline void throw_file_error(const std::string& path, int error) {
    if (error == ENOENT || error == ENOTDIR) throw DataError(text(path, " does not exist"));
    throw DataError(text(path, " cannot be read: ", std::generic_category().message(error)));
}

enum class PathKind { missing, file, folder, other };

/// The kind of `path`. Throws DataError if it cannot be determined.
[[nodiscard]] inline PathKind path_kind_of(const std::string& path) {
    struct stat status {};
    if (stat(path.c_str(), &status) != 0) {
        if (errno == ENOENT || errno == ENOTDIR) return PathKind::missing;
        throw_file_error(path, errno);
    }
    if (S_ISREG(status.st_mode)) return PathKind::file;
    return S_ISDIR(status.st_mode) ? PathKind::folder : PathKind::other;
}

/// A regular file that is open for reading.
class InputFile {
public:
    explicit InputFile(std::string path)
        : path_(std::move(path)), handle_(open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
        if (handle_ < 0) throw_file_error(path_, errno);
        struct stat status {};
        const bool regular = fstat(handle_, &status) == 0 && S_ISREG(status.st_mode);
        if (!regular) close(handle_);
        require<DataError>(regular, path_, " is not a regular file");
        size_ = static_cast<std::size_t>(status.st_size);
    }
    InputFile(const InputFile&) = delete;
    InputFile& operator=(const InputFile&) = delete;
    ~InputFile() { close(handle_); }

    [[nodiscard]] std::size_t size() const { return size_; }
    void skip(std::size_t count) { lseek(handle_, static_cast<off_t>(count), SEEK_CUR); }
    /// Reads exactly `count` bytes, or throws: the file became shorter while it was read.
    void read(std::uint8_t* to, std::size_t count) {
        while (count > 0) {
            const ssize_t got = ::read(handle_, to, count);
            if (got < 0 && errno == EINTR) continue;
            if (got < 0) throw_file_error(path_, errno);
            require<DataError>(got > 0, path_, " is truncated: ", count, " of its ", size_, " bytes are missing");
            to += got;
            count -= static_cast<std::size_t>(got);
        }
    }

private:
    std::string path_;
    int handle_;
    std::size_t size_ = 0;
};

/// The names in a folder, sorted, without hidden ones.
[[nodiscard]] inline std::vector<std::string> names_in(const std::string& folder) {
    struct Close {
        void operator()(DIR* handle) const { closedir(handle); }
    };
    const std::unique_ptr<DIR, Close> handle(opendir(folder.c_str()));
    if (handle == nullptr) throw_file_error(folder, errno);
    std::vector<std::string> names;
    for (const dirent* entry = readdir(handle.get()); entry != nullptr; entry = readdir(handle.get())) {
        if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
    }
    std::sort(names.begin(), names.end());
    return names;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
