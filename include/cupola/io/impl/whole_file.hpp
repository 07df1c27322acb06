// SPDX-License-Identifier: Apache-2.0
//
// A whole file in memory, by POSIX calls, with one message per error. Only the size of the file is allocated.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cupola/core/error.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

struct FileBytes {
    std::unique_ptr<std::byte[]> bytes;
    std::size_t size = 0;
};

/// An open file that is closed at the end of its scope.
class FileHandle {
public:
    explicit FileHandle(int handle) : handle_(handle) {}
    FileHandle(FileHandle&& other) noexcept : handle_(std::exchange(other.handle_, -1)) {}
    FileHandle& operator=(FileHandle&& other) noexcept {
        std::swap(handle_, other.handle_);
        return *this;
    }
    ~FileHandle() {
        if (handle_ >= 0) close(handle_);
    }
    [[nodiscard]] int get() const { return handle_; }

private:
    int handle_;
};

/// A regular file that is open for reading.
class RegularFile {
public:
    explicit RegularFile(const std::string& path) : handle_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
        if (handle_.get() < 0) refuse(path, errno);
        struct stat status {};
        if (fstat(handle_.get(), &status) != 0) refuse(path, errno);
        require<DataError>(S_ISREG(status.st_mode), path, " is not a regular file");
        size_ = static_cast<std::size_t>(status.st_size);
    }
    [[nodiscard]] std::size_t size() const { return size_; }
    /// Reads the bytes from `offset` on; `path` is for messages. Throws DataError where the file has become shorter.
    void read(const std::string& path, std::size_t offset, std::span<std::byte> to) const {
        for (std::size_t done = 0; done < to.size();) {
            const ssize_t count =
                pread(handle_.get(), to.data() + done, to.size() - done, static_cast<off_t>(offset + done));
            if (count < 0 && errno == EINTR) continue;
            if (count < 0) refuse(path, errno);
            require<DataError>(count > 0, path, " is truncated: ", size_ - offset - done, " of its ", size_,
                               " bytes are missing");
            done += static_cast<std::size_t>(count);
        }
    }

private:
    [[noreturn, gnu::cold]] static void refuse(const std::string& path, int error) {
        if (error == ENOENT || error == ENOTDIR) throw UnreadableFile(text(path, " does not exist"), error);
        throw UnreadableFile(text(path, " cannot be read: ", std::generic_category().message(error)), error);
    }

    FileHandle handle_;
    std::size_t size_ = 0;
};

[[nodiscard]] inline FileBytes read_whole_file(const std::string& path) {
    const RegularFile file(path);
    FileBytes result;
    result.size = file.size();
    result.bytes.reset(new (std::nothrow) std::byte[result.size]);
    require<OutOfMemory>(result.bytes != nullptr, path, " has ", result.size,
                         " bytes, more than the memory that could be allocated");
    file.read(path, 0, {result.bytes.get(), result.size});
    return result;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
