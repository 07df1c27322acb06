// SPDX-License-Identifier: Apache-2.0
//
// Memory that a device's copies pass through: see ../cuda.hpp in this folder.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>

#include <cupola/device/impl/cuda_error.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

/// Zero-filled memory, aligned as a device's, whose ends are looked at when it goes.
class GuardedMemory {
public:
    GuardedMemory() = default;
    explicit GuardedMemory(std::size_t bytes);
    GuardedMemory(GuardedMemory&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
    GuardedMemory& operator=(GuardedMemory&& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
        return *this;
    }
    ~GuardedMemory();
    [[nodiscard]] std::byte* data() const { return data_; }
    [[nodiscard]] std::size_t size() const { return size_; }
    /// How many were written past their ends so far.
    static inline std::atomic<int> overrun = 0;

private:
    static constexpr std::size_t guard = 256;
    std::byte* data_ = nullptr;
    std::size_t size_ = 0;
};

inline GuardedMemory::GuardedMemory(std::size_t bytes) : size_(bytes) {
    if (bytes == 0) return;
    HostStream::refuse_in_capture("cudaMalloc");
    auto* const all = static_cast<std::byte*>(::operator new(bytes + 2 * guard, std::align_val_t{guard}));
    std::memset(all, 0xFF, bytes + 2 * guard);  // no number, whatever reads it
    data_ = all + guard;
    std::memset(data_, 0, bytes);
}
inline GuardedMemory::~GuardedMemory() {
    if (data_ == nullptr) return;
    for (std::size_t i = 0; i < guard; ++i) {
        if (data_[size_ + i] == std::byte{0xFF} && data_[i - guard] == std::byte{0xFF}) continue;
        ++overrun;
        break;
    }
    std::memset(data_, 0xFF, size_);
    ::operator delete(data_ - guard, std::align_val_t{guard});
}

class CudaStaging {
public:
    [[nodiscard]] std::byte* at_least(std::size_t bytes) {
        if (bytes > memory_.size()) memory_ = GuardedMemory(bytes);
        return memory_.data();
    }

private:
    GuardedMemory memory_;
};

/// Pinned memory of a fixed size, filled with zeros.
class CudaPinned {
public:
    CudaPinned() = default;
    explicit CudaPinned(std::size_t bytes) : memory_(bytes) {}
    [[nodiscard]] std::byte* data() const { return memory_.data(); }
    [[nodiscard]] std::size_t size() const { return memory_.size(); }

private:
    GuardedMemory memory_;
};

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
