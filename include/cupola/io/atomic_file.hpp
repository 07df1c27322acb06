// SPDX-License-Identifier: Apache-2.0
//
// A file that is written completely or not at all: it is written under a temporary name in the same folder, synced,
// renamed, and the folder is synced. Until `commit()` returns, an existing file of that name stays unchanged. On a file
// system that does not sync, such as those of some clusters, the same files are written, and a power failure may lose
// the newest of them.
//
// Every call is checked; a DataError names the path, the position and the system's reason ("No space left on device"),
// and the temporary file is removed. A process that is killed leaves at most a temporary file
// (`name_of_temporary_file`).
//
// A name that is a link is followed, so the link stays. An existing path that is not a regular file (a folder, a pipe,
// a device, a link to nothing) throws, because it would be replaced and not written to.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cupola/core/error.hpp>
#include <cupola/core/write_signals.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

inline constexpr std::string_view temporary_mark = ".partial-";

/// The folder that `path` lies in.
[[nodiscard]] inline std::string folder_of(const std::string& path) {
    const std::size_t slash = path.rfind('/');
    if (slash == std::string::npos) return ".";
    return slash == 0 ? "/" : path.substr(0, slash);
}

/// Whether a file system reports with this errno that it has no locks, or does not sync: what is written is complete
/// without either. 524 is ENOTSUPP, with which the kernel passes on the answer of some servers (include/linux/errno.h).
[[nodiscard]] inline bool is_unsupported(int error) {
    constexpr int not_supported_by_server = 524;
    return error == EINVAL || error == ENOSYS || error == ENOLCK || error == EOPNOTSUPP || error == EACCES ||
           error == not_supported_by_server;
}

/// Returns an errno, 0 for success. A folder that may be written and not read (mode 0311) cannot be synced: EACCES.
[[nodiscard]] inline int sync_folder(const std::string& folder) {
    const int handle = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (handle < 0) return errno;
    const int error = fsync(handle) == 0 ? 0 : errno;
    close(handle);
    return error;
}

/// `cupola::sync_folder`, but returns an errno, 0 for success and where the file system does not sync folders.
[[nodiscard]] inline int sync_folder_if_supported(const std::string& folder) {
    const int error = sync_folder(folder);
    return is_unsupported(error) ? 0 : error;
}

/// The file that a rename is to replace: `path`, or the target of the link that it is.
[[nodiscard]] inline std::string regular_file_at(const std::string& path) {
    struct stat status {};
    if (stat(path.c_str(), &status) != 0) {
        const int error = errno;
        require<DataError>(error == ENOENT, path, " cannot be written: ", std::generic_category().message(error));
        require<DataError>(lstat(path.c_str(), &status) != 0, path,
                           " cannot be written: it is a symbolic link to a file that does not exist");
        return path;
    }
    require<DataError>(S_ISREG(status.st_mode), path, " cannot be written: it exists and is not a regular file");
    const std::unique_ptr<char, decltype(&std::free)> resolved(realpath(path.c_str(), nullptr), &std::free);
    return resolved == nullptr ? path : std::string(resolved.get());
}

}  // namespace impl

/// Syncs the names in a folder, so that they survive a power failure, if its file system does that. Throws DataError.
inline void sync_folder(const std::string& folder) {
    const int error = impl::sync_folder_if_supported(folder);
    require<DataError>(error == 0, "the folder ", folder,
                       " cannot be written: ", std::generic_category().message(error));
}

/// If `name` is that of a temporary file of `AtomicFile`, the name of the file that it would have become; otherwise
/// empty.
[[nodiscard]] inline std::string_view name_of_temporary_file(std::string_view name) {
    const std::size_t mark = name.rfind(impl::temporary_mark);
    if (mark == std::string_view::npos) return {};
    const std::string_view numbers = name.substr(mark + impl::temporary_mark.size());
    const std::size_t dash = numbers.find('-');
    const auto is_number = [](std::string_view digits) {
        return !digits.empty() && digits.find_first_not_of("0123456789") == std::string_view::npos;
    };
    if (dash == std::string_view::npos || !is_number(numbers.substr(0, dash))) return {};
    return is_number(numbers.substr(dash + 1)) ? name.substr(0, mark) : std::string_view();
}

class AtomicFile {
public:
    explicit AtomicFile(std::string path) : path_(std::move(path)), target_(impl::regular_file_at(path_)) {
        // Another process may be writing the same file, or have died while writing it under this process number.
        for (int attempt = 0; handle_ < 0; ++attempt) {
            temporary_ = text(target_, impl::temporary_mark, getpid(), '-', attempt);
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

    /// Overwrites bytes that were written before, such as a checksum in the header.
    void overwrite(std::uint64_t place, std::span<const std::byte> bytes) {
        require(place <= size_ && bytes.size() <= size_ - place, path_, " has ", size_,
                " bytes: nothing can be overwritten at byte ", place);
        write_at(place, bytes);
    }

    /// Gives the file its name. Nothing can be written after that.
    void commit() {
        if (fsync(handle_) != 0 && !impl::is_unsupported(errno)) fail(errno, size_);
        if (close(std::exchange(handle_, -1)) != 0) fail(errno, size_);
        if (rename(temporary_.c_str(), target_.c_str()) != 0) fail(errno, size_);
        temporary_.clear();
        const int error = impl::sync_folder_if_supported(impl::folder_of(target_));
        if (error != 0) fail(error, size_);
    }

private:
    void write_at(std::uint64_t place, std::span<const std::byte> bytes) {
        require(handle_ >= 0, path_, " is finished: nothing can be appended to it");
        const WriteSignalsBlock no_signal;  // a limit on the size is reported like a full disk
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

    /// The path as it was given, for messages; the path with links resolved; and that of the temporary file.
    std::string path_, target_, temporary_;
    int handle_ = -1;
    std::uint64_t size_ = 0;
};

}}  // namespace cupola::CUPOLA_ABI
