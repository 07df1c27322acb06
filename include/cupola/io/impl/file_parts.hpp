// SPDX-License-Identifier: Apache-2.0
//
// The tensors of a file that are a network's by a table of names (net/name_table.hpp), each a parameter or some rows of
// it, and the place of each of their elements.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <cupola/core/checked_product.hpp>
#include <cupola/core/error.hpp>
#include <cupola/core/extents.hpp>
#include <cupola/core/glob.hpp>
#include <cupola/core/listed.hpp>
#include <cupola/io/impl/checkpoint_layout.hpp>
#include <cupola/net/name_table.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// A tensor of a file.
struct FilePart {
    std::string name;
    const StoredTensor* tensor = nullptr;
    bool buffer = false;
    /// Null where the name is that of the network because no entry matches it.
    const NameEntry* entry = nullptr;
    /// In the file.
    std::vector<std::int64_t> extents{};
    /// Its first element among those of `tensor` in the layout of checkpoints, and the steps along its axes there.
    std::int64_t first = 0;
    std::vector<std::int64_t> strides{};
    /// Whether its elements lie there in its own order.
    bool in_order = true;

    [[nodiscard]] std::int64_t size() const {
        std::int64_t product = 1;
        for (const std::int64_t extent : extents) product *= extent;
        return product;
    }
};

/// "4096 x 512 x 7 x 7".
[[nodiscard, gnu::cold]] inline std::string extents_text(std::span<const std::int64_t> extents) {
    std::string result;
    for (const std::int64_t extent : extents) result += text(result.empty() ? "" : " x ", extent);
    return result.empty() ? "a single number" : result;
}

/// The text that the stars of one pattern match, in the places of those of another.
[[nodiscard]] inline std::string with_stars(std::string_view pattern, std::span<const std::string_view> stars) {
    std::string result;
    std::size_t next = 0;
    for (const char c : pattern) {
        if (c == '*') {
            result += stars[next++];
        } else {
            result += c;
        }
    }
    return result;
}

/// The rows of each part of a stack.
[[nodiscard]] inline std::vector<std::int64_t> rows_of_parts(const NameEntry& entry, const StoredTensor& tensor) {
    const auto count = static_cast<std::int64_t>(entry.file.size());
    const std::int64_t all = tensor.shape[0];
    if (!entry.rows.empty()) {
        std::string sum;
        std::int64_t total = 0;
        for (const std::int64_t rows : entry.rows) {
            total += rows;
            sum += text(sum.empty() ? "" : " + ", rows);
        }
        require(total == all, "the entry ", to_string(entry), " of the table of names has ", sum, " rows, and ",
                tensor.name, " has ", all);
        return entry.rows;
    }
    require(all % count == 0, "the entry ", to_string(entry), " of the table of names divides the ", all, " rows of ",
            tensor.name, " into ", count, " parts: .rows is to state them");
    return std::vector<std::int64_t>(entry.file.size(), all / count);
}

/// The extents that the entry states for a part of these: with 0 and -1 replaced.
[[nodiscard]] inline std::vector<std::int64_t> stated_extents(const NameEntry& entry, const StoredTensor& tensor,
                                                              std::span<const std::int64_t> part, std::int64_t size) {
    std::vector<std::int64_t> extents = entry.extents;
    std::int64_t product = 1;
    bool fits = true;
    for (std::size_t i = 0; i < extents.size(); ++i) {
        if (extents[i] == 0) {
            fits = fits && i < part.size();
            extents[i] = i < part.size() ? part[i] : 1;
        }
        if (extents[i] > 0) product = saturating_product(product, extents[i]);
    }
    const auto remaining = std::ranges::find(extents, -1);
    if (remaining != extents.end()) {
        *remaining = size / product;
        product = saturating_product(product, *remaining);
    }
    if (fits && product == size) return extents;
    std::string stated;
    for (const std::int64_t extent : entry.extents) stated += text(stated.empty() ? "" : ", ", extent);
    throw InvalidArgument(text("the entry ", to_string(entry), " of the table of names has the extents {", stated,
                               "}, which do not fit those of ", tensor.name, ", ", extents_text(part)));
}

/// A part with its place in `tensor`, of these extents without the entry.
[[gnu::cold]] inline void place_part(FilePart& part, const std::vector<std::int64_t>& own) {
    part.extents = own;
    const std::int64_t size = part.size();
    std::vector<std::size_t> axes;
    if (part.entry != nullptr) {
        if (!part.entry->extents.empty()) part.extents = stated_extents(*part.entry, *part.tensor, own, size);
        axes = part.entry->axes;
        require(axes.empty() || axes.size() == part.extents.size(), "the entry ", to_string(*part.entry),
                " of the table of names has an order of ", axes.size(), " axes, and ", part.tensor->name, " has ",
                part.extents.size(), ": ", extents_text(part.extents));
    }
    part.strides.assign(part.extents.size(), 1);
    for (std::size_t i = part.extents.size(); i-- > 1;) part.strides[i - 1] = part.strides[i] * part.extents[i];
    const auto extents = part.extents, strides = part.strides;
    for (std::size_t i = 0; i < axes.size(); ++i) {
        part.extents[axes[i]] = extents[i];
        part.strides[axes[i]] = strides[i];
    }
    part.in_order = std::ranges::is_sorted(axes);
}

/// The parts of one tensor, by its entry or under its own name where that is null.
inline void add_parts(std::vector<FilePart>& parts, const StoredTensor& tensor, bool buffer, const NameEntry* entry,
                      std::span<const std::string_view> stars) {
    std::vector<std::int64_t> own(tensor.shape.extents.begin(), tensor.shape.extents.begin() + tensor.shape.rank);
    if (entry == nullptr || entry->file.size() == 1) {
        parts.push_back(
            {entry == nullptr ? tensor.name : with_stars(entry->file.front(), stars), &tensor, buffer, entry});
        return place_part(parts.back(), own);
    }
    const std::int64_t row = static_cast<std::int64_t>(tensor.size()) / own[0];
    const std::vector<std::int64_t> rows = rows_of_parts(*entry, tensor);
    std::int64_t first = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        parts.push_back({with_stars(entry->file[i], stars), &tensor, buffer, entry});
        own[0] = rows[i];
        place_part(parts.back(), own);
        parts.back().first = first;
        first += rows[i] * row;
    }
}

/// Parameters, then running statistics, in the order of the network; the parts of one are adjacent. They refer to both
/// arguments. Throws InvalidArgument for a table that has no meaning, or none for this network.
[[nodiscard, gnu::cold]] inline std::vector<FilePart> file_parts(const StoredTensors& tensors, const NameTable& table) {
    require_valid_names(table);
    std::vector<FilePart> parts;
    bool any = false;
    for (const auto* const list : {&tensors.parameters, &tensors.buffers}) {
        for (const StoredTensor& tensor : *list) {
            std::vector<std::string_view> stars;
            const auto found = std::ranges::find_if(table.entries, [&](const NameEntry& entry) {
                stars.resize(static_cast<std::size_t>(stars_in(entry.here)));
                return !entry.here.empty() && glob_matches(entry.here, tensor.name, stars);
            });
            const NameEntry* const entry = found == table.entries.end() ? nullptr : &*found;
            any = any || entry != nullptr;
            add_parts(parts, tensor, list == &tensors.buffers, entry, stars);
        }
    }
    const auto first = std::ranges::find_if(table.entries, [](const NameEntry& entry) { return !entry.here.empty(); });
    if (any || first == table.entries.end()) return parts;
    throw InvalidArgument(text("no entry of the table of names, from ", to_string(*first), " on, gives one of ",
                               listed(parts, [](const FilePart& part) { return part.name; })));
}

[[nodiscard]] inline bool matches_any(std::span<const std::string> patterns, std::string_view name) {
    return std::ranges::any_of(patterns, [&](const std::string& pattern) { return glob_matches(pattern, name); });
}

/// Whether an entry of the table leaves out this tensor of a file whose names begin with `prefix`.
[[nodiscard]] inline bool is_ignored(const NameTable& table, std::string_view name, std::string_view prefix) {
    if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
    return std::ranges::any_of(
        table.entries, [&](const NameEntry& entry) { return entry.here.empty() && matches_any(entry.file, name); });
}

/// The place of one element of a part among those of its tensor in the layout of checkpoints.
[[nodiscard]] inline std::int64_t place_of(const FilePart& part, std::int64_t element) {
    std::int64_t place = part.first;
    for (std::size_t axis = part.extents.size(); axis-- > 0; element /= part.extents[axis])
        place += element % part.extents[axis] * part.strides[axis];
    return place;
}

/// Calls `f(i, place)` with the places of `count` elements of a part from the number `first` on.
template <class F>
void for_each_place(const FilePart& part, std::int64_t first, std::size_t count, const F& f) {
    std::vector<std::int64_t> at(part.extents.size());
    std::int64_t place = place_of(part, first);
    for (std::size_t axis = at.size(); axis-- > 0; first /= part.extents[axis]) at[axis] = first % part.extents[axis];
    for (std::size_t i = 0; i < count; ++i) {
        f(i, place);
        for (std::size_t axis = at.size(); axis-- > 0;) {
            place += part.strides[axis];
            if (++at[axis] < part.extents[axis]) break;
            place -= at[axis] * part.strides[axis];
            at[axis] = 0;
        }
    }
}

/// Writes the elements of a part from the number `first` on into the arena.
inline void part_from_file(const FilePart& part, std::int64_t first, std::span<const float> from, float* arena) {
    if (part.in_order) return from_file(*part.tensor, part.first + first, from, arena);
    float* const to = arena + part.tensor->offset;
    for_each_place(part, first, from.size(),
                   [&](std::size_t i, std::int64_t place) { to[place_in_arena(*part.tensor, place)] = from[i]; });
}

/// The elements of a part in the file: those of `stored`, which has its tensor in the layout of checkpoints, or, in
/// another order, of `own`.
[[nodiscard]] inline std::span<const float> part_to_file(const FilePart& part, std::span<const float> stored,
                                                         std::vector<float>& own) {
    const auto size = static_cast<std::size_t>(part.size());
    if (part.in_order) return stored.subspan(static_cast<std::size_t>(part.first), size);
    own.resize(size);
    for_each_place(part, 0, size,
                   [&](std::size_t i, std::int64_t place) { own[i] = stored[static_cast<std::size_t>(place)]; });
    return own;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
