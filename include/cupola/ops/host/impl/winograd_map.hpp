// SPDX-License-Identifier: Apache-2.0
//
// A convolution over tiles, as in forward and, with rotated filters, in the input gradient:
//
//   y = At [sum over c of (G g G') * (Bt d B)] A        for each tile, * element by element
//
// which is one matrix product of [tiles, in] x [in, out] per point. Each thread has a contiguous range of the tiles and
// processes it in blocks that stay in its second-level cache from the first transform to the last. Where there are few
// tiles, as for a single image, the threads share the output channels instead: first the inputs of all tiles are
// transformed, and then each thread reads its part of the filters once. A result does not depend on the number of
// threads or on the blocks: each tile's sums are in the order of the input's channels.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <cupola/ops/activation.hpp>
#include <cupola/ops/host/impl/winograd_product.hpp>
#include <cupola/ops/host/impl/winograd_tiles.hpp>
#include <cupola/ops/host/impl/winograd_transform.hpp>
#include <cupola/tensor/algorithms.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Floats between the matrices of two points: one cache line more than needed, because otherwise their lines would map
/// to few sets of the cache.
[[nodiscard]] constexpr std::int64_t point_stride(std::int64_t rows, std::int64_t columns) {
    return rows * columns + 16;
}

/// The place of the transformed filters of a block of output channels, in floats: those of one block are in the order
/// of the points, so that a thread reads them from memory as one sequence.
[[nodiscard]] constexpr std::int64_t filters_place(std::int64_t points, std::int64_t in, std::int64_t channel) {
    return channel / product_columns * points * point_stride(in, product_columns);
}

/// Tiles per block, so that the data of a block takes at most `budget` floats.
[[nodiscard]] constexpr std::int64_t tiles_per_block(std::int64_t tiles, int threads, std::int64_t floats_per_tile,
                                                     std::int64_t budget, std::int64_t multiple) {
    const std::int64_t fitting = std::max<std::int64_t>(budget / floats_per_tile / multiple, 1) * multiple;
    const std::int64_t fraction = ((tiles + threads - 1) / threads + multiple - 1) / multiple * multiple;
    return std::min(fitting, fraction);
}

/// to[point] = M d M', the rows [row, end) of it, for the square d of pixels in `rows`, from channel c on.
template <class M, class T, std::size_t Count>
[[gnu::always_inline]] inline void transform_tile(const TileRows<T, Count>& rows, std::int64_t channels, std::int64_t c,
                                                  float* to, std::int64_t stride, std::size_t row = 0,
                                                  std::size_t end = M::matrix.size()) {
    constexpr std::size_t points = M::matrix.size();
    Lanes half[Count][points];  // [column][point]
    for (std::size_t x = 0; x < Count; ++x) {
        const std::int64_t column = static_cast<std::int64_t>(x) - rows.columns.begin;
        if (column < 0 || column >= rows.columns.end - rows.columns.begin) {
            for (Lanes& value : half[x]) value = Lanes{};
            continue;
        }
        Lanes pixels[Count];
        for_each_index<Count>([&](auto y) __attribute__((always_inline)) {
            pixels[y] = load_lanes(rows.row[y] + column * channels + c);
        });
        to_points<M>(pixels, half[x]);
    }
    for (std::size_t i = row; i < end; ++i) {
        Lanes line[Count], values[points];
        for_each_index<Count>([&](auto x) __attribute__((always_inline)) { line[x] = half[x][i]; });
        to_points<M>(line, values);
        for_each_index<points>([&](auto j) __attribute__((always_inline)) {
            store_lanes(to, values[j]);
            to += stride;
        });
    }
}

/// What follows the outputs' transform: the bias, or null, the sum with what is in the output, and an activation or a
/// formula.
struct AfterTransform {
    const float* bias = nullptr;
    FusedActivation activation = Activation::none;
    bool adds = false;
    const OutputFormula* formula = nullptr;
};

/// Reads and writes tensors of type T; the rest is float.
template <class W, class T = float>
class WinogradMap {
public:
    WinogradMap(const TiledMap& map, int threads)
        : map_(map),
          threads_(threads),
          tiles_(map),
          block_(
              tiles_per_block(tiles_.count, threads, points * (map.in + product_columns), block_budget, product_rows)),
          divides_channels_(divides_channels()) {
        if (divides_channels_)
            block_ = tiles_per_block(tiles_.count, 1, points * product_columns, block_budget, product_rows);
    }

    /// The size of the transformed filters.
    [[nodiscard]] std::size_t packed_floats() const {
        return static_cast<std::size_t>(filters_place(points, map_.in, map_.out + product_columns - 1));
    }
    [[nodiscard]] std::size_t scratch_floats() const {
        const std::int64_t inputs = divides_channels_ ? transformed_floats() : threads_ * transformed_floats();
        return static_cast<std::size_t>(zero_floats() + inputs + threads_ * product_floats());
    }

    /// `filters` must have been written by pack_winograd_filters.
    void run(const HostContext& context, const T* input, const float* filters, const AfterTransform& after, T* output,
             float* scratch) const {
        std::memset(scratch, 0, static_cast<std::size_t>(zero_floats()) * sizeof(float));
        const T* const zeros = reinterpret_cast<const T*>(scratch);
        const Tensors tensors{filters, after, output};
        scratch += zero_floats();
        if (divides_channels_) return run_by_channels(context, input, zeros, tensors, scratch);
        const std::int64_t blocks = (tiles_.count + block_ - 1) / block_;
        parallel_for(context, threads_, [=, this](std::int64_t thread) {
            float* const transformed = scratch + thread * (transformed_floats() + product_floats());
            float* const products = transformed + transformed_floats();
            for (std::int64_t block = blocks * thread / threads_; block < blocks * (thread + 1) / threads_; ++block) {
                const std::int64_t first = block * block_, count = std::min(block_, tiles_.count - first);
                for (std::int64_t t = 0; t < count; ++t)
                    transform_inputs(input, zeros, first + t, transformed + t * map_.in);
                for (std::int64_t channel = 0; channel < map_.out; channel += product_columns)
                    multiply<RightOperand::near>(transformed, first, count, channel, tensors, products);
            }
        });
    }

private:
    static constexpr auto side = static_cast<std::int64_t>(W::points), points = side * side;
    static constexpr auto tile = static_cast<std::int64_t>(W::tile);
    /// 384 KiB: with the filters of 64 x 64 channels (1 MiB), the blocks of two threads fit a second-level cache of 2
    /// MiB.
    static constexpr std::int64_t block_budget = 98304;
    /// 1 MiB, half of such a cache: more filters are read from a slower one, and the inputs of all tiles that every
    /// thread reads take at most as much.
    static constexpr std::int64_t cached_floats = 262144;

    struct Tensors {
        const float* filters;
        AfterTransform after;
        T* output;
    };

    [[nodiscard]] std::int64_t row_blocks() const { return (tiles_.count + product_rows - 1) / product_rows; }
    [[nodiscard]] std::int64_t column_blocks() const { return (map_.out + product_columns - 1) / product_columns; }
    /// Whether the threads share the blocks of output channels: where the busiest then has fewer products, or as many
    /// and reads filters that are not in its cache in part instead of all.
    [[nodiscard]] bool divides_channels() const {
        if (points * point_stride(row_blocks() * product_rows, map_.in) > cached_floats) return false;
        const auto most = [this](std::int64_t parts) { return (parts + threads_ - 1) / threads_; };
        const std::int64_t blocks = (tiles_.count + block_ - 1) / block_;
        const std::int64_t by_tiles = std::min(most(blocks) * (block_ / product_rows), row_blocks()) * column_blocks();
        const std::int64_t by_channels = most(row_blocks() * column_blocks());
        return by_channels < by_tiles || (by_channels == by_tiles && points * map_.in * map_.out > cached_floats);
    }

    [[nodiscard]] std::int64_t zero_floats() const { return side * map_.in; }
    [[nodiscard]] std::int64_t input_stride() const {
        return point_stride(divides_channels_ ? row_blocks() * product_rows : block_, map_.in);
    }
    [[nodiscard]] std::int64_t transformed_floats() const { return points * input_stride(); }
    [[nodiscard]] std::int64_t product_floats() const { return points * point_stride(block_, product_columns); }

    void run_by_channels(const HostContext& context, const T* input, const T* zeros, const Tensors& tensors,
                         float* transformed) const {
        parallel_for(context, threads_, [=, this](std::int64_t thread) {
            for (std::int64_t t = tiles_.count * thread / threads_; t < tiles_.count * (thread + 1) / threads_; ++t)
                transform_inputs(input, zeros, t, transformed + t * map_.in);
        });
        // The blocks of the products in the order of the channels, so that a thread has all tiles of most of its own.
        const std::int64_t rows = row_blocks(), blocks = rows * column_blocks();
        parallel_for(context, threads_, [=, this](std::int64_t thread) {
            float* const products = transformed + transformed_floats() + thread * product_floats();
            const std::int64_t end = blocks * (thread + 1) / threads_;
            for (std::int64_t block = blocks * thread / threads_; block < end;) {
                const std::int64_t column = block / rows, row = block % rows;
                const std::int64_t some = std::min({rows - row, end - block, block_ / product_rows});
                const std::int64_t first = row * product_rows;
                multiply<RightOperand::far>(transformed + first * map_.in, first,
                                            std::min(some * product_rows, tiles_.count - first),
                                            column * product_columns, tensors, products);
                block += some;
            }
        });
    }

    /// The outputs of the tiles [first, first + count), the first of which `transformed` points to, in one block of
    /// channels.
    template <RightOperand Right>
    void multiply(const float* transformed, std::int64_t first, std::int64_t count, std::int64_t channel,
                  const Tensors& tensors, float* products) const {
        const std::int64_t rows = (count + product_row_step - 1) / product_row_step * product_row_step;
        const std::int64_t channels = std::min(product_columns, map_.out - channel);
        const float* const filters = tensors.filters + filters_place(points, map_.in, channel);
        for (std::int64_t p = 0; p < points; ++p) {
            product_rows_of<LeftOperand::plain, Right>(
                transformed + p * input_stride(), map_.in, filters + p * point_stride(map_.in, channels), channels,
                products + p * point_stride(block_, product_columns), product_columns, rows, channels, map_.in, false);
        }
        transform_outputs(products, first, count, channel, channels, tensors);
    }

    /// to[point][channel] = Bt d B, of one tile.
    void transform_inputs(const T* input, const T* zeros, std::int64_t at, float* to) const {
        const std::int64_t height = map_.height.input, width = map_.width.input, channels = map_.in;
        const auto place = tiles_.place(at);
        const TileRows<T, W::points> rows(input + place.image * height * width * channels, height, width, channels,
                                          place.y - map_.height.pad_begin, place.x - map_.width.pad_begin, zeros);
        for (std::int64_t c = 0; c < channels; c += lane_count)
            transform_tile<typename W::Input>(rows, channels, c, to + c, input_stride());
    }

    /// output = At m A + bias and what follows, for the channels [channel, channel + channels).
    void transform_outputs(const float* products, std::int64_t first, std::int64_t count, std::int64_t channel,
                           std::int64_t channels, const Tensors& tensors) const {
        const AfterTransform after = tensors.after;
        const FusedActivation activation = after.activation;
        const std::int64_t height = map_.height.output, width = map_.width.output;
        const std::int64_t stride = point_stride(block_, product_columns);
        for (std::int64_t t = 0; t < count; ++t) {
            const auto place = tiles_.place(first + t);
            T* const corner =
                tensors.output + ((place.image * height + place.y) * width + place.x) * map_.out + channel;
            const std::int64_t rows = std::min(tile, height - place.y), columns = std::min(tile, width - place.x);
            for (std::int64_t c = 0; c < channels; c += lane_count) {
                Lanes half[W::points][W::tile];  // [column of points][row of outputs]
                const float* from = products + t * product_columns + c;
                for (std::size_t j = 0; j < W::points; ++j, from += stride) {
                    Lanes line[W::points];
                    for_each_index<W::points>([&](auto i) __attribute__((always_inline)) {
                        line[i] = load_lanes(from + static_cast<std::int64_t>(i) * side * stride);
                    });
                    from_points<typename W::Output>(line, half[j]);
                }
                const Lanes start = after.bias == nullptr ? Lanes{} : load_lanes(after.bias + channel + c);
                for (std::int64_t y = 0; y < rows; ++y) {
                    Lanes line[W::points], values[W::tile];
                    for_each_index<W::points>([&](auto j) __attribute__((always_inline)) { line[j] = half[j][y]; });
                    from_points<typename W::Output>(line, values);
                    T* const to = corner + y * width * map_.out + c;
                    for_each_index<W::tile>([&](auto x) __attribute__((always_inline)) {
                        if (static_cast<std::int64_t>(x) >= columns) return;
                        T* const target = to + static_cast<std::int64_t>(x) * map_.out;
                        Lanes value = values[x] + start;
                        if (after.adds) value += load_lanes(target);
                        if (activation.applies) {
                            value = value < 0.0F ? Lanes{} : value;
                            value = value > activation.most ? Lanes{} + activation.most : value;
                        }
                        store_lanes(target, value);
                    });
                }
            }
            if (after.formula == nullptr) continue;
            for (std::int64_t pixel = 0; pixel < rows * columns; ++pixel)
                after.formula->apply(corner + (pixel / columns * width + pixel % columns) * map_.out, channels);
        }
    }

    TiledMap map_;
    int threads_;
    TileGrid<W::tile> tiles_;
    std::int64_t block_;
    bool divides_channels_;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
