// SPDX-License-Identifier: Apache-2.0
//
// The partition of the sum over the rows of a rows x channels matrix for a GPU: the part of the convolution kernels
// that can also run on the host.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cupola/ops/impl/kernel_parts/pack.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Threads of a block that sums rows.
inline constexpr int row_sum_threads = 256;

/// The rows in slabs of equal size, the last ones shorter or empty. A block processes up to 32 packs of n channels of
/// one slab.
struct RowSlabs {
    /// More than two blocks per multiprocessor of a large GPU.
    static constexpr std::int64_t max_slabs = 512;
    static constexpr std::int64_t fewest_rows = 32;

    std::int64_t rows, channels, slabs, rows_per_slab;

    RowSlabs(std::int64_t of_rows, std::int64_t of_channels) : rows(of_rows), channels(of_channels) {
        const std::int64_t wanted = (rows + fewest_rows - 1) / fewest_rows;
        slabs = wanted < 1 ? 1 : wanted > max_slabs ? max_slabs : wanted;
        rows_per_slab = (rows + slabs - 1) / slabs;
    }

    [[nodiscard]] CUPOLA_HOST_DEVICE std::int64_t begin(std::int64_t slab) const { return slab * rows_per_slab; }
    [[nodiscard]] CUPOLA_HOST_DEVICE std::int64_t end(std::int64_t slab) const {
        const std::int64_t end = (slab + 1) * rows_per_slab;
        return end < rows ? end : rows;
    }
    /// Threads per row, each with n channels: a power of two, so that the number of lanes is one too.
    [[nodiscard]] CUPOLA_HOST_DEVICE int columns(int n) const {
        int result = 1;
        while (result < 32 && static_cast<std::int64_t>(result) * n < channels) result *= 2;
        return result;
    }
    /// Blocks per row.
    [[nodiscard]] CUPOLA_HOST_DEVICE std::int64_t column_blocks(int n) const {
        const std::int64_t width = static_cast<std::int64_t>(columns(n)) * n;
        return (channels + width - 1) / width;
    }
    [[nodiscard]] std::size_t partial_bytes() const {
        return static_cast<std::size_t>(slabs * channels) * sizeof(float);
    }
};

}}}  // namespace cupola::CUPOLA_ABI::impl
