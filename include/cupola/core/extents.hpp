// SPDX-License-Identifier: Apache-2.0
//
// Extents of a sample: as a type, `Extents<24, 24, 3>`, and as a value, `Shape{24, 24, 3}`.
//
// Users see the type and compare it in a `static_assert`. Constant evaluation computes with the value: a walk over 400
// layers then costs the compiler 400 function calls and not 400 instantiations. A sample is at most height x width x
// channels, channels last; the batch is not part of it.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include <cupola/core/checked_product.hpp>
#include <cupola/core/error.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

inline constexpr std::size_t max_rank = 4;

/// The extents of a sample, or of a parameter, as a value.
struct Shape {
    std::array<std::int64_t, max_rank> extents{};
    std::size_t rank = 0;

    constexpr Shape() = default;
    template <std::integral... Ints>
        requires(sizeof...(Ints) > 0 && sizeof...(Ints) <= max_rank)
    constexpr Shape(Ints... values)  // NOLINT: Shape{24, 24, 3}
        : extents{static_cast<std::int64_t>(values)...}, rank(sizeof...(Ints)) {}

    [[nodiscard]] constexpr std::int64_t operator[](std::size_t i) const { return extents[i]; }
    /// The product of the extents; 1 for rank 0. The largest std::int64_t where it does not fit.
    [[nodiscard]] constexpr std::int64_t size() const {
        std::int64_t product = 1;
        for (std::size_t i = 0; i < rank; ++i) product = saturating_product(product, extents[i]);
        return product;
    }
    /// Whether the rank is not 0 and every extent is at least 1.
    [[nodiscard]] constexpr bool has_elements() const {
        for (std::size_t i = 0; i < rank; ++i) {
            if (extents[i] < 1) return false;
        }
        return rank > 0;
    }
    /// Whether `size()` of positive extents is at most `most`. The product of extents that a file states may not fit in
    /// 64 bits.
    [[nodiscard]] constexpr bool is_at_most(std::int64_t most) const { return size() <= most; }
    [[nodiscard]] constexpr std::int64_t height() const { return extents[0]; }
    [[nodiscard]] constexpr std::int64_t width() const { return extents[1]; }
    [[nodiscard]] constexpr std::int64_t channels() const { return extents[rank - 1]; }

    bool operator==(const Shape&) const = default;
};

/// "24 x 24 x 3".
[[nodiscard, gnu::cold]] std::string to_string(const Shape& shape);

inline std::string to_string(const Shape& shape) {
    std::string result;
    for (std::size_t i = 0; i < shape.rank; ++i) {
        result += text(i == 0 ? "" : " x ", shape[i]);
    }
    return result;
}

/// The extents of a sample as a type.
template <std::int64_t... Values>
struct Extents {
    static_assert(sizeof...(Values) <= max_rank, "a sample can have at most 4 extents");
    static constexpr Shape shape{Values...};
    static constexpr std::size_t rank = sizeof...(Values);
    [[nodiscard]] static constexpr std::int64_t size() { return shape.size(); }
    constexpr operator Shape() const { return shape; }  // NOLINT: extents are a shape
};

template <>
struct Extents<> {
    static constexpr Shape shape{};
    static constexpr std::size_t rank = 0;
    [[nodiscard]] static constexpr std::int64_t size() { return 1; }
    constexpr operator Shape() const { return shape; }  // NOLINT
};

template <std::int64_t... A, std::int64_t... B>
[[nodiscard]] constexpr bool operator==(Extents<A...>, Extents<B...>) {
    return Shape(A...) == Shape(B...);
}

namespace impl {

template <Shape shape, std::size_t... i>
Extents<shape.extents[i]...> extents_of(std::index_sequence<i...>);

}  // namespace impl

/// The type for a shape known at compile time.
template <Shape shape>
using ExtentsOf = decltype(impl::extents_of<shape>(std::make_index_sequence<shape.rank>{}));

}}  // namespace cupola::CUPOLA_ABI
