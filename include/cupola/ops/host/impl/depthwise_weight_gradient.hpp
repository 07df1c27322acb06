// SPDX-License-Identifier: Apache-2.0
//
// The gradients of weight and bias of a depthwise convolution, whose output channel c reads input channel c alone:
//
//   dw[c, a, b] = sum over n, i, j of x[n, i*s + a*d - pad, j*s + b*d - pad, c] * dy[n, i, j, c]
//
// Each part of the images and of a register's channels has sums of its own, which are added in the order of the parts:
// the bits do not depend on the number of threads. The rows of the image that a few rows of outputs need are copied
// first, a register per pixel: in the image they lie a whole row of channels apart, and few of them would fit in a
// first-level cache. The sums of one to three rows of the window are then in registers for a row of outputs; inputs
// outside the image are left out, so that nothing is multiplied by the zeros of the padding.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>

#include <cupola/device/host.hpp>
#include <cupola/ops/convolution.hpp>
#include <cupola/ops/host/impl/element.hpp>
#include <cupola/ops/host/impl/lanes.hpp>
#include <cupola/ops/window.hpp>
#include <cupola/tensor/algorithms.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

template <HostElement T>
class DepthwiseWeightGradient {
public:
    DepthwiseWeightGradient(const ConvolutionShape& shape, std::int64_t batch, int threads)
        : s_(shape),
          batch_(batch),
          threads_(threads),
          taps_(shape.height.window * shape.width.window),
          blocks_(shape.in_channels / lane_count),
          parts_(std::min(batch, max_parts)),
          band_(std::clamp<std::int64_t>((max_pixels / shape.width.input - rows_of(shape)) / shape.height.stride + 1, 1,
                                         shape.height.output)) {}

    /// Whether the kernel is for this shape: depthwise, whole registers of channels, windows of 3, 5 or 7 columns.
    [[nodiscard]] static bool supports(const ConvolutionShape& s) {
        const std::int64_t columns = s.width.window;
        return s.groups > 1 && s.groups == s.in_channels && s.in_channels == s.out_channels &&
               s.in_channels % lane_count == 0 && (columns == 3 || columns == 5 || columns == 7) &&
               s.height.window * columns <= max_taps && rows_of(s) <= max_pixels / s.width.input;
    }
    /// Whether it is also faster than oneDNN. oneDNN has a kernel for windows of 3 columns without dilation and with at
    /// most one column of padding, which is faster in float; and it chooses its instructions at run time: without AVX2
    /// it may have wider vectors.
    [[nodiscard]] static bool suits(const ConvolutionShape& s) {
        const bool no_dilation = s.height.dilation == 1 && s.width.dilation == 1;
        const bool onednn_has_kernel =
            s.width.window == 3 && no_dilation && s.width.pad_begin <= 1 && s.width.pad_end <= 1;
        return lane_count > 4 && supports(s) && !(std::same_as<T, float> && onednn_has_kernel);
    }

    [[nodiscard]] std::size_t scratch_bytes() const {
        return static_cast<std::size_t>(parts_ * blocks_ * sums() + threads_ * max_pixels * lane_count) * sizeof(float);
    }

    /// `bias` may be null.
    void run(const HostContext& context, const T* x, const T* dy, float* weight, float* bias, bool accumulate,
             std::byte* scratch) const {
        auto* const all = reinterpret_cast<float*>(scratch);
        const std::int64_t tasks = parts_ * blocks_;
        parallel_for(context, threads_, [&](std::int64_t thread) {
            float* const pixels = all + tasks * sums() + thread * max_pixels * lane_count;
            for (std::int64_t task = tasks * thread / threads_; task < tasks * (thread + 1) / threads_; ++task) {
                const std::int64_t part = task / blocks_, channel = task % blocks_ * lane_count;
                Lanes total[max_taps + 1];
                std::fill_n(total, taps_ + 1, Lanes{});
                for (std::int64_t image = batch_ * part / parts_; image < batch_ * (part + 1) / parts_; ++image)
                    add_image(x + image * s_.height.input * s_.width.input * s_.in_channels + channel,
                              dy + image * s_.height.output * s_.width.output * s_.in_channels + channel, pixels,
                              total);
                for (std::int64_t t = 0; t <= taps_; ++t) store_lanes(all + task * sums() + t * lane_count, total[t]);
            }
        });
        parallel_for(context, blocks_, [&](std::int64_t block) {
            float* const sum = all + block * sums();
            for (std::int64_t part = 1; part < parts_; ++part) {
                const float* const from = sum + part * blocks_ * sums();
                for (std::int64_t i = 0; i < sums(); i += lane_count)
                    store_lanes(sum + i, load_lanes(sum + i) + load_lanes(from + i));
            }
            for (std::int64_t c = 0; c < lane_count; ++c) {
                const std::int64_t channel = block * lane_count + c;
                const auto write = [&](float& to, float value) { to = accumulate ? to + value : value; };
                for (std::int64_t t = 0; t < taps_; ++t) write(weight[channel * taps_ + t], sum[t * lane_count + c]);
                if (bias != nullptr) write(bias[channel], sum[taps_ * lane_count + c]);
            }
        });
    }

private:
    static constexpr std::int64_t max_parts = 8, max_taps = 49;
    /// Of the copy: 128 KB with AVX-512, in a second-level cache.
    static constexpr std::int64_t max_pixels = 2048;

    /// From the first row of a window to the last.
    [[nodiscard]] static std::int64_t rows_of(const ConvolutionShape& s) {
        return window_reach(s.height.window, s.height.dilation);
    }
    /// Of a task: one register per element of the window, and the bias'.
    [[nodiscard]] std::int64_t sums() const { return (taps_ + 1) * lane_count; }

    /// Adds the sums of an image, which are of their own so that few numbers are added to a large one.
    void add_image(const T* x, const T* dy, float* pixels, Lanes* total) const {
        Lanes sum[max_taps + 1];
        std::fill_n(sum, taps_ + 1, Lanes{});
        const std::int64_t width = s_.width.input;
        for (std::int64_t first = 0; first < s_.height.output; first += band_) {
            const std::int64_t last = std::min(first + band_, s_.height.output) - 1;
            const std::int64_t top = std::max<std::int64_t>(window_start(s_.height, first), 0);
            const std::int64_t bottom = std::min(window_start(s_.height, last) + rows_of(s_), s_.height.input);
            for (std::int64_t p = 0; p < (bottom - top) * width; ++p)
                store_lanes(pixels + p * lane_count, load_lanes(x + (top * width + p) * s_.in_channels));
            for (std::int64_t i = first; i <= last; ++i) {
                const T* const gradients = dy + i * s_.width.output * s_.in_channels;
                for (std::int64_t j = 0; s_.bias && j < s_.width.output; ++j)
                    sum[taps_] += load_lanes(gradients + j * s_.in_channels);
                // The row of the copy where the window begins.
                const std::int64_t start = window_start(s_.height, i) - top, rows = bottom - top;
                switch (s_.width.window) {
                    case 3: add_rows<3, 3>(pixels, start, rows, gradients, sum); break;
                    case 5: add_rows<2, 5>(pixels, start, rows, gradients, sum); break;
                    default: add_rows<2, 7>(pixels, start, rows, gradients, sum);
                }
            }
        }
        for (std::int64_t t = 0; t <= taps_; ++t) total[t] += sum[t];
    }

    /// The rows of the window that begins in row `start` of `rows` rows of pixels, as far as they are there, `Rows` at
    /// a time.
    template <std::size_t Rows, std::size_t Columns>
    void add_rows(const float* pixels, std::int64_t start, std::int64_t rows, const T* dy, Lanes* sum) const {
        constexpr auto together = static_cast<std::int64_t>(Rows), columns = static_cast<std::int64_t>(Columns);
        const std::int64_t step = s_.height.dilation, row_step = step * s_.width.input * lane_count;
        std::int64_t a = start < 0 ? (step - 1 - start) / step : 0;
        const std::int64_t end = rows <= start ? 0 : std::min(s_.height.window, (rows - 1 - start) / step + 1);
        if (a >= end) return;
        const float* row = pixels + (start + a * step) * s_.width.input * lane_count;
        for (; a + together <= end; a += together, row += together * row_step)
            add<Rows, Columns>(row, row_step, dy, sum + a * columns);
        for (; a < end; ++a, row += row_step) add<1, Columns>(row, row_step, dy, sum + a * columns);
    }

    /// sum[a, b] += the sum over a row of outputs of x[a, j*s + b*d - pad] * dy[j].
    template <std::size_t Rows, std::size_t Columns>
    [[gnu::noinline]] void add(const float* x, std::int64_t row_step, const T* dy, Lanes* sum) const {
        constexpr auto columns = static_cast<std::int64_t>(Columns);
        const WindowAxis& w = s_.width;
        const std::int64_t channels = s_.in_channels, reach = window_reach(w.window, w.dilation);
        // The outputs whose windows are inside the image.
        const std::int64_t begin = std::min(w.output, (w.pad_begin + w.stride - 1) / w.stride);
        const std::int64_t last = w.input + w.pad_begin - reach;
        const std::int64_t end = last < 0 ? begin : std::clamp(last / w.stride + 1, begin, w.output);
        Lanes sums[Rows * Columns];
        for_each_index<Rows * Columns>([&](auto t) __attribute__((always_inline)) { sums[t] = sum[t]; });
        const auto add_part = [&](std::int64_t j) __attribute__((always_inline)) {
            const Lanes gradient = load_lanes(dy + j * channels);
            for (std::int64_t b = 0; b < columns; ++b) {
                const std::int64_t column = window_start(w, j) + b * w.dilation;
                if (column < 0 || column >= w.input) continue;
                for_each_index<Rows * Columns>([&](auto t) __attribute__((always_inline)) {
                    if (static_cast<std::int64_t>(t % Columns) != b) return;
                    sums[t] += load_lanes(x + static_cast<std::int64_t>(t / Columns) * row_step + column * lane_count) *
                               gradient;
                });
            }
        };
        for (std::int64_t j = 0; j < begin; ++j) add_part(j);
        const float* from = x + window_start(w, begin) * lane_count;
        for (std::int64_t j = begin; j < end; ++j, from += w.stride * lane_count) {
            const Lanes gradient = load_lanes(dy + j * channels);
            for_each_index<Rows * Columns>([&](auto t) __attribute__((always_inline)) {
                const std::int64_t at = static_cast<std::int64_t>(t / Columns) * row_step +
                                        static_cast<std::int64_t>(t % Columns) * w.dilation * lane_count;
                sums[t] += load_lanes(from + at) * gradient;
            });
        }
        for (std::int64_t j = end; j < w.output; ++j) add_part(j);
        for_each_index<Rows * Columns>([&](auto t) __attribute__((always_inline)) { sum[t] = sums[t]; });
    }

    ConvolutionShape s_;
    std::int64_t batch_, threads_, taps_, blocks_, parts_, band_;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
