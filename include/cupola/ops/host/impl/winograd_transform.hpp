// SPDX-License-Identifier: Apache-2.0
//
// Products of one of Winograd's small matrices with a few vectors, unrolled at compile time: zeros are skipped, ones
// are not multiplied, and the rows (or columns) of points p and -p share their even and odd halves.
#pragma once

#include <cstddef>
#include <utility>

#include <cupola/ops/host/impl/lanes.hpp>
#include <cupola/ops/host/impl/winograd_matrices.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The first column from `from` on, in steps of `step`, where `row` is not zero; the number of columns if there is
/// none.
template <class M>
[[nodiscard]] constexpr std::size_t next_nonzero(std::size_t row, std::size_t from, std::size_t step) {
    const auto& values = M::matrix[row];
    while (from < values.size() && values[from] == 0.0) from += step;
    return from < values.size() ? from : values.size();
}

/// The sum of matrix[Row][k] in[k] over k = From, From + Step, ...
template <class M, std::size_t Row, std::size_t From, std::size_t Step, std::size_t Count>
[[gnu::always_inline]] inline Lanes row_product(const Lanes (&in)[Count]) {
    constexpr std::size_t k = next_nonzero<M>(Row, From, Step);
    static_assert(k < Count);
    constexpr auto factor = static_cast<float>(M::matrix[Row][k]);
    if constexpr (next_nonzero<M>(Row, k + Step, Step) < Count) {
        const Lanes rest = row_product<M, Row, k + Step, Step>(in);
        if constexpr (factor == 1.0F) {
            return rest + in[k];
        } else if constexpr (factor == -1.0F) {
            return rest - in[k];
        } else {
            return rest + factor * in[k];
        }
    } else if constexpr (factor == 1.0F) {
        return in[k];
    } else {
        return factor * in[k];
    }
}

/// out = M in, for a matrix with one row per point: Bt, G, A.
template <class M, std::size_t Count, std::size_t Points>
[[gnu::always_inline]] inline void to_points(const Lanes (&in)[Count], Lanes (&out)[Points]) {
    static_assert(M::matrix.size() == Points && M::matrix[0].size() == Count);
    out[0] = row_product<M, 0, 0, 1>(in);
    [&]<std::size_t... Pair>(std::index_sequence<Pair...>) __attribute__((always_inline)) {
        const auto both = [&]<std::size_t Q>(std::integral_constant<std::size_t, Q>) __attribute__((always_inline)) {
            const Lanes even = row_product<M, 2 * Q + 1, 0, 2>(in), odd = row_product<M, 2 * Q + 1, 1, 2>(in);
            out[2 * Q + 1] = even + odd;
            out[2 * Q + 2] = even - odd;
        };
        (both(std::integral_constant<std::size_t, Pair>{}), ...);
    }
    (std::make_index_sequence<Points / 2 - 1>{});
    out[Points - 1] = row_product<M, Points - 1, 0, 1>(in);
}

/// A matrix with one column per point, in which the columns of p and -p are combined.
template <class M>
struct Folded {
    static constexpr std::size_t rows = M::matrix.size(), points = M::matrix[0].size();
    static constexpr auto matrix = [] {
        WinogradMatrix<rows, points / 2 + 1> result{};
        for (std::size_t i = 0; i < rows; ++i) {
            for (std::size_t q = 0; q < points / 2; ++q) result[i][q] = M::matrix[i][q == 0 ? 0 : 2 * q - 1];
            result[i][points / 2] = M::matrix[i][points - 1];
        }
        return result;
    }();
};

/// out = M in, for a matrix with one column per point: At, Gt.
template <class M, std::size_t Points, std::size_t Count>
[[gnu::always_inline]] inline void from_points(const Lanes (&in)[Points], Lanes (&out)[Count]) {
    static_assert(M::matrix.size() == Count && M::matrix[0].size() == Points);
    Lanes sums[Points / 2 + 1], differences[Points / 2 + 1];
    sums[0] = differences[0] = in[0];
    sums[Points / 2] = differences[Points / 2] = in[Points - 1];
    [&]<std::size_t... Pair>(std::index_sequence<Pair...>) __attribute__((always_inline)) {
        ((sums[Pair + 1] = in[2 * Pair + 1] + in[2 * Pair + 2]), ...);
        ((differences[Pair + 1] = in[2 * Pair + 1] - in[2 * Pair + 2]), ...);
    }
    (std::make_index_sequence<Points / 2 - 1>{});
    [&]<std::size_t... Row>(std::index_sequence<Row...>) __attribute__((always_inline)) {
        ((out[Row] = row_product<Folded<M>, Row, 0, 1>(Row % 2 == 0 ? sums : differences)), ...);
    }
    (std::make_index_sequence<Count>{});
}

}}}  // namespace cupola::CUPOLA_ABI::impl
