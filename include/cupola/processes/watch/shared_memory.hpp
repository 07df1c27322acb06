// SPDX-License-Identifier: Apache-2.0
//
// SharedMemory: memory that processes of one machine read and write. One process creates it; the others open it by its
// address, which they receive by any means, while the first still has it open. It has no name that could remain when a
// process is killed, and its size is not limited by /dev/shm. It exists as long as a process has it open.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cupola/core/error.hpp>
#include <cupola/processes/watch/process_id.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

class SharedMemory {
public:
    /// The address by which another process opens the memory.
    struct Address {
        ProcessId process{};
        std::int64_t file = -1;
        std::uint64_t bytes = 0;
        /// A random number that is stored after the bytes: the file with this number may be a different one for the
        /// process that opens it.
        std::uint64_t token = 0;
    };

    SharedMemory() = default;
    /// Creates zero-filled memory of at least one byte. Throws OutOfMemory.
    [[gnu::cold]] explicit SharedMemory(std::size_t bytes) {
        bytes = bytes == 0 ? 1 : bytes;
        int error = exceeds_memory(bytes) ? ENOMEM : 0;
        if (error == 0) {
            file_ = memfd_create("cupola", MFD_CLOEXEC);
            error = file_ < 0 || ftruncate(file_, static_cast<off_t>(size_with_token(bytes))) != 0 ? errno : map(bytes);
        }
        std::uint64_t token = 0;
        if (error == 0 && getrandom(&token, sizeof token, 0) != sizeof token) error = errno;
        if (error == 0) {
            std::memcpy(data() + bytes, &token, sizeof token);
            return;
        }
        release();
        throw OutOfMemory(
            text("memory of ", ByteCount{bytes},
                 " that the processes of this machine share cannot be made: ", std::generic_category().message(error)));
    }
    /// Opens memory that another process has created. Throws DeviceError if that fails, as from another container.
    [[gnu::cold]] explicit SharedMemory(const Address& address) {
        const std::string path = text("/proc/", address.process.number, "/fd/", address.file);
        const std::string why = open_error(path, address);
        if (why.empty()) return;
        release();
        throw DeviceError(text("the memory of the process ", address.process.number,
                               " of this machine cannot be opened: ", path, ": ", why));
    }
    SharedMemory(SharedMemory&& other) noexcept
        : file_(std::exchange(other.file_, -1)),
          bytes_(std::exchange(other.bytes_, 0)),
          data_(std::exchange(other.data_, nullptr)) {}
    SharedMemory& operator=(SharedMemory&& other) noexcept {
        std::swap(file_, other.file_);
        std::swap(bytes_, other.bytes_);
        std::swap(data_, other.data_);
        return *this;
    }
    ~SharedMemory() { release(); }

    /// Null if this object has no memory.
    [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(data_); }
    [[nodiscard, gnu::cold]] Address address() const {
        return {.process = ProcessId::own(), .file = file_, .bytes = bytes_, .token = token()};
    }

private:
    /// Whether the size exceeds the machine's physical memory. The system itself would overcommit it, and then kill
    /// processes when it is used.
    [[nodiscard, gnu::cold]] static bool exceeds_memory(std::size_t bytes) {
        const auto pages = static_cast<std::size_t>(std::max(0L, sysconf(_SC_PHYS_PAGES)));
        return bytes / static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) >= pages;
    }
    /// The size including the token.
    [[nodiscard]] static std::size_t size_with_token(std::size_t bytes) { return bytes + sizeof(std::uint64_t); }
    [[nodiscard]] std::uint64_t token() const {
        std::uint64_t token = 0;
        if (data_ != nullptr) std::memcpy(&token, data() + bytes_, sizeof token);
        return token;
    }
    /// Opens and maps the memory. Returns the reason if that fails, otherwise an empty text.
    [[nodiscard, gnu::cold]] std::string open_error(const std::string& path, const Address& address) {
        if (!ProcessId::own().shares_pid_namespace_with(address.process))
            return "the process is in another PID namespace, as that of another container";
        const auto bytes = static_cast<std::size_t>(address.bytes);
        file_ = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
        struct stat status {};
        if (file_ < 0 || fstat(file_, &status) != 0) return std::generic_category().message(errno);
        // The size is checked first, because memory beyond the end of a file cannot be read.
        if (!S_ISREG(status.st_mode) || static_cast<std::size_t>(status.st_size) != size_with_token(bytes))
            return "this file is not the memory";
        if (const int error = map(bytes); error != 0) return std::generic_category().message(error);
        return token() == address.token ? "" : "this file is not the memory";
    }
    [[nodiscard, gnu::cold]] int map(std::size_t bytes) {
        void* const place = mmap(nullptr, size_with_token(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
        if (place == MAP_FAILED) return errno;
        data_ = place;
        bytes_ = bytes;
        return 0;
    }
    [[gnu::cold]] void release() {
        if (data_ != nullptr) munmap(data_, size_with_token(bytes_));
        if (file_ >= 0) close(file_);
    }

    int file_ = -1;
    std::size_t bytes_ = 0;
    void* data_ = nullptr;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
