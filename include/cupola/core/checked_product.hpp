// SPDX-License-Identifier: Apache-2.0
//
// Products and sums of sizes without wrap-around. In constant evaluation, and for a shape, a result that does not fit
// in 64 bits becomes the largest std::int64_t, which exceeds every limit; a number of bytes at run time throws
// OutOfMemory with the true number.
#pragma once

#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string_view>

#include <cupola/core/error.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// The most elements of a sample, of a parameter, and of all parameters of a network: 4.4 TB of floats.
inline constexpr std::int64_t max_elements = std::int64_t{1} << 40;

/// The product of two non-negative numbers; the largest std::int64_t if it does not fit.
[[nodiscard]] constexpr std::int64_t saturating_product(std::int64_t a, std::int64_t b) {
    constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();
    return a > 0 && b > 0 && b > largest / a ? largest : a * b;
}
template <std::integral... More>
[[nodiscard]] constexpr std::int64_t saturating_product(std::int64_t a, std::int64_t b, std::int64_t c, More... more) {
    return saturating_product(saturating_product(a, b), c, more...);
}

/// The sum of two non-negative numbers; the largest std::int64_t if it does not fit.
[[nodiscard]] constexpr std::int64_t saturating_sum(std::int64_t a, std::int64_t b) {
    constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();
    return b > 0 && a > largest - b ? largest : a + b;
}

namespace impl {

/// Throws OutOfMemory: `what` ("a batch of 3 samples needs") and a number of bytes that may be beyond 64 bits.
[[noreturn, gnu::cold]] void throw_too_many_bytes(std::string_view what, double bytes);

}  // namespace impl

/// The product of non-negative numbers, in bytes. If it exceeds 2^60, more than any computer's memory, throws
/// OutOfMemory with `what`, "a batch of 3 samples needs", and the true product; so a few results can be added without a
/// check.
[[nodiscard]] std::size_t checked_bytes(std::string_view what, std::initializer_list<std::int64_t> factors);

}}  // namespace cupola::CUPOLA_ABI

#ifdef CUPOLA_DECL
#include <cupola/core/checked_product.ipp>
#endif
