// SPDX-License-Identifier: Apache-2.0
//
// The gradient of the filters, the adjoint of the convolution over tiles:
//
//   dg = G' [sum over tiles of (Bt d B) * (A dy A')] G
//
// which is one matrix product of [out, tiles] x [tiles, in] per point. The tiles are divided into segments, each with
// its own sums; the number of segments is limited by the memory of the sums and depends only on the shape. Where there
// are more threads than segments, several threads share one, each with some rows of its points (and some output
// channels, where there are too few rows). A thread processes a segment in blocks that stay in its second-level cache
// together with its sums. So each sum is in the order of the tiles, whatever the number of threads. The gradient of the
// bias is the sum over tiles of A dy A' at the point (1, 1), where A has ones.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <cupola/ops/host/impl/winograd_map.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Of tensors of type T; the sums and both gradients are float.
template <class W, class T = float>
class WinogradWeightGradient {
public:
    WinogradWeightGradient(const TiledMap& map, int threads)
        : map_(map),
          tiles_(map),
          segments_(segments_of(tiles_.count, sum_floats())),
          row_parts_(std::min((threads + segments_ - 1) / segments_, side)),
          out_parts_(std::min((threads + segments_ * side - 1) / (segments_ * side), map.out / 16)),
          rows_at_once_(segments_ == 1 ? side / 2 : side),
          block_(std::max(tiles_per_block(tiles_.count, 1, rows_at_once_ * side * (map.in + map.out), block_budget, 1),
                          segments_ == 1 ? std::min(tiles_.count, least_tiles) : 1)) {}

    [[nodiscard]] std::size_t scratch_floats() const {
        return static_cast<std::size_t>(zero_floats() + segments_ * (sum_floats() + map_.out) +
                                        parts() * (input_floats() + gradient_floats()));
    }

    /// `bias_gradient` may be null. Both gradients are written, or added to if `add` is set.
    void run(const HostContext& context, const T* input, const T* output_gradient, float* weight_gradient,
             float* bias_gradient, bool add, float* scratch) const {
        std::memset(scratch, 0, static_cast<std::size_t>(zero_floats()) * sizeof(float));
        float* const sums = scratch + zero_floats();
        float* const bias_sums = sums + segments_ * sum_floats();
        float* const buffers = bias_sums + segments_ * map_.out;
        parallel_for(context, parts(), [=, this](std::int64_t index) {
            const std::int64_t segment = index / (row_parts_ * out_parts_);
            const std::int64_t row_part = index / out_parts_ % row_parts_, out_part = index % out_parts_;
            float* const inputs = buffers + index * (input_floats() + gradient_floats());
            const Part part{.first_tile = tiles_.count * segment / segments_,
                            .end_tile = tiles_.count * (segment + 1) / segments_,
                            .first_row = side * row_part / row_parts_,
                            .end_row = side * (row_part + 1) / row_parts_,
                            .first_out = map_.out / 16 * out_part / out_parts_ * 16,
                            .end_out = map_.out / 16 * (out_part + 1) / out_parts_ * 16,
                            .inputs = inputs,
                            .gradients = inputs + input_floats(),
                            .sums = sums + segment * sum_floats(),
                            .bias_sums = bias_sums + segment * map_.out};
            add_up(input, output_gradient, reinterpret_cast<const T*>(scratch), part);
        });
        parallel_for(context, map_.out, [=, this](std::int64_t o) { write_gradient(sums, o, add, weight_gradient); });
        if (bias_gradient == nullptr) return;
        for (std::int64_t o = 0; o < map_.out; ++o) {
            float sum = bias_sums[o];
            for (std::int64_t segment = 1; segment < segments_; ++segment) sum += bias_sums[segment * map_.out + o];
            bias_gradient[o] = add ? bias_gradient[o] + sum : sum;
        }
    }

private:
    static constexpr auto side = static_cast<std::int64_t>(W::points), points = side * side;
    static constexpr auto tile = static_cast<std::int64_t>(W::tile);
    /// 512 KiB: 32 tiles of 64 + 64 channels, whose products take several times as long as reading and writing the
    /// sums.
    static constexpr std::int64_t block_budget = 131072;
    /// Tiles of a block whose channels are too many for that: the sums of 512 x 512 channels take 38 MB, and each block
    /// reads and writes them.
    static constexpr std::int64_t least_tiles = 32;
    /// 1.5 MiB for the sums of all segments, where there are several.
    static constexpr std::int64_t segment_budget = 393216, max_segments = 16;

    /// The work of one thread, and its memory.
    struct Part {
        std::int64_t first_tile, end_tile, first_row, end_row, first_out, end_out;
        float *inputs, *gradients, *sums, *bias_sums;
    };

    [[nodiscard]] static std::int64_t segments_of(std::int64_t tiles, std::int64_t sum_floats) {
        std::int64_t segments = 1;
        while (segments < max_segments && 2 * segments <= tiles && 2 * segments * sum_floats <= segment_budget)
            segments *= 2;
        return segments;
    }
    [[nodiscard]] std::int64_t parts() const { return segments_ * row_parts_ * out_parts_; }

    [[nodiscard]] std::int64_t zero_floats() const { return side * std::max(map_.in, map_.out); }
    [[nodiscard]] std::int64_t sum_floats() const { return points * point_stride(map_.out, map_.in); }
    [[nodiscard]] std::int64_t input_floats() const { return rows_at_once_ * side * point_stride(block_, map_.in); }
    [[nodiscard]] std::int64_t gradient_floats() const { return rows_at_once_ * side * point_stride(block_, map_.out); }

    void add_up(const T* input, const T* output_gradient, const T* zeros, const Part& part) const {
        for (std::int64_t first = part.first_tile; first < part.end_tile; first += block_) {
            const std::int64_t count = std::min(block_, part.end_tile - first);
            const bool add = first != part.first_tile;
            // All rows at once are rounded differently from single rows, so this choice must not depend on the number
            // of threads.
            const bool whole = rows_at_once_ == side;
            for (std::int64_t row = part.first_row; row < part.end_row; row += rows_at_once_) {
                const std::int64_t end = std::min(row + rows_at_once_, part.end_row);
                const std::int64_t from = whole ? 0 : row, to = whole ? side : end;
                transform_inputs(input, zeros, first, count, from, to, part);
                transform_gradients(output_gradient, zeros, first, count, from, to, part);
                for (std::int64_t i = row; i < end; ++i) multiply(count, i, i - from, part, add);
                if (row <= 1 && 1 < end) add_biases(count, 1 - from, part, add);
            }
        }
    }

    /// The sum of factors[k] rows.row[k] at column x.
    template <std::size_t Count>
    [[gnu::always_inline]] static Lanes column_product(const Lanes (&factors)[Count], const TileRows<T, Count>& rows,
                                                       std::int64_t x, std::int64_t channels, std::int64_t c) {
        if (x < rows.columns.begin || x >= rows.columns.end) return Lanes{};
        const std::int64_t at = (x - rows.columns.begin) * channels + c;
        Lanes sum = factors[0] * load_lanes(rows.row[0] + at);
        for_each_index<Count - 1>([&](auto k) __attribute__((always_inline)) {
            sum += factors[k + 1] * load_lanes(rows.row[k + 1] + at);
        });
        return sum;
    }

    /// to[i - row][j][tile][channel] = the rows [row, end) of M d M' for the square d of pixels in `rows`, at tile t.
    template <class M, std::size_t Count>
    static void transform_rows(const TileRows<T, Count>& rows, std::int64_t channels, std::int64_t first_channel,
                               std::int64_t end_channel, std::int64_t row, std::int64_t end, float* to,
                               std::int64_t stride) {
        if (end - row == side) {
            for (std::int64_t c = first_channel; c < end_channel; c += lane_count) {
                transform_tile<M>(rows, channels, c, to + c, stride);
            }
            return;
        }
        // A pixel is converted once for all rows.
        if constexpr (!std::is_same_v<T, float>) {
            for (std::int64_t c = first_channel; c < end_channel; c += lane_count) {
                transform_tile<M>(rows, channels, c, to + c, stride, static_cast<std::size_t>(row),
                                  static_cast<std::size_t>(end));
            }
            return;
        }
        for (std::int64_t i = row; i < end; ++i, to += side * stride) {
            Lanes factors[Count];
            for_each_index<Count>([&](auto k) __attribute__((always_inline)) {
                factors[k] = Lanes{} + static_cast<float>(M::matrix[static_cast<std::size_t>(i)][k]);
            });
            for (std::int64_t c = first_channel; c < end_channel; c += lane_count) {
                Lanes line[Count], values[W::points];
                for_each_index<Count>([&](auto x) __attribute__((always_inline)) {
                    line[x] = column_product(factors, rows, x, channels, c);
                });
                to_points<M>(line, values);
                for_each_index<W::points>([&](auto j) __attribute__((always_inline)) {
                    store_lanes(to + static_cast<std::int64_t>(j) * stride + c, values[j]);
                });
            }
        }
    }

    /// The rows [row, end) of Bt d B.
    void transform_inputs(const T* input, const T* zeros, std::int64_t first, std::int64_t count, std::int64_t row,
                          std::int64_t end, const Part& part) const {
        const std::int64_t height = map_.height.input, width = map_.width.input, channels = map_.in;
        for (std::int64_t t = 0; t < count; ++t) {
            const auto place = tiles_.place(first + t);
            const TileRows<T, W::points> rows(input + place.image * height * width * channels, height, width, channels,
                                              place.y - map_.height.pad_begin, place.x - map_.width.pad_begin, zeros);
            transform_rows<typename W::Input>(rows, channels, 0, channels, row, end, part.inputs + t * channels,
                                              point_stride(block_, channels));
        }
    }

    /// The rows [row, end) of A dy A'.
    void transform_gradients(const T* output_gradient, const T* zeros, std::int64_t first, std::int64_t count,
                             std::int64_t row, std::int64_t end, const Part& part) const {
        const std::int64_t height = map_.height.output, width = map_.width.output, channels = map_.out;
        for (std::int64_t t = 0; t < count; ++t) {
            const auto place = tiles_.place(first + t);
            const TileRows<T, W::tile> rows(output_gradient + place.image * height * width * channels, height, width,
                                            channels, place.y, place.x, zeros);
            transform_rows<typename W::OutputGradient>(rows, channels, part.first_out, part.end_out, row, end,
                                                       part.gradients + t * channels, point_stride(block_, channels));
        }
    }

    void multiply(std::int64_t count, std::int64_t i, std::int64_t at, const Part& part, bool add) const {
        for (std::int64_t j = 0; j < side; ++j) {
            const float* const inputs = part.inputs + (at * side + j) * point_stride(block_, map_.in);
            const float* const gradients =
                part.gradients + (at * side + j) * point_stride(block_, map_.out) + part.first_out;
            float* const to = part.sums + (i * side + j) * point_stride(map_.out, map_.in) + part.first_out * map_.in;
            for (std::int64_t c = 0; c < map_.in; c += product_columns) {
                product_rows_of<LeftOperand::transposed>(gradients, map_.out, inputs + c, map_.in, to + c, map_.in,
                                                         part.end_out - part.first_out,
                                                         std::min(product_columns, map_.in - c), count, add);
            }
        }
    }

    void add_biases(std::int64_t count, std::int64_t at, const Part& part, bool add) const {
        const float* const gradients = part.gradients + (at * side + 1) * point_stride(block_, map_.out);
        for (std::int64_t o = part.first_out; o < part.end_out; o += lane_count) {
            Lanes sum = Lanes{};
            for (std::int64_t t = 0; t < count; ++t) sum += load_lanes(gradients + t * map_.out + o);
            store_lanes(part.bias_sums + o, add ? load_lanes(part.bias_sums + o) + sum : sum);
        }
    }

    void write_gradient(const float* sums, std::int64_t o, bool add, float* weight_gradient) const {
        const std::int64_t stride = point_stride(map_.out, map_.in);
        for (std::int64_t c = 0; c < map_.in; c += lane_count) {
            Lanes half[W::points][W::kernel];  // [column of points][tap]
            const float* from = sums + o * map_.in + c;
            for (std::size_t j = 0; j < W::points; ++j, from += stride) {
                Lanes line[W::points];
                for_each_index<W::points>([&](auto i) __attribute__((always_inline)) {
                    const float* value = from + static_cast<std::int64_t>(i) * side * stride;
                    line[i] = load_lanes(value);
                    for (std::int64_t s = 1; s < segments_; ++s) line[i] += load_lanes(value += sum_floats());
                });
                from_points<typename W::FilterGradient>(line, half[j]);
            }
            float* to = weight_gradient + o * static_cast<std::int64_t>(W::kernel * W::kernel) * map_.in + c;
            for (std::size_t a = 0; a < W::kernel; ++a) {
                Lanes line[W::points], values[W::kernel];
                for_each_index<W::points>([&](auto j) __attribute__((always_inline)) { line[j] = half[j][a]; });
                from_points<typename W::FilterGradient>(line, values);
                for (const Lanes& value : values) {
                    store_lanes(to, add ? load_lanes(to) + value : value);
                    to += map_.in;
                }
            }
        }
    }

    TiledMap map_;
    TileGrid<W::tile> tiles_;
    std::int64_t segments_, row_parts_, out_parts_, rows_at_once_, block_;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
