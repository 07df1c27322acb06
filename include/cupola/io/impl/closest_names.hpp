// SPDX-License-Identifier: Apache-2.0
//
// The names of a file that are the closest to one that it does not have, for an error.
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/listed.hpp>
#include <cupola/io/impl/json_string.hpp>
#include <cupola/io/impl/safetensors_header.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The least number of characters that are inserted, deleted or replaced to make one text of the other (Levenshtein).
[[nodiscard]] inline std::size_t edit_distance(std::string_view a, std::string_view b) {
    // The distances of the characters of `a` so far to each beginning of `b`.
    std::vector<std::size_t> distances(b.size() + 1);
    std::iota(distances.begin(), distances.end(), std::size_t{0});
    for (const char c : a) {
        std::size_t before = distances[0]++;
        for (std::size_t j = 0; j < b.size(); ++j) {
            const std::size_t replaced = before + (c == b[j] ? 0 : 1);
            before = distances[j + 1];
            distances[j + 1] = std::min({replaced, before + 1, distances[j] + 1});
        }
    }
    return distances.back();
}

/// "; the closest in it: conv1.weight, conv2.weight, conv1.bias", or ": it has no tensors".
[[nodiscard, gnu::cold]] inline std::string closest_names(std::string_view name, std::span<const SafeTensor> tensors) {
    if (tensors.empty()) return ": it has no tensors";
    constexpr std::size_t most = 3, compared_characters = 200;
    std::vector<std::pair<std::size_t, std::string_view>> names;
    for (const SafeTensor& tensor : tensors) {
        names.emplace_back(
            edit_distance(name.substr(0, compared_characters), tensor.name.substr(0, compared_characters)),
            tensor.name);
    }
    const std::size_t count = std::min(most, names.size());
    std::ranges::partial_sort(names, names.begin() + static_cast<std::ptrdiff_t>(count));
    return text("; the closest in it: ",
                listed(std::span(names).first(count), [](const auto& each) { return shown(each.second); }));
}

}}}  // namespace cupola::CUPOLA_ABI::impl
