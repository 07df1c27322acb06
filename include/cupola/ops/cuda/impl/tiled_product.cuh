// SPDX-License-Identifier: Apache-2.0
//
// A matrix product for shapes that cuBLASLt does not support: sum over k of left(row, k) right(k, column), in float.
//
// A thread block computes a square of 32 x 32 sums. Where there are few squares, the depth is split into pieces whose
// sums are added in order. `Finish` receives each sum: it is called once as finish(row, column, sum).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <cupola/ops/cuda/impl/launch.cuh>
#include <cupola/ops/impl/kernel_parts/pack.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The layout of the two factors: the distance, in elements, between neighbours in each direction.
struct ProductLayout {
    std::int64_t rows = 0, columns = 0, depth = 0;
    std::int64_t left_row = 0, left_depth = 0, right_depth = 0, right_column = 0;
};

class TiledProduct {
public:
    static constexpr int side = 32;
    static constexpr int threads = 256;

    TiledProduct() = default;
    /// `alone`: whether scratch memory may be used, so that the depth can be split.
    TiledProduct(const ProductLayout& layout, bool alone) : layout_(layout) {
        if (!alone) return;
        const std::int64_t wanted = std::min(enough_blocks / squares(), layout.depth / fewest_terms);
        pieces_ = std::clamp(wanted, std::int64_t{1}, max_pieces);
    }

    [[nodiscard]] std::size_t scratch_bytes() const {
        return pieces_ == 1 ? 0 : static_cast<std::size_t>(pieces_ * layout_.rows * layout_.columns) * sizeof(float);
    }

    template <class L, class R, class Finish>
    void run(const CudaContext& context, const L* left, const R* right, std::byte* scratch, Finish finish) const;

private:
    /// Thread blocks that occupy a large GPU, and the fewest terms of a sum that justify one. They are the same on each
    /// GPU, so that the sums are too.
    static constexpr std::int64_t enough_blocks = 256, fewest_terms = 128, max_pieces = 64;

    [[nodiscard]] std::int64_t squares() const {
        return (layout_.rows + side - 1) / side * ((layout_.columns + side - 1) / side);
    }

    ProductLayout layout_;
    std::int64_t pieces_ = 1;
};

/// The position of element `e` of [0, side * side) in a square, such that neighbouring threads read neighbouring
/// memory: `across` is a factor's index across the sums, `along` that along them.
struct SquarePlace {
    int across, along;
};
[[nodiscard]] CUPOLA_HOST_DEVICE constexpr SquarePlace square_place(int e, bool along_is_next) {
    const int next = e % TiledProduct::side, other = e / TiledProduct::side;
    return along_is_next ? SquarePlace{other, next} : SquarePlace{next, other};
}

template <class L, class R, class Finish>
__global__ void __launch_bounds__(TiledProduct::threads)
    tiled_product_kernel(const L* left, const R* right, ProductLayout p, std::int64_t pieces, Finish finish) {
    begin_kernel();
    constexpr int side = TiledProduct::side, threads = TiledProduct::threads;
    // [across][along] and [along][across]; one extra element per row avoids bank conflicts.
    __shared__ float l[side][side + 1], r[side][side + 1];
    const int t = static_cast<int>(threadIdx.x), row = t / 16, column = t % 16;
    const std::int64_t across = (p.columns + side - 1) / side, squares = across * ((p.rows + side - 1) / side);
    const std::int64_t length = (p.depth + pieces - 1) / pieces;
    for (std::int64_t block = blockIdx.x; block < squares * pieces; block += gridDim.x) {
        const std::int64_t piece = block / squares, square = block % squares;
        const std::int64_t first_row = square / across * side, first_column = square % across * side;
        const std::int64_t begin = piece * length, end = begin + length < p.depth ? begin + length : p.depth;
        float sum[2][2] = {};
        for (std::int64_t k = begin; k < end; k += side) {
            for (int e = t; e < side * side; e += threads) {
                const SquarePlace a = square_place(e, p.left_depth == 1), b = square_place(e, p.right_depth == 1);
                const std::int64_t i = first_row + a.across, j = first_column + b.across;
                l[a.across][a.along] = i < p.rows && k + a.along < end
                                           ? static_cast<float>(left[i * p.left_row + (k + a.along) * p.left_depth])
                                           : 0.0F;
                r[b.along][b.across] =
                    j < p.columns && k + b.along < end
                        ? static_cast<float>(right[(k + b.along) * p.right_depth + j * p.right_column])
                        : 0.0F;
            }
            __syncthreads();
            for (int n = 0; n < side; ++n) {
                for (int u = 0; u < 2; ++u) {
                    for (int v = 0; v < 2; ++v) sum[u][v] = fmaf(l[row + 16 * u][n], r[n][column + 16 * v], sum[u][v]);
                }
            }
            __syncthreads();
        }
        for (int u = 0; u < 2; ++u) {
            for (int v = 0; v < 2; ++v) {
                const std::int64_t i = first_row + row + 16 * u, j = first_column + column + 16 * v;
                if (i < p.rows && j < p.columns) finish(piece, i, j, sum[u][v]);
            }
        }
    }
}

/// For a depth that is not split.
template <class Finish>
struct FinishSum {
    Finish finish;
    __device__ void operator()(std::int64_t, std::int64_t row, std::int64_t column, float sum) const {
        finish(row, column, sum);
    }
};
/// For a depth that is split: stores the sums of each piece one after another.
struct KeepPiece {
    float* to;
    std::int64_t rows, columns;
    __device__ void operator()(std::int64_t piece, std::int64_t row, std::int64_t column, float sum) const {
        to[(piece * rows + row) * columns + column] = sum;
    }
};
/// Called per sum.
template <class Finish>
struct AddPieces {
    const float* from;
    std::int64_t count, columns, pieces;
    Finish finish;
    __device__ void operator()(std::int64_t i) const {
        float sum = 0;
        for (std::int64_t piece = 0; piece < pieces; ++piece) sum += from[piece * count + i];
        finish(i / columns, i % columns, sum);
    }
};

template <class L, class R, class Finish>
void TiledProduct::run(const CudaContext& context, const L* left, const R* right, std::byte* scratch,
                       Finish finish) const {
    constexpr std::int64_t max_blocks = 1 << 20;
    const auto grid = static_cast<unsigned>(std::min(squares() * pieces_, max_blocks));
    if (pieces_ == 1) {
        launch_kernel(tiled_product_kernel<L, R, FinishSum<Finish>>, grid, threads, context, left, right, layout_,
                      pieces_, FinishSum<Finish>{finish});
        return;
    }
    auto* const sums = reinterpret_cast<float*>(scratch);
    launch_kernel(tiled_product_kernel<L, R, KeepPiece>, grid, threads, context, left, right, layout_, pieces_,
                  KeepPiece{sums, layout_.rows, layout_.columns});
    const std::int64_t count = layout_.rows * layout_.columns;
    launch(context, count, AddPieces<Finish>{sums, count, layout_.columns, pieces_, finish});
}

}}}  // namespace cupola::CUPOLA_ABI::impl
