// SPDX-License-Identifier: Apache-2.0
//
// The matrix products between Winograd's transforms: blocks of rows x vectors whose sums stay in registers, over
// operands that are already in the caches. The call overhead of a library's product exceeds the time of these products:
// 64 x 64 x 16 takes 0.6 us.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <cupola/ops/host/impl/lanes.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Rows and vectors of a block: enough sums to hide the latency of two multiply-adds per cycle, within the registers.
/// Measured with AVX-512 on 64 x 64 x 64: 134 GFLOP/s per thread with 8 x 2; 6 x 4, 9 x 3, 12 x 2 and 14 x 2 reach 88
/// to 118.
inline constexpr std::int64_t product_rows = lane_count == 16 ? 8 : 4, product_vectors = 2;
/// The rows of a matrix are a multiple of this: sums of fewer rows would wait for the latency.
inline constexpr std::int64_t product_row_step = 4;
/// Columns of a block. Matrices have a multiple of 16 columns, so the remainder of a row is one vector or none.
inline constexpr std::int64_t product_columns = product_vectors * lane_count;

/// The layout of the left operand: a[row, k], or a[k, row].
enum class LeftOperand { plain, transposed };

/// Whether the right operand is in no cache near by. It is then fetched 4 KiB ahead, also beyond its end, where the one
/// of the next product is.
enum class RightOperand { near, far };
inline constexpr std::int64_t fetched_ahead = 1024, fetched_floats = 16;

/// c[row, :] = the sum over k of a[row, k] b[k, :], added to the previous value if `add` is set. The sum is added as a
/// whole, so that a long sum split over calls has the error of short sums.
template <LeftOperand Left, RightOperand Right, std::int64_t Rows, std::int64_t Vectors>
inline void product_block(const float* a, std::int64_t a_stride, const float* b, std::int64_t b_stride, float* c,
                          std::int64_t c_stride, std::int64_t depth, bool add) {
    constexpr std::size_t count = static_cast<std::size_t>(Rows * Vectors);
    Lanes sums[count];
    [&]<std::size_t... Sum>(std::index_sequence<Sum...>) __attribute__((always_inline)) {
        constexpr auto row = [](std::size_t sum) { return static_cast<std::int64_t>(sum) / Vectors; };
        constexpr auto column = [](std::size_t sum) { return static_cast<std::int64_t>(sum) % Vectors * lane_count; };
        ((sums[Sum] = Lanes{}), ...);
        for (std::int64_t k = 0; k < depth; ++k) {
            Lanes right[static_cast<std::size_t>(Vectors)];
            for (std::int64_t v = 0; v < Vectors; ++v) right[v] = load_lanes(b + k * b_stride + v * lane_count);
            if constexpr (Right == RightOperand::far) {
                for (std::int64_t at = 0; at < Vectors * lane_count; at += fetched_floats)
                    __builtin_prefetch(b + k * b_stride + at + fetched_ahead, 0, 2);
            }
            if constexpr (Left == LeftOperand::plain) {
                ((sums[Sum] += a[row(Sum) * a_stride + k] * right[Sum % Vectors]), ...);
            } else {
                ((sums[Sum] += a[k * a_stride + row(Sum)] * right[Sum % Vectors]), ...);
            }
        }
        if (add) ((sums[Sum] += load_lanes(c + row(Sum) * c_stride + column(Sum))), ...);
        (store_lanes(c + row(Sum) * c_stride + column(Sum), sums[Sum]), ...);
    }
    (std::make_index_sequence<count>{});
}

/// c[:, block of `columns`] for all `rows`, which must be a multiple of product_row_step. `columns`: product_columns,
/// or fewer vectors.
template <LeftOperand Left, RightOperand Right = RightOperand::near>
inline void product_rows_of(const float* a, std::int64_t a_stride, const float* b, std::int64_t b_stride, float* c,
                            std::int64_t c_stride, std::int64_t rows, std::int64_t columns, std::int64_t depth,
                            bool add) {
    const auto block = [&]<RightOperand From, std::int64_t Rows>(std::int64_t row) {
        const float* const left = a + (Left == LeftOperand::plain ? row * a_stride : row);
        if (columns == product_columns) {
            product_block<Left, From, Rows, product_vectors>(left, a_stride, b, b_stride, c + row * c_stride, c_stride,
                                                             depth, add);
        } else {
            for (std::int64_t column = 0; column < columns; column += lane_count) {
                product_block<Left, From, Rows, 1>(left, a_stride, b + column, b_stride, c + row * c_stride + column,
                                                   c_stride, depth, add);
            }
        }
    };
    std::int64_t row = 0;
    if constexpr (Right == RightOperand::far) {
        // After the first rows it is near.
        if (rows >= product_rows) {
            block.template operator()<Right, product_rows>(0);
            row = product_rows;
        } else {
            block.template operator()<Right, product_row_step>(0);
            row = product_row_step;
        }
    }
    for (; row + product_rows <= rows; row += product_rows)
        block.template operator()<RightOperand::near, product_rows>(row);
    if constexpr (product_rows > product_row_step) {
        if (row < rows) block.template operator()<RightOperand::near, product_row_step>(row);
    }
}

}}}  // namespace cupola::CUPOLA_ABI::impl
