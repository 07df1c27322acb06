// SPDX-License-Identifier: Apache-2.0
//
// Messages of the compiler: a text built in constant evaluation becomes a template argument, and the compiler prints it
// when the assertion on it fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include <cupola/core/extents.hpp>
#include <cupola/core/fixed_string.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// Whether a name contains a space or a control character.
[[nodiscard]] constexpr bool has_space(std::string_view name) {
    for (const char c : name) {
        if (static_cast<unsigned char>(c) <= ' ') return true;
    }
    return false;
}

/// Text of bounded length that can be written in constant evaluation.
struct CompileTimeMessage {
    static constexpr std::size_t capacity = 400;
    char characters[capacity]{};
    std::size_t size = 0;

    constexpr CompileTimeMessage& operator<<(std::string_view part) {
        for (const char c : part) {
            if (size < capacity) characters[size++] = c;
        }
        return *this;
    }
    constexpr CompileTimeMessage& operator<<(std::int64_t number) {
        if (number < 0) return *this << "-" << -number;
        char digits[20]{};
        std::size_t count = 0;
        do {
            digits[count++] = static_cast<char>('0' + number % 10);
            number /= 10;
        } while (number != 0);
        while (count > 0) *this << std::string_view(&digits[--count], 1);
        return *this;
    }
    constexpr CompileTimeMessage& operator<<(const Shape& shape) {
        for (std::size_t i = 0; i < shape.rank; ++i) *this << (i == 0 ? "" : " x ") << shape[i];
        return *this;
    }
    [[nodiscard]] constexpr bool empty() const { return size == 0; }
};

namespace impl {

/// Characters [begin, begin + N - 1) of a message.
template <std::size_t N>
[[nodiscard]] consteval FixedString<N> slice(const CompileTimeMessage& message, std::size_t begin) {
    FixedString<N> result;
    for (std::size_t i = 0; i + 1 < N; ++i) result.characters[i] = message.characters[begin + i];
    result.characters[N - 1] = '\0';  // clang prints a string only where its end was written
    return result;
}

#if defined(__clang__)
inline constexpr std::size_t slice_length = 30;  // clang cuts a longer string short when it prints it
#else
inline constexpr std::size_t slice_length = CompileTimeMessage::capacity;
#endif

/// Does not compile; its arguments are what the compiler prints.
template <FixedString... message>
consteval void cupola_error() {
    static_assert(sizeof...(message) == 0, "Cupola cannot build this: the message in quotes says why");
}

}  // namespace impl

/// A compiler error with the message, unless it is empty. Returns true in any case, so that a static_assert of it adds
/// no second error.
template <CompileTimeMessage message>
[[nodiscard]] consteval bool static_assert_message() {
    if constexpr (!message.empty()) {
        constexpr std::size_t slices = (message.size + impl::slice_length - 1) / impl::slice_length;
        []<std::size_t... i>(std::index_sequence<i...>) {
            impl::cupola_error<
                impl::slice<(i + 1 < slices ? impl::slice_length : message.size - i * impl::slice_length) + 1>(
                    message, i * impl::slice_length)...>();
        }(std::make_index_sequence<slices>{});
    }
    return true;
}

}}  // namespace cupola::CUPOLA_ABI
