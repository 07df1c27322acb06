// SPDX-License-Identifier: Apache-2.0
//
// Sorting a list once, and names for a message: all of a few, and the first of many: "conv1.weight and 159 more".
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include <cupola/core/error.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// The elements of a range, each as `name_of` has it; after the first `most` only how many more there are.
template <class Range, class NameOf = std::identity>
[[nodiscard, gnu::cold]] std::string listed(const Range& range, const NameOf& name_of = {},
                                            std::string_view separator = ", ", std::size_t most = 8) {
    std::string result;
    std::size_t count = 0;
    for (const auto& each : range) {
        if (count++ < most) result += text(count == 1 ? "" : separator, name_of(each));
    }
    return count <= most ? result : text(result, " and ", count - most, " more");
}

/// Sorts what is sorted once, as the tensors of a file: std::sort takes three times as much code.
template <class Range, class Less = std::ranges::less, class Key = std::identity>
void heap_sort(Range& range, Less less = {}, Key key = {}) {
    std::ranges::make_heap(range, less, key);
    std::ranges::sort_heap(range, less, key);
}

}}  // namespace cupola::CUPOLA_ABI
