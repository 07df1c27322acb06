// SPDX-License-Identifier: Apache-2.0
//
// Patterns of names: `*` matches any number of characters, including none, and `?` matches one; everything else matches
// itself. A dot has no special meaning, so "conv1.*" matches "conv1.weight" and "*.bias" matches "layer1.0.conv1.bias".
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include <cupola/core/abi.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// Whether all of `name` matches `pattern`. Takes at most pattern.size() * name.size() steps. If it does, `stars`, in
/// which there may be too few, become the parts of the name that the stars match: each but the last is as short as it
/// can be.
[[nodiscard]] constexpr bool glob_matches(std::string_view pattern, std::string_view name,
                                          std::span<std::string_view> stars = {}) {
    constexpr std::size_t none = static_cast<std::size_t>(-1);
    std::size_t p = 0, n = 0;
    // The last star, and the place in the name up to which it matches.
    std::size_t star = none, matched = 0;
    std::size_t begin = 0, count = 0;
    const auto next_star = [&] {
        if (count > 0 && count <= stars.size()) stars[count - 1] = name.substr(begin, matched - begin);
        ++count;
        star = p++;
        begin = matched = n;
    };
    while (n < name.size()) {
        if (p < pattern.size() && pattern[p] == '*') {
            next_star();
        } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
            ++p;
            ++n;
        } else if (star != none) {
            p = star + 1;
            n = ++matched;
        } else {
            return false;
        }
    }
    while (p < pattern.size() && pattern[p] == '*') next_star();
    if (p < pattern.size()) return false;
    next_star();
    return true;
}

}}  // namespace cupola::CUPOLA_ABI
