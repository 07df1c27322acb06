// SPDX-License-Identifier: Apache-2.0
//
// Whether a number is finite or NaN, also in files that are compiled with -ffast-math or -ffinite-math-only. There,
// std::isfinite and std::isnan may be constants, a comparison may be replaced by the negation of the opposite one,
// which differs for a NaN, and a NaN that is known at compile time may become any number. These functions test the bits
// (IEEE 754-2019, section 3.4).
//
// So a check of a number that comes from outside begins with is_finite: `is_finite(x) && x >= 0`, not `!(x < 0)` or
// `x >= 0` alone. tests/structure/forbidden_calls.sh rejects the functions and comparisons that such flags change.
#pragma once

#include <cstdint>

#include <cupola/core/abi.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The same bits: an empty assembly statement hides their origin from the compiler. clang would otherwise recognise
/// tests of the bits of a floating-point number, and decide them from the flag.
template <class Bits>
[[nodiscard]] CUPOLA_HOST_DEVICE constexpr Bits of_unknown_origin(Bits bits) {
#ifndef __CUDA_ARCH__  // no such flags there
    if (!__builtin_is_constant_evaluated()) asm("" : "+r"(bits));
#endif
    return bits;
}

/// The bits of a number without its sign. Numbers are taken by reference: clang may assume that one passed by value is
/// finite.
[[nodiscard]] CUPOLA_HOST_DEVICE constexpr std::uint32_t magnitude_bits(const float& value) {
    return of_unknown_origin(__builtin_bit_cast(std::uint32_t, value)) & 0x7FFF'FFFFU;
}
[[nodiscard]] CUPOLA_HOST_DEVICE constexpr std::uint64_t magnitude_bits(const double& value) {
    return of_unknown_origin(__builtin_bit_cast(std::uint64_t, value)) & 0x7FFF'FFFF'FFFF'FFFFU;
}

/// Whether `value` is neither infinite nor NaN.
[[nodiscard]] CUPOLA_HOST_DEVICE constexpr bool is_finite(const float& value) {
    return magnitude_bits(value) < 0x7F80'0000U;
}
[[nodiscard]] CUPOLA_HOST_DEVICE constexpr bool is_finite(const double& value) {
    return magnitude_bits(value) < 0x7FF0'0000'0000'0000U;
}

/// Whether `value` is NaN.
[[nodiscard]] CUPOLA_HOST_DEVICE constexpr bool is_nan(const float& value) {
    return magnitude_bits(value) > 0x7F80'0000U;
}
[[nodiscard]] CUPOLA_HOST_DEVICE constexpr bool is_nan(const double& value) {
    return magnitude_bits(value) > 0x7FF0'0000'0000'0000U;
}

/// is_finite() for loops that are to be vectorised, which an assembly statement prevents. Only for values in memory,
/// about which the compiler knows nothing.
[[nodiscard]] CUPOLA_HOST_DEVICE constexpr bool is_finite_in_memory(const float& value) {
    return (__builtin_bit_cast(std::uint32_t, value) & 0x7F80'0000U) != 0x7F80'0000U;
}

/// A NaN that the compiler does not recognise as one.
template <class T>
[[nodiscard]] CUPOLA_HOST_DEVICE constexpr T not_a_number() {
    if constexpr (sizeof(T) == sizeof(std::uint32_t)) {
        return __builtin_bit_cast(T, of_unknown_origin(std::uint32_t{0x7FC0'0000U}));
    } else {
        return __builtin_bit_cast(T, of_unknown_origin(std::uint64_t{0x7FF8'0000'0000'0000U}));
    }
}

}}}  // namespace cupola::CUPOLA_ABI::impl
