// SPDX-License-Identifier: Apache-2.0
//
// FixedArray<T>: an array in memory of its own whose number of elements is chosen when it is made. It is for members that
// are sized once and never grow: their elements need neither be copied nor moved, and the compiler has a tenth of the work
// that it has with std::vector.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include <cupola/core/abi.hpp>

namespace cupola::inline CUPOLA_ABI {

template <class T>
class FixedArray {
public:
    /// No elements.
    constexpr FixedArray() = default;
    /// `size` elements, each value-initialised: numbers are 0.
    constexpr explicit FixedArray(std::size_t size) : elements_(size == 0 ? nullptr : new T[size]()), size_(size) {}
    /// Copies of `values`.
    constexpr explicit FixedArray(std::span<const T> values) : FixedArray(values.size()) {
        for (std::size_t i = 0; i < size_; ++i) elements_[i] = values[i];
    }
    constexpr FixedArray(FixedArray&& other) noexcept
        : elements_(std::exchange(other.elements_, nullptr)), size_(std::exchange(other.size_, 0)) {}
    constexpr FixedArray& operator=(FixedArray&& other) noexcept {
        std::swap(elements_, other.elements_);
        std::swap(size_, other.size_);
        return *this;
    }
    constexpr ~FixedArray() { delete[] elements_; }

    /// Drops the elements from `size` on, for an array that was made as large as it may become.
    constexpr void keep_first(std::size_t size) { size_ = size; }

    [[nodiscard]] constexpr std::size_t size() const { return size_; }
    [[nodiscard]] constexpr bool empty() const { return size_ == 0; }
    [[nodiscard]] constexpr T* data() { return elements_; }
    [[nodiscard]] constexpr const T* data() const { return elements_; }
    [[nodiscard]] constexpr T* begin() { return elements_; }
    [[nodiscard]] constexpr const T* begin() const { return elements_; }
    [[nodiscard]] constexpr T* end() { return elements_ + size_; }
    [[nodiscard]] constexpr const T* end() const { return elements_ + size_; }
    [[nodiscard]] constexpr T& operator[](std::size_t i) { return elements_[i]; }
    [[nodiscard]] constexpr const T& operator[](std::size_t i) const { return elements_[i]; }

private:
    T* elements_ = nullptr;
    std::size_t size_ = 0;
};

}  // namespace cupola::inline CUPOLA_ABI
