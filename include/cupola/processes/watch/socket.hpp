// SPDX-License-Identifier: Apache-2.0
//
// Socket: owns a socket's file descriptor.
#pragma once

#include <utility>

#include <unistd.h>

#include <cupola/core/abi.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

class Socket {
public:
    Socket() = default;
    explicit Socket(int handle) : handle_(handle) {}
    Socket(Socket&& other) noexcept : handle_(std::exchange(other.handle_, -1)) {}
    Socket& operator=(Socket&& other) noexcept {
        std::swap(handle_, other.handle_);
        return *this;
    }
    ~Socket() {
        if (handle_ >= 0) close(handle_);
    }
    /// The file descriptor, or -1.
    [[nodiscard]] int get() const { return handle_; }

private:
    int handle_ = -1;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
