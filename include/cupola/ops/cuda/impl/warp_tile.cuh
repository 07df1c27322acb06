// SPDX-License-Identifier: Apache-2.0
//
// A square of 32 x 32 sums over k of left(row, k) right(k, column), which one warp computes in float: with the
// fragments of tensor cores, or by one multiply-add after another. Both factors pass through the warp's own shared
// memory, which pads them with zeros at the edges of the matrices, so extents are arbitrary. The next factors are read
// while the present ones are multiplied.
//
// The sums over k are added in an order that depends on the range of k alone.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <mma.h>

#include <cupola/core/element_type.hpp>
#include <cupola/ops/cuda/impl/launch.cuh>
#include <cupola/ops/impl/kernel_parts/pack.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

inline constexpr int tile_side = 32;
/// The distance between rows of a square of sums in shared memory: a few elements more, against bank conflicts.
inline constexpr int tile_row = tile_side + 4;

/// A factor of a product: a matrix without gaps, whose neighbours in memory are those along the sum (`along_next` in
/// the code below) or those across it.
template <class T>
struct TileFactor {
    const T* data;
    /// Its extents: the rows or columns of the product, and the terms of the sums.
    int across, along;
    /// Whether packs of 16 bytes can be read: see `takes_packs`.
    bool packs;
};
template <class T>
[[nodiscard]] bool takes_packs(const T* data, std::int64_t neighbours) {
    return aligned_for_packs(data) && neighbours % pack_size<T> == 0;
}

/// The part of a factor for `chunk` terms of the sums, in the registers of a warp: lane `lane` has one pack of every
/// `step`-th line.
template <class T, int chunk, bool along_next>
struct TilePart {
    static constexpr int n = pack_size<T>, in_line = (along_next ? chunk : tile_side) / n, step = 32 / in_line,
                         packs = (along_next ? tile_side : chunk) / step;
    static_assert(32 % in_line == 0);
    Pack<T, n> pack[packs];

    /// Elements with an index along the sums of at least `end`, and those outside the matrix, are zeros.
    __device__ void load(const TileFactor<T>& factor, int across, int along, int end, int lane) {
        const int line = (along_next ? across : along) + lane / in_line,
                  place = (along_next ? along : across) + lane % in_line * n;
        const int lines = along_next ? factor.across : end, left = (along_next ? end : factor.across) - place;
        const int stride = along_next ? factor.along : factor.across;
        const T* from = factor.data + line * stride + place;
        CUPOLA_UNROLL
        for (int k = 0; k < packs; ++k, from += step * stride) {
            const int count = line + k * step < lines ? left : 0;
            if (factor.packs) {
                pack[k] = count > 0 ? *reinterpret_cast<const Pack<T, n>*>(from) : Pack<T, n>{};
            } else {
                CUPOLA_UNROLL
                for (int e = 0; e < n; ++e) pack[k].element[e] = e < count ? from[e] : T{};
            }
        }
    }
    /// Stores the lines as in memory; `row` is the distance between lines.
    __device__ void store_lines(T* to, int row, int lane) const {
        to += lane / in_line * row + lane % in_line * n;
        CUPOLA_UNROLL
        for (int k = 0; k < packs; ++k) *reinterpret_cast<Pack<T, n>*>(to + k * step * row) = pack[k];
    }
    /// Stores the elements as floats, with those across the sum as neighbours.
    __device__ void store_across(float* to, int lane) const {
        const int line = lane / in_line, place = lane % in_line * n;
        to += along_next ? place * tile_row + line : line * tile_row + place;
        CUPOLA_UNROLL
        for (int k = 0; k < packs; ++k) {
            CUPOLA_UNROLL
            for (int e = 0; e < n; ++e)
                to[along_next ? e * tile_row + k * step : k * step * tile_row + e] =
                    static_cast<float>(pack[k].element[e]);
        }
    }
};

/// A square by multiply-adds in float: a lane has four rows and eight columns of it.
template <class T>
class MultiplyAddTile {
public:
    static constexpr int chunk = 16;
    using Stored = float;
    static constexpr int stored = chunk * tile_row;

    __device__ void clear() {
        CUPOLA_UNROLL
        for (auto& row : sum_) {
            CUPOLA_UNROLL
            for (float& each : row) each = 0;
        }
    }
    template <bool along_next>
    __device__ static void store_part(const TilePart<T, chunk, along_next>& part, float* to, int lane) {
        part.store_across(to, lane);
    }
    template <bool left_along, bool right_along>
    __device__ void multiply(const float* left, const float* right, int lane) {
        left += lane / 4 * rows;
        right += lane % 4 * columns;
        CUPOLA_NO_UNROLL
        for (int k = 0; k < chunk; ++k) {
            float l[rows], r[columns];
            load_floats<rows>(left + k * tile_row, l);
            load_floats<rows>(right + k * tile_row, r);
            load_floats<rows>(right + k * tile_row + rows, r + rows);
            CUPOLA_UNROLL
            for (int i = 0; i < rows; ++i) {
                CUPOLA_UNROLL
                for (int j = 0; j < columns; ++j) sum_[i][j] += l[i] * r[j];
            }
        }
    }
    __device__ void store(float* to, int lane) const {
        CUPOLA_UNROLL
        for (int i = 0; i < rows; ++i) {
            float* const row = to + (lane / 4 * rows + i) * tile_row + lane % 4 * columns;
            CUPOLA_UNROLL
            for (int j = 0; j < columns; ++j) row[j] = sum_[i][j];
        }
    }

private:
    static constexpr int rows = 4, columns = 8;
    float sum_[rows][columns];
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

/// The type of a fragment's elements, as which they are stored, and the terms of one multiplication.
template <class T>
struct TileFragment;
template <>
struct TileFragment<float> {
    using Element = nvcuda::wmma::precision::tf32;
    using Stored = float;
    static constexpr int terms = 8;
};
template <>
struct TileFragment<BFloat16> {
    using Element = __nv_bfloat16;
    using Stored = __nv_bfloat16;
    static constexpr int terms = 16;
};
template <>
struct TileFragment<Float16> {
    using Element = __half;
    using Stored = __half;
    static constexpr int terms = 16;
};

/// A square by tensor cores, in four fragments. Factors in float are rounded to TF32.
template <class T>
class TensorCoreTile {
    using Of = TileFragment<T>;
    static constexpr int side = 16, terms = Of::terms;

public:
    static constexpr int chunk = 2 * terms;
    using Stored = T;
    static constexpr int stored = static_cast<int>(tile_side * 80 / sizeof(T));

    __device__ void clear() {
        CUPOLA_UNROLL
        for (int i = 0; i < 2; ++i) {
            CUPOLA_UNROLL
            for (int j = 0; j < 2; ++j) nvcuda::wmma::fill_fragment(sum_[i][j], 0.0F);
        }
    }
    template <bool along_next>
    __device__ static void store_part(const TilePart<T, chunk, along_next>& part, T* to, int lane) {
        part.store_lines(to, row_of<along_next>, lane);
    }
    template <bool left_along, bool right_along>
    __device__ void multiply(const T* left, const T* right, int) {
        using namespace nvcuda::wmma;
        CUPOLA_UNROLL
        for (int k = 0; k < chunk; k += terms) {
            fragment<matrix_a, side, side, terms, typename Of::Element,
                     std::conditional_t<left_along, row_major, col_major>>
                l[2];
            fragment<matrix_b, side, side, terms, typename Of::Element,
                     std::conditional_t<right_along, col_major, row_major>>
                r;
            CUPOLA_UNROLL
            for (int i = 0; i < 2; ++i) load<left_along>(l[i], left, side * i, k);
            CUPOLA_UNROLL
            for (int j = 0; j < 2; ++j) {
                load<right_along>(r, right, side * j, k);
                CUPOLA_UNROLL
                for (int i = 0; i < 2; ++i) mma_sync(sum_[i][j], l[i], r, sum_[i][j]);
            }
        }
    }
    __device__ void store(float* to, int) const {
        CUPOLA_UNROLL
        for (int i = 0; i < 2; ++i) {
            CUPOLA_UNROLL
            for (int j = 0; j < 2; ++j)
                nvcuda::wmma::store_matrix_sync(to + side * (i * tile_row + j), sum_[i][j], tile_row,
                                                nvcuda::wmma::mem_row_major);
        }
    }

private:
    /// 16 bytes more than a line, against bank conflicts.
    template <bool along_next>
    static constexpr int row_of = (along_next ? chunk : tile_side) + pack_size<T>;
    static_assert(tile_side * row_of<true> <= stored && chunk * row_of<false> <= stored);

    template <bool along_next, class Fragment>
    __device__ static void load(Fragment& to, const T* from, int across, int along) {
        constexpr int row = row_of<along_next>;
        nvcuda::wmma::load_matrix_sync(to,
                                       reinterpret_cast<const typename Of::Stored*>(
                                           from + (along_next ? across * row + along : along * row + across)),
                                       row);
        if constexpr (std::same_as<T, float>) {
            CUPOLA_UNROLL
            for (int e = 0; e < to.num_elements; ++e) to.x[e] = nvcuda::wmma::__float_to_tf32(to.x[e]);
        }
    }

    nvcuda::wmma::fragment<nvcuda::wmma::accumulator, side, side, terms, float> sum_[2][2];
};

/// How a warp multiplies factors of this type: in float by tensor cores only if that is requested.
template <class T, bool tf32>
using WarpTile = std::conditional_t<std::same_as<T, float> && !tf32, MultiplyAddTile<T>, TensorCoreTile<T>>;

#else

/// The tensor cores of earlier GPUs support neither bfloat16 nor TF32.
template <class T, bool tf32>
using WarpTile = MultiplyAddTile<T>;

#endif

/// The shared memory of a warp: both factors, and later a square of sums.
inline constexpr int warp_tile_bytes = 2 * tile_side * 80;
static_assert(warp_tile_bytes >= tile_side * tile_row * static_cast<int>(sizeof(float)));

/// Writes the sums over k of [begin, end) of the square at (row, column) to the warp's shared memory, in rows of
/// `tile_row`. Called by all lanes of a warp.
template <class Tile, bool left_along, bool right_along, class T>
__device__ void sum_tile(const TileFactor<T>& left, const TileFactor<T>& right, int row, int column, int begin, int end,
                         std::byte* shared) {
    static_assert(2 * Tile::stored * static_cast<int>(sizeof(typename Tile::Stored)) <= warp_tile_bytes);
    const int lane = static_cast<int>(threadIdx.x) % 32;
    auto* const l = reinterpret_cast<typename Tile::Stored*>(shared);
    auto* const r = l + Tile::stored;
    Tile tile;
    TilePart<T, Tile::chunk, left_along> of_left;
    TilePart<T, Tile::chunk, right_along> of_right;
    tile.clear();
    of_left.load(left, row, begin, end, lane);
    of_right.load(right, column, begin, end, lane);
    CUPOLA_NO_UNROLL
    for (int k = begin; k < end; k += Tile::chunk) {
        __syncwarp();  // the factors before have been read
        Tile::store_part(of_left, l, lane);
        Tile::store_part(of_right, r, lane);
        __syncwarp();
        if (k + Tile::chunk < end) {
            of_left.load(left, row, k + Tile::chunk, end, lane);
            of_right.load(right, column, k + Tile::chunk, end, lane);
        }
        tile.template multiply<left_along, right_along>(l, r, lane);
    }
    __syncwarp();
    tile.store(reinterpret_cast<float*>(shared), lane);
}

}}}  // namespace cupola::CUPOLA_ABI::impl
