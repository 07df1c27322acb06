// SPDX-License-Identifier: Apache-2.0
//
// The common part of the fuzz targets: an input as a file, the accepted results (data, or an exception with a message of
// one line), and the largest memory that a call may use.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <sanitizer/allocator_interface.h>

#include <cupola/core/error.hpp>

#include "../standard.hpp"

namespace fuzz {

[[noreturn]] inline void fail(std::string_view what, std::string_view detail) {
    std::fprintf(stderr, "%.*s: %.*s\n", static_cast<int>(what.size()), what.data(), static_cast<int>(detail.size()),
                 detail.data());
    std::abort();
}

/// Memory in use beside what was there when the count began, and the most of it at one time.
struct Memory {
    std::int64_t now = 0, peak = 0;
    bool counting = false;
};
inline Memory memory;

inline void count_memory() {
    [[maybe_unused]] static const int installed = __sanitizer_install_malloc_and_free_hooks(
        [](const volatile void*, std::size_t size) {
            if (!memory.counting) return;
            memory.now += static_cast<std::int64_t>(size);
            if (memory.now > memory.peak) memory.peak = memory.now;
        },
        [](const volatile void* pointer) {
            if (!memory.counting || pointer == nullptr) return;
            memory.now -= static_cast<std::int64_t>(__sanitizer_get_allocated_size(const_cast<const void*>(pointer)));
        });
    memory = {.counting = true};
}

/// One line, not empty, of characters that a terminal shows.
inline void check_message(std::string_view message) {
    if (message.empty() || message.size() > 4000) fail("a message of a strange length", message);
    for (const char c : message) {
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) fail("a message with a control character", message);
    }
}

/// Runs `read`, which returns data or throws an exception of Cupola's, and holds its memory against `limit` bytes.
template <class Function>
bool answers(std::size_t limit, Function&& read) {
    std::string message;
    bool good = true;
    count_memory();
    try {
        read();
    } catch (const cupola::Error& error) {
        memory.counting = false;
        message = error.what();
        good = false;
    }
    memory.counting = false;
    if (memory.peak > static_cast<std::int64_t>(limit)) {
        fail("too much memory", cupola::text(memory.peak, " bytes at one time, and ", limit, " are allowed"));
    }
    if (!good) check_message(message);
    return good;
}

/// A file in memory that holds one input after the other.
class InputFile {
public:
    explicit InputFile(std::string path) : path_(std::move(path)) {
        handle_ = open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
        if (handle_ < 0) fail("no file", path_);
    }
    void hold(const std::uint8_t* data, std::size_t size) {
        const bool held = ftruncate(handle_, 0) == 0 && pwrite(handle_, data, size, 0) == static_cast<ssize_t>(size);
        if (!held) fail("not written", path_);
    }
    [[nodiscard]] const std::string& path() const { return path_; }

private:
    std::string path_;
    int handle_ = -1;
};

/// Where a target may put its files: CUPOLA_FUZZ_FOLDER, which the script removes at the end, or the current folder.
inline std::string folder() {
    const char* named = std::getenv("CUPOLA_FUZZ_FOLDER");
    return named == nullptr ? "." : named;
}

}  // namespace fuzz
