// SPDX-License-Identifier: Apache-2.0
//
// A file that is either there as a whole or not at all: it is written under a temporary name in its own folder, synced,
// renamed, and its folder synced. Until `commit()` has come back, a file that bears the name already stays as it was.
//
// Every call is checked; a DataError says the path, the place and the system's reason ("No space left on device"), and
// the temporary file is removed. A process that is killed leaves at most a temporary file (`is_temporary_file`).
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include <cupola/core/error.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

inline constexpr std::string_view temporary_mark = ".partial-";

/// The folder that `path` lies in.
[[nodiscard]] inline std::string folder_of(const std::string& path) {
    const std::size_t slash = path.rfind('/');
    if (slash == std::string::npos) return ".";
    return slash == 0 ? "/" : path.substr(0, slash);
}

/// Makes the names in a folder last beyond a power failure; returns an errno, 0 for success.
[[nodiscard]] inline int sync_folder(const std::string& folder) {
    const int handle = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (handle < 0) return errno;
    const int error = fsync(handle) == 0 ? 0 : errno;
    close(handle);
    return error == EINVAL ? 0 : error;  // a file system that has nothing to sync in a folder
}

}  // namespace impl

/// Whether this is the name of a file that `AtomicFile` had not finished.
[[nodiscard]] inline bool is_temporary_file(std::string_view name) {
    return name.find(impl::temporary_mark) != std::string_view::npos;
}

class AtomicFile {
public:
    explicit AtomicFile(std::string path) : path_(std::move(path)) {
        // Another process may be writing the same file, or have died in it under the number that is ours now.
        for (int attempt = 0; handle_ < 0; ++attempt) {
            temporary_ = text(path_, impl::temporary_mark, getpid(), '-', attempt);
            handle_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
            if (handle_ < 0 && errno != EEXIST) {
                throw DataError(text(path_, " cannot be written: ", std::generic_category().message(errno)));
            }
        }
    }
    AtomicFile(const AtomicFile&) = delete;
    AtomicFile& operator=(const AtomicFile&) = delete;
    ~AtomicFile() { abandon(); }

    [[nodiscard]] std::uint64_t size() const { return size_; }

    /// Appends to the file.
    void write(std::span<const std::byte> bytes) {
        write_at(size_, bytes);
        size_ += bytes.size();
    }

    /// Writes over bytes that the file has already: a checksum in its head.
    void overwrite(std::uint64_t place, std::span<const std::byte> bytes) {
        require(place <= size_ && bytes.size() <= size_ - place, path_, " has ", size_,
                " bytes: none can be written over at ", place);
        write_at(place, bytes);
    }

    /// Gives the file its name. Nothing can be written after that.
    void commit() {
        if (fsync(handle_) != 0) fail(errno, size_);
        if (close(std::exchange(handle_, -1)) != 0) fail(errno, size_);
        if (rename(temporary_.c_str(), path_.c_str()) != 0) fail(errno, size_);
        temporary_.clear();
        const int error = impl::sync_folder(impl::folder_of(path_));
        if (error != 0) fail(error, size_);
    }

private:
    void write_at(std::uint64_t place, std::span<const std::byte> bytes) {
        require(handle_ >= 0, path_, " is finished: nothing can be added to it");
        while (!bytes.empty()) {
            const ssize_t count = pwrite(handle_, bytes.data(), bytes.size(), static_cast<off_t>(place));
            if (count < 0 && errno == EINTR) continue;
            if (count <= 0) fail(count < 0 ? errno : EIO, place);
            place += static_cast<std::uint64_t>(count);
            bytes = bytes.subspan(static_cast<std::size_t>(count));
        }
    }

    [[noreturn]] void fail(int error, std::uint64_t place) {
        abandon();
        throw DataError(
            text(path_, " cannot be written: ", std::generic_category().message(error), ", after ", place, " bytes"));
    }

    void abandon() noexcept {
        if (handle_ >= 0) close(std::exchange(handle_, -1));
        if (!temporary_.empty()) unlink(temporary_.c_str());
        temporary_.clear();
    }

    std::string path_, temporary_;
    int handle_ = -1;
    std::uint64_t size_ = 0;
};

}  // namespace cupola::inline CUPOLA_ABI
