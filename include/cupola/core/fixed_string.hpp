// SPDX-License-Identifier: Apache-2.0
//
// A string and a number that can be template arguments: `Named<"conv1", ...>`, `WeightDecay<0.004, "local3">`.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>

#include <cupola/core/abi.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// `N` counts the terminating zero, as it does in a string literal.
template <std::size_t N>
struct FixedString {
    char characters[N]{};

    constexpr FixedString() = default;
    consteval FixedString(const char (&literal)[N]) {  // NOLINT: a literal converts
        for (std::size_t i = 0; i < N; ++i) {
            characters[i] = literal[i];
        }
    }
    [[nodiscard]] constexpr std::string_view view() const { return {characters, N - 1}; }
    constexpr operator std::string_view() const { return view(); }  // NOLINT: a fixed string is a string
    bool operator==(const FixedString&) const = default;
};

/// A floating-point template argument. Kept as its bits, which every C++20 compiler accepts (clang before 18 does not
/// accept a `double`).
struct Number {
    std::uint64_t bits = 0;

    constexpr Number() = default;
    constexpr Number(double value) : bits(std::bit_cast<std::uint64_t>(value)) {}  // NOLINT: a number converts
    constexpr Number(int value) : Number(static_cast<double>(value)) {}            // NOLINT: `Dropout<0>`
#ifdef __CUDACC__
    // nvcc writes such an argument into the host's code as {4607182418800017408}: its bits.
    template <class Bits>
        requires(std::integral<Bits> && sizeof(Bits) == sizeof(std::uint64_t))
    constexpr Number(Bits value) : bits(static_cast<std::uint64_t>(value)) {}  // NOLINT
#endif
    constexpr operator double() const { return std::bit_cast<double>(bits); }  // NOLINT
    /// Whether it is finite, as a float too; also with -ffast-math (core/finite.hpp).
    [[nodiscard]] constexpr bool is_finite_float() const {
        constexpr double largest = static_cast<double>(std::numeric_limits<float>::max());
        return (bits & 0x7FFF'FFFF'FFFF'FFFFU) <= std::bit_cast<std::uint64_t>(largest);
    }
    bool operator==(const Number&) const = default;
};

}}  // namespace cupola::CUPOLA_ABI
