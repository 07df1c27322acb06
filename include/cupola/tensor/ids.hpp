// SPDX-License-Identifier: Apache-2.0
//
// Whether ids in the host's memory are in their range, and which one is not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <cupola/core/error.hpp>
#include <cupola/tensor/batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// The place of the first id that is not in [0, count); -1 if all are.
[[nodiscard]] inline std::int64_t first_bad_id(std::span<const std::int32_t> ids, std::int64_t count) {
    for (std::size_t i = 0; i < ids.size(); ++i) {
        if (ids[i] < 0 || ids[i] >= count) return static_cast<std::int64_t>(i);
    }
    return -1;
}

/// Describes the id at this place of a column: "sample 3 has the id 1000 at [2], and ids are 0 to 999". For another
/// column than "input" it begins with "column word of ".
[[nodiscard, gnu::cold]] inline std::string bad_id_text(const ColumnSpec& column, std::int64_t place, std::int32_t id,
                                                        std::int64_t count) {
    const std::int64_t size = column.shape.size();
    std::string indices;
    std::int64_t rest = place % size;
    for (std::size_t i = column.shape.rank; i-- > 0;) {
        indices = text(rest % column.shape[i], indices.empty() ? "" : ", ", indices);
        rest /= column.shape[i];
    }
    const bool other = column.name != input_column;
    return text(other ? "column " : "", other ? std::string_view(column.name) : "", other ? " of " : "", "sample ",
                place / size, " has the id ", id, " at [", indices, "], and ids are 0 to ", count - 1);
}

}}  // namespace cupola::CUPOLA_ABI
