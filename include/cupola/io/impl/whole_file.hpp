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
    FileHandle(const FileHandle&) = delete;
    FileHandle& operator=(const FileHandle&) = delete;
    ~FileHandle() {
        if (handle_ >= 0) close(handle_);
    }
    [[nodiscard]] int get() const { return handle_; }

private:
    int handle_;
};

[[nodiscard]] inline FileBytes read_whole_file(const std::string& path) {
    const auto refuse = [&](int error) {
        if (error == ENOENT || error == ENOTDIR) throw UnreadableFile(text(path, " does not exist"), error);
        throw UnreadableFile(text(path, " cannot be read: ", std::generic_category().message(error)), error);
    };
    const FileHandle file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (file.get() < 0) refuse(errno);
    struct stat status {};
    if (fstat(file.get(), &status) != 0) refuse(errno);
    require<DataError>(S_ISREG(status.st_mode), path, " is not a regular file");
    FileBytes result;
    result.size = static_cast<std::size_t>(status.st_size);
    result.bytes.reset(new (std::nothrow) std::byte[result.size]);
    require<OutOfMemory>(result.bytes != nullptr, path, " has ", result.size,
                         " bytes, more than the memory that could be allocated");
    for (std::size_t done = 0; done < result.size;) {
        const ssize_t count = read(file.get(), result.bytes.get() + done, result.size - done);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) refuse(errno);
        require<DataError>(count > 0, path, " is truncated: ", result.size - done, " of its ", result.size,
                           " bytes are missing");
        done += static_cast<std::size_t>(count);
    }
    return result;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
