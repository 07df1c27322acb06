// SPDX-License-Identifier: Apache-2.0
//
// The layout of a batch in one piece of memory: the columns in their order, each aligned as tensors are.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cupola/core/checked_product.hpp>
#include <cupola/device/device.hpp>
#include <cupola/tensor/batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// The bytes of a batch of `size` samples. Throws OutOfMemory if they are more than any computer has.
[[nodiscard]] std::size_t batch_bytes(const Columns& columns, std::int64_t size);

/// A batch of at most `size` samples in `memory`, which has batch_bytes(columns, size). `columns` must outlive the
/// result.
[[nodiscard]] BatchSpan batch_in(std::byte* memory, const Columns& columns, std::int64_t size);

inline std::size_t batch_bytes(const Columns& columns, std::int64_t size) {
    std::size_t bytes = 0;
    for (const ColumnSpec& each : columns)
        bytes += aligned(checked_bytes(text("the column ", each.name, " of a batch of ", size, " samples needs"),
                                       {size, each.shape.size(), static_cast<std::int64_t>(size_of(each.type))}));
    return bytes;
}

inline BatchSpan batch_in(std::byte* memory, const Columns& columns, std::int64_t size) {
    BatchSpan batch(columns);
    for (std::size_t i = 0; i < columns.size(); ++i) {
        batch.set_data(i, memory);
        memory += aligned(static_cast<std::size_t>(size) * columns[i].bytes());
    }
    return batch;
}

}}  // namespace cupola::CUPOLA_ABI
