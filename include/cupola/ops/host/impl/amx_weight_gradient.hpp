// SPDX-License-Identifier: Apache-2.0
//
// The gradient of a convolution's weights on AMX: a product of tiles [in, images] x [images, out] for each tap (window
// offset) and each pixel whose tap lies inside the image:
//
//   dw[o,a,b,c] = sum over i, j, then n of x[n, i s + a - pad, j s + b - pad, c] dy[n,i,j,o]
//
// The sum within a tile is over 32 images, so no pixel is padded and a tap is a shift by whole tiles. The taps of one
// axis, called the inner axis, are accumulated together: the operand of one tap is reused by the next from a tile or
// the first-level cache.
//
//   channels    multiples of 16 input channels: a tile's rows are channels, the inner axis is the width
//   windows     others: a tile's rows are 16 of the taps of a row of the filter times channels, which are contiguous;
//               the inner axis is the height, and the rows are padded with zeros at their ends
//
// A block is 32 images by the number of output rows whose tiles fit a second-level cache. Each thread processes its
// share of the blocks and has its own sums, because data that another thread has written is slow to read. The sums are
// added in the order of the threads, so the bits depend on the shape and on the number of threads.
#pragma once

#include <cupola/ops/host/impl/amx_operands.hpp>

#if defined(CUPOLA_HOST_AMX)

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <cupola/ops/convolution.hpp>
#include <cupola/tensor/algorithms.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The location of the operands of a call of `add_products`, with strides in bytes; the number of outputs on the outer
/// axis; and for the inner axis the number of outputs, the start of the first window, and the input's extent.
struct AmxWalk {
    const std::byte *inputs, *gradients;
    std::int64_t input_step, outer_input_step, gradient_step, outer_gradient_step;
    std::int64_t outer_count, count, start, stride, extent;
};

/// Accumulates the two or three `taps` of the inner axis from w.start on. The input of a tap is the input of the
/// preceding tap at the next output, so in this order each product loads one tile and keeps one. Using few tiles
/// matters: measured on a Sapphire Rapids processor whose cores were shared, the time of loops over 8 tiles varied by
/// up to a factor of four between measurements, and that of loops over 4 or 5 tiles by a factor of two. This would be
/// explained by the physical tiles for register renaming, about 12 in all, being shared.
template <int taps>
inline void add_products(const AmxWalk& w, std::byte* sums, std::int64_t tap_step, bool first) {
    constexpr int input_tile = taps, gradient_tile = taps + 1;
    unrolled<taps>([&](auto tap) {
        if (first) return zero_tile<tap>();
        load_tile<tap>(sums + tap * tap_step);
    });
    for (std::int64_t o = 0; o < w.outer_count; ++o) {
        const std::byte* const inputs = w.inputs + o * w.outer_input_step;
        const std::byte* gradients = w.gradients + o * w.outer_gradient_step;
        for (std::int64_t i = 0; i < w.count; ++i, gradients += w.gradient_step) {
            const std::int64_t start = w.start + i * w.stride;
            const bool inside = start >= 0 && start + taps <= w.extent;
            load_tile<gradient_tile>(gradients);
            const auto multiply = [&](auto tap, bool load) {
                if (!inside && (start + tap < 0 || start + tap >= w.extent)) return;
                if (load) load_tile<input_tile>(inputs + (start + tap) * w.input_step);
                multiply_tiles<tap, input_tile, gradient_tile>();
            };
            multiply(std::integral_constant<int, taps - 2>{}, i == 0 || w.stride != 1);
            unrolled<taps - 2>([&](auto tap) { multiply(tap, true); });
            multiply(std::integral_constant<int, taps - 1>{}, true);
        }
    }
    unrolled<taps>([&](auto tap) { store_tile<tap>(sums + tap * tap_step); });
}

class AmxWeightGradient {
public:
    /// Whether it is faster than oneDNN. It has neither groups nor dilation. It needs 2 taps or more on the inner axis
    /// and takes as long for a batch as for the next multiple of 32: with 64 input channels and more it is 1.4 times as
    /// fast as oneDNN at half of that multiple, with other numbers of channels at 7/8. Each thread has its own sums,
    /// whose total size is limited.
    [[nodiscard]] static bool suits(const ConvolutionShape& shape, std::int64_t batch, int threads) {
        const std::int64_t places = (batch + tile_depth - 1) / tile_depth * tile_depth;
        const bool full = by_channels(shape) && shape.in_channels >= 64 ? 2 * batch >= places : 8 * batch >= 7 * places;
        const std::int64_t weights = shape.height.window * shape.width.window * shape.in_channels * shape.out_channels;
        return shape.is_dense() && full && inner(shape).window >= 2 && shape.height.output > 0 &&
               shape.width.output > 0 && weights * threads <= max_sums;
    }

    AmxWeightGradient(const ConvolutionShape& shape, std::int64_t batch, int threads)
        : height_(shape.height),
          width_(shape.width),
          in_(shape.in_channels),
          out_(shape.out_channels),
          batch_(batch),
          channels_(by_channels(shape)),
          taps_(inner(shape).window),
          outer_taps_(channels_ ? height_.window : 1),
          lines_(channels_ ? in_ : width_.window * in_),
          row_tiles_((lines_ + 15) / 16),
          out_tiles_((out_ + 15) / 16),
          input_row_bytes_(channels_ ? width_.input * row_tiles_ * tile_bytes
                                     : 64 * std::max((width_.output - 1) * width_.stride * in_ + row_tiles_ * 16,
                                                     (width_.pad_begin + width_.input) * in_)),
          chunks_((batch + tile_depth - 1) / tile_depth) {
        while (band_rows() > 1 && (input_bytes() + gradient_bytes() > block_budget ||
                                   (chunks_ * bands_ % threads != 0 && chunks_ * bands_ < 4 * threads))) {
            ++bands_;
        }
        parts_ = std::min<std::int64_t>(threads, chunks_ * bands_);
    }

    [[nodiscard]] std::size_t scratch_bytes() const { return static_cast<std::size_t>(parts_ * part_bytes()); }

    /// `bias_gradient` may be null. Both gradients are written, or added to if `add` is set.
    void run(const HostContext& context, const BFloat16* input, const BFloat16* output_gradient, float* weight_gradient,
             float* bias_gradient, bool add, std::byte* scratch) const {
        parallel_for(context, parts_, [=, this](std::int64_t part) {
            add_up(input, output_gradient, chunks_ * bands_ * part / parts_, chunks_ * bands_ * (part + 1) / parts_,
                   scratch + part * part_bytes());
        });
        parallel_for(context, groups() * row_tiles_,
                     [=, this](std::int64_t tile) { write_weights(scratch, tile, add, weight_gradient); });
        if (bias_gradient == nullptr) return;
        for (std::int64_t o = 0; o < out_; ++o) {
            float sum = add ? bias_gradient[o] : 0.0F;
            for (std::int64_t part = 0; part < parts_; ++part) sum += biases(scratch + part * part_bytes())[o];
            bias_gradient[o] = sum;
        }
    }

private:
    /// 128 MB.
    static constexpr std::int64_t max_sums = 1 << 25;
    /// 768 KB for the operands of a block, in a second-level cache of 2 MB together with the sums and the data being
    /// read.
    static constexpr std::int64_t block_budget = 3 << 18;

    /// Images and rows of the output gradient, and the location of their tiles.
    struct Block {
        std::int64_t image, images, row, rows;
        std::byte *inputs, *gradients;
    };

    [[nodiscard]] static bool by_channels(const ConvolutionShape& shape) { return shape.in_channels % 16 == 0; }
    [[nodiscard]] static const WindowAxis& inner(const ConvolutionShape& shape) {
        return by_channels(shape) ? shape.width : shape.height;
    }

    [[nodiscard]] std::int64_t band_rows() const { return (height_.output + bands_ - 1) / bands_; }
    /// One tile more than needed, because rows whose distance is a multiple of 4 KB map to the same sets of a cache.
    [[nodiscard]] std::int64_t gradient_row_bytes() const { return (width_.output * out_tiles_ + 1) * tile_bytes; }
    [[nodiscard]] std::int64_t input_bytes() const {
        return std::min((band_rows() - 1) * height_.stride + height_.window, height_.input) * input_row_bytes_;
    }
    [[nodiscard]] std::int64_t gradient_bytes() const { return band_rows() * gradient_row_bytes(); }
    /// Groups of `lines_` rows of sums: one group per tap, or per row of taps.
    [[nodiscard]] std::int64_t groups() const { return taps_ * outer_taps_; }
    [[nodiscard]] std::int64_t sum_bytes() const { return groups() * row_tiles_ * out_tiles_ * tile_bytes; }
    [[nodiscard]] std::int64_t bias_bytes() const { return out_tiles_ * 64; }

    /// A part's memory: the sums of the weights, those of the biases, and the operands of a block.
    [[nodiscard]] std::int64_t part_bytes() const {
        return sum_bytes() + bias_bytes() + input_bytes() + gradient_bytes();
    }
    [[nodiscard]] float* biases(std::byte* part) const { return reinterpret_cast<float*>(part + sum_bytes()); }

    [[nodiscard]] std::int64_t first_input_row(const Block& b) const {
        return std::max<std::int64_t>(0, b.row * height_.stride - height_.pad_begin);
    }
    [[nodiscard]] std::int64_t input_rows(const Block& b) const {
        const std::int64_t end = (b.row + b.rows - 1) * height_.stride - height_.pad_begin + height_.window;
        return std::max<std::int64_t>(0, std::min(end, height_.input) - first_input_row(b));
    }

    /// The work of one thread: the sums over some of the blocks.
    void add_up(const BFloat16* input, const BFloat16* output_gradient, std::int64_t first, std::int64_t end,
                std::byte* sums) const {
        const AmxTiles tiles;
        std::byte *const inputs = sums + sum_bytes() + bias_bytes(), *const gradients = inputs + input_bytes();
        std::memset(biases(sums), 0, static_cast<std::size_t>(bias_bytes()));
        for (std::int64_t i = first; i < end; ++i) {
            const std::int64_t image = i / bands_ * tile_depth, band = i % bands_;
            const std::int64_t row = height_.output * band / bands_, end_row = height_.output * (band + 1) / bands_;
            const Block b{image, std::min(tile_depth, batch_ - image), row, end_row - row, inputs, gradients};
            for (std::int64_t r = 0; r < input_rows(b); ++r) write_inputs(input, b, r);
            for (std::int64_t r = 0; r < b.rows; ++r) write_gradients(output_gradient, b, r, biases(sums));
            for (std::int64_t tap = 0; tap < outer_taps_; ++tap) {
                for (std::int64_t line = 0; line < row_tiles_; ++line) {
                    for (std::int64_t out = 0; out < out_tiles_; ++out) multiply(b, tap, line, out, sums, i == first);
                }
            }
        }
    }

    void write_inputs(const BFloat16* input, const Block& b, std::int64_t row) const {
        const std::int64_t elements = width_.input * in_, image = height_.input * elements;
        const BFloat16* const from = input + b.image * image + (first_input_row(b) + row) * elements;
        std::byte* const to = b.inputs + row * input_row_bytes_;
        if (channels_)
            return write_columns(from, {b.images, image}, elements, to, row_tiles_, width_.input * tile_bytes);
        const std::int64_t begin = width_.pad_begin * in_ * 64, end = begin + elements * 64;
        std::memset(to, 0, static_cast<std::size_t>(begin));
        write_columns(from, {b.images, image}, elements, to + begin, 1, 0);
        std::memset(to + end, 0, static_cast<std::size_t>(input_row_bytes_ - end));
    }

    void write_gradients(const BFloat16* output_gradient, const Block& b, std::int64_t row, float* bias_sums) const {
        const std::int64_t elements = width_.output * out_, image = height_.output * elements;
        const BFloat16* const from = output_gradient + b.image * image + (b.row + row) * elements;
        write_pairs(from, {b.images, image}, width_.output, out_, b.gradients + row * gradient_row_bytes(), tile_bytes,
                    width_.output * tile_bytes, bias_sums);
    }

    /// The sums of a tap of the outer axis, 16 rows of a group and 16 output channels.
    void multiply(const Block& b, std::int64_t tap, std::int64_t line, std::int64_t out, std::byte* sums,
                  bool first) const {
        const std::byte* const gradients = b.gradients + out * width_.output * tile_bytes;
        const std::int64_t first_row = first_input_row(b), tap_step = row_tiles_ * out_tiles_ * tile_bytes;
        std::byte* const to = sums + tap * taps_ * tap_step + (line * out_tiles_ + out) * tile_bytes;
        if (!channels_) {
            return add_taps({b.inputs + line * tile_bytes, gradients, input_row_bytes_, width_.stride * in_ * 64,
                             gradient_row_bytes(), tile_bytes, width_.output, b.rows,
                             b.row * height_.stride - height_.pad_begin - first_row, height_.stride, input_rows(b)},
                            to, tap_step, first);
        }
        // The output rows whose tap is inside the image.
        const std::int64_t offset = tap - height_.pad_begin, s = height_.stride;
        const std::int64_t begin = std::max(b.row, offset >= 0 ? 0 : (s - 1 - offset) / s);
        const std::int64_t end =
            std::min(b.row + b.rows, height_.input <= offset ? 0 : (height_.input - 1 - offset) / s + 1);
        add_taps({b.inputs + ((begin * s + offset - first_row) * row_tiles_ + line) * width_.input * tile_bytes,
                  gradients + (begin - b.row) * gradient_row_bytes(), tile_bytes, s * input_row_bytes_, tile_bytes,
                  gradient_row_bytes(), end - begin, width_.output, -width_.pad_begin, width_.stride, width_.input},
                 to, tap_step, first);
    }

    /// All taps of the inner axis, two or three at a time.
    void add_taps(AmxWalk walk, std::byte* sums, std::int64_t tap_step, bool first) const {
        const std::int64_t passes = (taps_ + 2) / 3, start = walk.start;
        for (std::int64_t pass = 0; pass < passes; ++pass) {
            const std::int64_t tap = taps_ * pass / passes, end = taps_ * (pass + 1) / passes;
            walk.start = start + tap;
            (end - tap == 2 ? add_products<2> : add_products<3>)(walk, sums + tap * tap_step, tap_step, first);
        }
    }

    /// Adds up to 16 rows of the parts' sums, for all output channels, and writes them to the gradient's own layout.
    void write_weights(const std::byte* sums, std::int64_t tile, bool add, float* weight_gradient) const {
        const std::int64_t group = tile / row_tiles_, line = tile % row_tiles_ * 16, row = groups() * lines_;
        const __mmask16 valid = first_lanes(lines_ - line);
        for (std::int64_t out = 0; out < out_tiles_; ++out) {
            __m512i values[16];
            for (int r = 0; r < 16; ++r) {
                const std::byte* const from = sums + (tile * out_tiles_ + out) * tile_bytes + r * 64;
                __m512 sum = _mm512_load_ps(from);
                for (std::int64_t part = 1; part < parts_; ++part)
                    sum = _mm512_add_ps(sum, _mm512_load_ps(from + part * part_bytes()));
                values[r] = _mm512_castps_si512(sum);
            }
            transpose16(values);
            for (int o = 0; o < 16; ++o) {
                if (out * 16 + o >= out_) return;
                float* const to = weight_gradient + (out * 16 + o) * row + group * lines_ + line;
                const __m512 value = _mm512_castsi512_ps(values[o]);
                store16(to, add ? _mm512_add_ps(load16(to, valid), value) : value, valid);
            }
        }
    }

    WindowAxis height_, width_;
    std::int64_t in_, out_, batch_;
    bool channels_;
    std::int64_t taps_, outer_taps_, lines_, row_tiles_, out_tiles_, input_row_bytes_, chunks_, bands_ = 1, parts_ = 1;
};

}}}  // namespace cupola::CUPOLA_ABI::impl

#endif
