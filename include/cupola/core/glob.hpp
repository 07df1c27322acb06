// SPDX-License-Identifier: Apache-2.0
//
// Patterns of names: `*` matches any number of characters, including none, and `?` matches one; everything else matches
// itself. A dot has no special meaning, so "conv1.*" matches "conv1.weight" and "*.bias" matches "layer1.0.conv1.bias".
#pragma once

#include <cstddef>
#include <string_view>

#include <cupola/core/abi.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// Whether all of `name` matches `pattern`. Takes at most pattern.size() * name.size() steps.
[[nodiscard]] constexpr bool glob_matches(std::string_view pattern, std::string_view name) {
    constexpr std::size_t none = static_cast<std::size_t>(-1);
    std::size_t p = 0, n = 0;
    // The last star, and the place in the name up to which it matches.
    std::size_t star = none, matched = 0;
    while (n < name.size()) {
        if (p < pattern.size() && pattern[p] == '*') {
            star = p++;
            matched = n;
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
    while (p < pattern.size() && pattern[p] == '*') ++p;
    return p == pattern.size();
}

}}  // namespace cupola::CUPOLA_ABI
