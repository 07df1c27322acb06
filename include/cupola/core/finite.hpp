// SPDX-License-Identifier: Apache-2.0
//
// Whether a number is finite or NaN, also in files that are compiled with -ffast-math or -ffinite-math-only, where
// std::isfinite and std::isnan may be constants. The bits of the number decide (IEEE 754-2019, section 3.4).
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include <cupola/core/abi.hpp>

namespace cupola::inline CUPOLA_ABI::impl {

/// The bits of `value` without its sign. The empty assembly hides from the compiler that they are those of a
/// floating-point number: clang would otherwise recognise the comparisons below, and decide them from the flag.
[[nodiscard]] constexpr std::uint32_t magnitude_bits(const float& value) {
    auto bits = std::bit_cast<std::uint32_t>(value);
    if (!std::is_constant_evaluated()) asm("" : "+r"(bits));
    return bits & 0x7FFF'FFFFU;
}
[[nodiscard]] constexpr std::uint64_t magnitude_bits(const double& value) {
    auto bits = std::bit_cast<std::uint64_t>(value);
    if (!std::is_constant_evaluated()) asm("" : "+r"(bits));
    return bits & 0x7FFF'FFFF'FFFF'FFFFU;
}

/// Whether `value` is neither infinite nor NaN.
[[nodiscard]] constexpr bool is_finite(const float& value) { return magnitude_bits(value) < 0x7F80'0000U; }
[[nodiscard]] constexpr bool is_finite(const double& value) { return magnitude_bits(value) < 0x7FF0'0000'0000'0000U; }

/// Whether `value` is NaN.
[[nodiscard]] constexpr bool is_nan(const float& value) { return magnitude_bits(value) > 0x7F80'0000U; }
[[nodiscard]] constexpr bool is_nan(const double& value) { return magnitude_bits(value) > 0x7FF0'0000'0000'0000U; }

}  // namespace cupola::inline CUPOLA_ABI::impl
