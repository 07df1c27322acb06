// SPDX-License-Identifier: Apache-2.0
//
// The sums of a convolution's weight gradient over rows of outputs, for images of few channels: for each element of the
// window a row of output channels,
//
//   sum[element, o] = sum over pixels of x[pixel, element] * dy[pixel, o]
//
// in blocks of pixels. The rows of the image that a block needs are copied between the zeros of the padding, so that no
// element is outside, and its gradients in one or two vectors of channels without gaps: both stay in the first-level
// cache, and the sums of a few elements over the block in registers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <cupola/core/finite.hpp>
#include <cupola/ops/activation.hpp>
#include <cupola/ops/convolution.hpp>
#include <cupola/ops/host/impl/lanes.hpp>
#include <cupola/ops/window.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

class NarrowImageGradient {
public:
    explicit NarrowImageGradient(const ConvolutionShape& shape)
        : s_(shape),
          line_(shape.width.window * shape.in_channels),
          columns_(equal_parts(shape.width.output, most_columns())),
          rows_(equal_parts(shape.height.output, most_rows())) {}

    /// Of the window.
    [[nodiscard]] std::int64_t elements() const { return s_.height.window * line_; }

    /// Adds the sums over rows [begin, end) of the outputs of all images: element e's are at sums + e * stride, those
    /// of the bias follow the last element's. `stride` is a multiple of 16. `y` is null, or has the outputs of a ReLU
    /// that is a part of the convolution, whose mask dy still lacks.
    void add_rows(const float* x, const float* dy, const float* y, std::int64_t begin, std::int64_t end, float* sums,
                  std::int64_t stride) const {
        alignas(64) float pixels[max_inputs];
        const std::int64_t height = s_.height.output, width = s_.width.output, out = s_.out_channels;
        for (std::int64_t row = begin, rows = 0; row < end; row += rows) {
            const std::int64_t sample = row / height, first = row % height;
            rows = std::min({rows_, end - row, height - first});
            const float* const image = x + sample * s_.height.input * s_.width.input * s_.in_channels;
            for (std::int64_t column = 0; column < width; column += columns_) {
                const Block block{first, rows, column, std::min(columns_, width - column)};
                copy_image(image, block, pixels);
                const std::int64_t at = (row * width + column) * out;
                for (std::int64_t o = 0; o < out; o += 2 * lane_count) {
                    const Slice slice{.gradients = dy + at + o,
                                      .outputs = y != nullptr ? y + at + o : nullptr,
                                      .next = (out + o) * block.rows * block.columns - o,
                                      .channels = std::min(2 * lane_count, out - o),
                                      .sums = sums + o,
                                      .stride = stride};
                    if (slice.channels > lane_count) {
                        add_slice<2>(image, pixels, block, slice);
                    } else {
                        add_slice<1>(image, pixels, block, slice);
                    }
                }
            }
        }
    }

private:
    /// The largest block: with AVX2 8 KB of gradients, half of a cache of 32 KB together with the next ones, which are
    /// fetched meanwhile; and 32 KB of the image, of which the sums of a few elements read a part.
    static constexpr std::int64_t max_pixels = 128, max_inputs = 8192;
    /// Elements whose sums are in registers at once: twice as many vectors hide the latency of two multiply-adds per
    /// cycle, and AVX2 has 16 registers.
    static constexpr std::int64_t max_elements = 6;

    /// Outputs of one image.
    struct Block {
        std::int64_t row, rows, column, columns;
    };
    /// A block's gradients in some channels, the outputs there if they have a ReLU, the distance to those that will be
    /// read after them, and the channels' sums.
    struct Slice {
        const float *gradients, *outputs;
        std::int64_t next, channels;
        float* sums;
        std::int64_t stride;
    };

    [[nodiscard]] static std::int64_t equal_parts(std::int64_t count, std::int64_t limit) {
        const std::int64_t parts = (count + limit - 1) / limit;
        return (count + parts - 1) / parts;
    }
    [[nodiscard]] std::int64_t most_columns() const {
        const std::int64_t pixels = max_inputs / (s_.height.window * s_.in_channels);
        return std::clamp<std::int64_t>((pixels - s_.width.window) / s_.width.stride + 1, 1, max_pixels);
    }
    [[nodiscard]] std::int64_t most_rows() const {
        const std::int64_t lines = max_inputs / line_of(columns_);
        return std::clamp<std::int64_t>((lines - s_.height.window) / s_.height.stride + 1, 1, max_pixels / columns_);
    }
    /// The floats of a copied row of the image for so many outputs.
    [[nodiscard]] std::int64_t line_of(std::int64_t columns) const {
        return ((columns - 1) * s_.width.stride + s_.width.window) * s_.in_channels;
    }

    void copy_image(const float* image, const Block& block, float* to) const {
        const std::int64_t in = s_.in_channels, width = s_.width.input, line = line_of(block.columns);
        const std::int64_t top = window_start(s_.height, block.row), left = window_start(s_.width, block.column);
        const std::int64_t bottom = top + (block.rows - 1) * s_.height.stride + s_.height.window;
        const std::int64_t begin = std::clamp<std::int64_t>(left, 0, width) * in;
        const std::int64_t end = std::clamp<std::int64_t>(left + line / in, 0, width) * in;
        for (std::int64_t y = top; y < bottom; ++y, to += line) {
            const float* const from = image + y * width * in;
            const bool inside = y >= 0 && y < s_.height.input;
            float* const zeros =
                inside ? std::copy(from + begin, from + end, std::fill_n(to, begin - left * in, 0.0F)) : to;
            std::fill(zeros, to + line, 0.0F);
        }
    }

    template <std::size_t Vectors>
    void add_slice(const float* image, const float* pixels, const Block& block, const Slice& slice) const {
        alignas(
            64) float gradients[static_cast<std::size_t>(max_pixels * static_cast<std::int64_t>(Vectors) * lane_count)];
        if (copy_gradients<Vectors>(block, slice, gradients)) {
            add_products<Vectors>(pixels, block, gradients, slice);
        } else {
            add_inside(image, block, gradients, static_cast<std::int64_t>(Vectors) * lane_count, slice);
        }
    }

    /// Copies a slice of gradients, masked where there is a ReLU, with zeros to fill the vectors, and adds their sum to
    /// the bias. False where one of them is not finite.
    template <std::size_t Vectors>
    bool copy_gradients(const Block& block, const Slice& slice, float* to) const {
        constexpr std::int64_t width = static_cast<std::int64_t>(Vectors) * lane_count;
        Lanes sum[Vectors] = {};
        const auto copy = [&](auto whole, auto masked) __attribute__((always_inline)) {
            const std::int64_t channels = whole ? width : slice.channels;
            for (std::int64_t row = 0; row < block.rows; ++row) {
                std::int64_t at = row * s_.width.output * s_.out_channels;
                for (std::int64_t column = 0; column < block.columns; ++column, at += s_.out_channels, to += width) {
                    const float* from = slice.gradients + at;
                    if constexpr (masked) {
                        const float* const outputs = slice.outputs + at;
#pragma omp simd
                        for (std::int64_t o = 0; o < channels; ++o)
                            to[o] = ReluFormula{}.gradient_from_output(outputs[o], from[o]);
                        from = to;
                    } else if constexpr (!whole) {
                        from = std::copy_n(from, channels, to) - channels;
                    }
                    if constexpr (!whole) std::fill(to + channels, to + width, 0.0F);
                    for_each_index<Vectors>([&](auto v) __attribute__((always_inline)) {
                        const std::int64_t o = static_cast<std::int64_t>(v) * lane_count;
                        const Lanes value = load_lanes(from + o);
                        if constexpr (whole && !masked) store_lanes(to + o, value);
                        sum[v] += value;
                    });
                }
            }
        };
        const std::true_type yes;
        const std::false_type no;
        if (slice.outputs != nullptr) {
            slice.channels == width ? copy(yes, yes) : copy(no, yes);
        } else {
            slice.channels == width ? copy(yes, no) : copy(no, no);
        }
        float sums[static_cast<std::size_t>(width)];
        for_each_index<Vectors>([&](auto v) __attribute__((always_inline)) {
            store_lanes(sums + static_cast<std::int64_t>(v) * lane_count, sum[v]);
        });
        float* const bias = slice.sums + elements() * slice.stride;
        bool finite = true;
        for (std::int64_t o = 0; o < slice.channels; ++o) {
            finite = finite && is_finite(sums[o]);
            bias[o] += sums[o];
        }
        return finite;
    }

    /// Adds the products of all elements, in groups of almost the same size, and fetches the next gradients meanwhile.
    template <std::size_t Vectors>
    void add_products(const float* pixels, const Block& block, const float* gradients, const Slice& slice) const {
        constexpr std::int64_t line_floats = 16;  // of a cache
        const std::int64_t groups = (elements() + max_elements - 1) / max_elements;
        const std::int64_t next_floats = block.rows * block.columns * static_cast<std::int64_t>(Vectors) * lane_count;
        const float* from = pixels;
        std::int64_t place = 0;
        for (std::int64_t group = 0, first = 0; group < groups; ++group) {
            const std::int64_t end = elements() * (group + 1) / groups;
            const float* x[max_elements];
            for (std::int64_t e = first; e < end; ++e) {
                x[e - first] = from + place;
                if (++place == line_) {
                    place = 0;
                    from += line_of(block.columns);
                }
            }
            for (std::int64_t i = next_floats * group / groups; i < next_floats * (group + 1) / groups;
                 i += line_floats) {
                __builtin_prefetch(slice.gradients + slice.next + i);
                if (slice.outputs != nullptr) __builtin_prefetch(slice.outputs + slice.next + i);
            }
            for_each_index<max_elements>([&](auto i) {
                if (end - first == i + 1)
                    multiply<i + 1, Vectors>(x, block, gradients, slice.sums + first * slice.stride, slice.stride);
            });
            first = end;
        }
    }

    /// Adds to sums[e * stride + o] the sum over the block of x[e][pixel] * gradients[pixel, o].
    template <std::size_t Elements, std::size_t Vectors>
    [[gnu::noinline]] void multiply(const float* const* elements, const Block& block, const float* gradients,
                                    float* sums, std::int64_t stride) const {
        const std::int64_t step = s_.width.stride * s_.in_channels;
        const std::int64_t row_step = s_.height.stride * line_of(block.columns);
        Lanes sum[Elements * Vectors];
        for_each_index<Elements * Vectors>([&](auto i) __attribute__((always_inline)) { sum[i] = Lanes{}; });
        const float* x[Elements];
        for_each_index<Elements>([&](auto e) __attribute__((always_inline)) { x[e] = elements[e]; });
        for (std::int64_t row = 0; row < block.rows; ++row) {
            const std::int64_t end = row * row_step + block.columns * step;
            for (std::int64_t at = row * row_step; at < end; at += step) {
                Lanes gradient[Vectors];
                for_each_index<Vectors>([&](auto v) __attribute__((always_inline)) {
                    gradient[v] = load_lanes(gradients);
                    gradients += lane_count;
                });
                for_each_index<Elements>([&](auto e) __attribute__((always_inline)) {
                    for_each_index<Vectors>([&](auto v) __attribute__((always_inline)) {
                        sum[e * Vectors + v] += x[e][at] * gradient[v];
                    });
                });
            }
        }
        for_each_index<Elements * Vectors>([&](auto i) __attribute__((always_inline)) {
            float* const to = sums + static_cast<std::int64_t>(i / Vectors) * stride +
                              static_cast<std::int64_t>(i % Vectors) * lane_count;
            store_lanes(to, load_lanes(to) + sum[i]);
        });
    }

    /// The same without the padding, whose products with a gradient that is not finite would be NaN.
    void add_inside(const float* image, const Block& block, const float* gradients, std::int64_t width,
                    const Slice& slice) const {
        const std::int64_t in = s_.in_channels;
        for (std::int64_t i = block.row; i < block.row + block.rows; ++i) {
            for (std::int64_t j = block.column; j < block.column + block.columns; ++j, gradients += width) {
                const std::int64_t left = window_start(s_.width, j) * in;
                const std::int64_t begin = window_begin(s_.width, j) * in, end = window_end(s_.width, j) * in;
                for (std::int64_t y = window_begin(s_.height, i); y < window_end(s_.height, i); ++y) {
                    float* const to = slice.sums + (y - window_start(s_.height, i)) * line_ * slice.stride;
                    for (std::int64_t k = begin; k < end; ++k) {
                        const float value = image[y * s_.width.input * in + k];
                        for (std::int64_t o = 0; o < slice.channels; ++o)
                            to[(k - left) * slice.stride + o] += value * gradients[o];
                    }
                }
            }
        }
    }

    ConvolutionShape s_;
    std::int64_t line_, columns_, rows_;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
