// SPDX-License-Identifier: Apache-2.0
//
// FixedArray<T>: an array whose number of elements is chosen at construction, with memory of its own. It is for members
// that are sized once and never grow: their elements need neither be copied nor moved, and it costs the compiler a
// tenth of the work of std::vector.
#pragma once

#include <cstddef>
#include <cstring>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

#include <cupola/core/abi.hpp>
#include <cupola/core/span_of.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

/// Memory for `size` elements of `bytes` bytes, with copies of `value` in it; null if there are none.
[[nodiscard, gnu::cold]] void* filled_array(std::size_t size, std::size_t bytes, const void* value);

[[gnu::noinline]] inline void* filled_array(std::size_t size, std::size_t bytes, const void* value) {
    if (size == 0) return nullptr;
    if (size > static_cast<std::size_t>(-1) / bytes) throw std::bad_array_new_length();
    auto* const memory = static_cast<unsigned char*>(::operator new[](size* bytes));
    std::memcpy(memory, value, bytes);
    for (std::size_t filled = bytes; filled < size * bytes;) {
        const std::size_t more = filled < size * bytes - filled ? filled : size * bytes - filled;
        std::memcpy(memory + filled, memory, more);
        filled += more;
    }
    return memory;
}

}  // namespace impl

template <class T>
class FixedArray {
    /// Whether one function that does not know T can make the elements.
    static constexpr bool plain = std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T> &&
                                  alignof(T) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__;

public:
    /// No elements.
    constexpr FixedArray() = default;
    /// `size` elements, each value-initialised: numbers are 0.
    constexpr explicit FixedArray(std::size_t size) : elements_(make(size)), size_(size) {}
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
    constexpr ~FixedArray() { destroy(elements_); }

    /// Drops the elements from `size` on. For an array that was made with its largest possible size.
    constexpr void keep_first(std::size_t size) { size_ = size; }

    [[nodiscard]] constexpr std::size_t size() const { return size_; }
    [[nodiscard]] constexpr bool empty() const { return size_ == 0; }
    [[nodiscard]] constexpr T* data() { return elements_; }
    [[nodiscard]] constexpr const T* data() const { return elements_; }
    [[nodiscard]] constexpr T* begin() { return elements_; }
    [[nodiscard]] constexpr const T* begin() const { return elements_; }
    [[nodiscard]] constexpr T* end() { return elements_ + size_; }
    [[nodiscard]] constexpr const T* end() const { return elements_ + size_; }
    /// The elements as a span, at less cost to the compiler than the implicit conversion (core/span_of.hpp).
    [[nodiscard]] std::span<T> span() { return impl::span_of(elements_, size_); }
    [[nodiscard]] std::span<const T> span() const { return impl::span_of<const T>(elements_, size_); }
    [[nodiscard]] constexpr T& operator[](std::size_t i) { return elements_[i]; }
    [[nodiscard]] constexpr const T& operator[](std::size_t i) const { return elements_[i]; }

private:
    [[nodiscard]] static constexpr T* make(std::size_t size) {
        if constexpr (plain) {
            const T value{};
            if (!std::is_constant_evaluated())
                return static_cast<T*>(impl::filled_array(size, sizeof(T), &value));  // NOLINT: T may be a pointer
        }
        return make_each(size);
    }
    static constexpr void destroy(T* elements) {
        if constexpr (plain) {
            if (!std::is_constant_evaluated()) return ::operator delete[](elements);
        }
        destroy_each(elements);
    }
    [[nodiscard, gnu::cold, gnu::noinline]] static constexpr T* make_each(std::size_t size) {
        return size == 0 ? nullptr : new T[size]();
    }
    [[gnu::cold, gnu::noinline]] static constexpr void destroy_each(T* elements) { delete[] elements; }

    T* elements_ = nullptr;
    std::size_t size_ = 0;
};

}}  // namespace cupola::CUPOLA_ABI
