// SPDX-License-Identifier: Apache-2.0
//
// The names of the parts of a network that are numbered: "down1.conv2", "features.10.conv.0.0".
#pragma once

#include <cstddef>

#include <cupola/core/abi.hpp>
#include <cupola/core/fixed_string.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// `number`, below 100, between `prefix` and `suffix`. A function of literals: nvcc matches no partial specialisation
/// on a FixedString, and writes no name that an alias passes on.
template <std::size_t number, std::size_t n, std::size_t m>
    requires(number < 100)
[[nodiscard]] consteval auto numbered_name(const char (&prefix)[n], const char (&suffix)[m]) {
    FixedString<n + (number < 10 ? 0 : 1) + m> name;
    std::size_t size = 0;
    for (std::size_t i = 0; i + 1 < n; ++i) name.characters[size++] = prefix[i];
    if (number >= 10) name.characters[size++] = static_cast<char>('0' + number / 10);
    name.characters[size++] = static_cast<char>('0' + number % 10);
    for (std::size_t i = 0; i + 1 < m; ++i) name.characters[size++] = suffix[i];
    return name;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
