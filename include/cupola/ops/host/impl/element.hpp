// SPDX-License-Identifier: Apache-2.0
//
// The element types of the operations of `Host`, and how a loop reads and writes them: it computes in float and rounds
// when it stores. g++ vectorises a store to a number but not a copy of a class, so a BFloat16 is written through its
// bits.
#pragma once

#include <concepts>
#include <type_traits>

#include <cupola/core/element_type.hpp>
#include <cupola/ops/operation.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

template <class T>
concept HostElement = std::same_as<T, float> || std::same_as<T, BFloat16>;

[[gnu::always_inline]] inline void put(float& to, float value) { to = value; }
[[gnu::always_inline]] inline void put(BFloat16& to, float value) { to.bits = BFloat16(value).bits; }
[[gnu::always_inline]] inline void put(BFloat16& to, BFloat16 value) { to.bits = value.bits; }

/// An element as a `Value`: unchanged, or converted to float.
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

}}}  // namespace cupola::CUPOLA_ABI::impl
