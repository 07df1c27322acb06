// SPDX-License-Identifier: Apache-2.0
//
// span_of: a std::span over elements that are made at run time, at a hundredth of the cost to the compiler. The
// constructors of std::span require that the iterator is contiguous, for which g++ instantiates about a hundred
// templates per type of elements: 10 ms for a pointer, 30 ms for a std::vector, and a program has dozens of such types.
#pragma once

#include <bit>
#include <cstddef>
#include <span>

#include <cupola/core/abi.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// std::span<T>(first, size), made from a span of bytes, which has the same members but for the pointer's type. Not for
/// constant expressions, in which a pointer cannot become one of another type.
template <class T>
[[nodiscard]] std::span<T> span_of(T* first, std::size_t size) {
    using Bytes = std::span<const std::byte>;
    static_assert(sizeof(std::span<T>) == sizeof(Bytes));
    return std::bit_cast<std::span<T>>(Bytes(static_cast<const std::byte*>(static_cast<const void*>(first)), size));
}

/// The elements of a container that has them side by side.
template <class Container>
[[nodiscard]] auto span_of(Container& container) {
    return span_of(container.data(), container.size());
}

}}}  // namespace cupola::CUPOLA_ABI::impl
