// SPDX-License-Identifier: Apache-2.0
//
// The element types that the operations of `Host` are made for, and how a loop reads and writes one: it computes in
// float and rounds where it stores. g++ makes vector instructions of a store to a number and none of a copy of a class,
// so a BFloat16 is written through its bits.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include <cupola/core/element_type.hpp>
#include <cupola/ops/operation.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

template <class T>
concept HostElement = std::same_as<T, float> || std::same_as<T, BFloat16>;

[[gnu::always_inline]] inline void put(float& to, float value) { to = value; }
[[gnu::always_inline]] inline void put(BFloat16& to, float value) { to.bits = BFloat16(value).bits; }
[[gnu::always_inline]] inline void put(BFloat16& to, BFloat16 value) { to.bits = value.bits; }

/// An element as a `Value`: itself, or a float.
template <class Value>
[[nodiscard, gnu::always_inline]] inline std::remove_const_t<Value> get(const float& from) {
    return from;
}
template <class Value>
[[nodiscard, gnu::always_inline]] inline std::remove_const_t<Value> get(const BFloat16& from) {
    BFloat16 value;
    value.bits = from.bits;
    return value;
}

/// to = keep ? value : 0, without a conversion.
[[gnu::always_inline]] inline void put_if(float& to, const float& value, bool keep) {
    const float v = value;  // read whether it is kept or not: a conditional read is no vector instruction everywhere
    to = keep ? v : 0.0F;
}
[[gnu::always_inline]] inline void put_if(BFloat16& to, const BFloat16& value, bool keep) {
    const std::uint16_t bits = value.bits;
    to.bits = keep ? bits : std::uint16_t{0};
}

/// x > 0 and x < 0; false for a NaN. For a BFloat16 comparisons of its bits, so that twice as many fit a register.
[[nodiscard, gnu::always_inline]] inline bool positive(const float& x) { return x > 0.0F; }
[[nodiscard, gnu::always_inline]] inline bool positive(const BFloat16& x) {
    return static_cast<std::uint16_t>(x.bits - 1U) < 0x7F80U;  // 0x0001 to 0x7F80, the infinity
}
[[nodiscard, gnu::always_inline]] inline bool negative(const float& x) { return x < 0.0F; }
[[nodiscard, gnu::always_inline]] inline bool negative(const BFloat16& x) {
    return static_cast<std::uint16_t>(x.bits - 0x8001U) < 0x7F80U;
}

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
