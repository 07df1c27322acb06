// SPDX-License-Identifier: Apache-2.0
//
// Names for a message: all of a few, and the first of many: "conv1.weight, conv1.bias and 159 more".
#pragma once

#include <cstddef>
#include <functional>
#include <ranges>
#include <string>
#include <string_view>

#include <cupola/core/error.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// The elements of a range, each as `name_of` has it; after the first `most` only how many more there are.
template <std::ranges::input_range Range, class NameOf = std::identity>
[[nodiscard, gnu::cold]] std::string listed(const Range& range, const NameOf& name_of = {},
                                            std::string_view separator = ", ", std::size_t most = 8) {
    std::string result;
    std::size_t count = 0;
    for (const auto& each : range) {
        if (count++ < most) result += text(count == 1 ? "" : separator, name_of(each));
    }
    return count <= most ? result : text(result, " and ", count - most, " more");
}

}}  // namespace cupola::CUPOLA_ABI
