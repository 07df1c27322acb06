// SPDX-License-Identifier: Apache-2.0
//
// The gradients of weight and bias of convolutions with few channels on one side, for which oneDNN's kernels take many
// times as long as the products themselves: images of one or two channels, whose products with the outputs' gradients
// are computed in vectors of output channels; and kernels of 1 x 1 with few output channels, in vectors of input
// channels. Each part of the rows has sums of its own, which are added in the order of the parts: the bits do not
// depend on the number of threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <cupola/device/host.hpp>
#include <cupola/ops/convolution.hpp>
#include <cupola/ops/window.hpp>
#include <cupola/tensor/algorithms.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

class NarrowWeightGradient {
public:
    NarrowWeightGradient(const ConvolutionShape& shape, std::int64_t batch)
        : s_(shape),
          rows_(batch * shape.height.output),
          rows_per_part_(std::max<std::int64_t>(
              {1, (rows_ + max_parts - 1) / max_parts, (min_pixels + s_.width.output - 1) / s_.width.output})),
          parts_((rows_ + rows_per_part_ - 1) / rows_per_part_) {}

    /// Whether this is faster than oneDNN.
    [[nodiscard]] static bool suits(const ConvolutionShape& s) {
        const bool few_inputs = s.in_channels <= 2 && s.out_channels >= 8 && weights_of(s) <= 8192;
        return few_inputs || (is_point(s) && s.out_channels < 16 && s.in_channels >= 8 && s.in_channels <= 1024);
    }

    [[nodiscard]] std::size_t scratch_bytes() const {
        return static_cast<std::size_t>(parts_ * sums()) * sizeof(float);
    }

    /// `bias` may be null.
    void run(const HostContext& context, const float* x, const float* dy, float* weight, float* bias, bool accumulate,
             std::byte* scratch) const {
        auto* const all = reinterpret_cast<float*>(scratch);
        parallel_for(context, parts_, [&](std::int64_t part) {
            float* const sum = all + part * sums();
            std::fill(sum, sum + sums(), 0.0F);
            const std::int64_t begin = part * rows_per_part_, end = std::min(rows_, begin + rows_per_part_);
            for (std::int64_t row = begin; row < end; ++row) {
                const float* const gradients = dy + row * s_.width.output * s_.out_channels;
                add_bias(gradients, sum + weights_of(s_));
                if (is_point(s_)) {
                    add_point(x + row * s_.width.input * s_.in_channels, gradients, sum);
                } else {
                    add_row(x, row, gradients, sum);
                }
            }
        });
        for (std::int64_t part = 1; part < parts_; ++part) {
            const float* const from = all + part * sums();
#pragma omp simd
            for (std::int64_t i = 0; i < sums(); ++i) all[i] += from[i];
        }
        const std::int64_t out = s_.out_channels, inner = weights_of(s_) / out;
        for (std::int64_t o = 0; o < out; ++o) {
            for (std::int64_t i = 0; i < inner; ++i) {
                const float value = is_point(s_) ? all[o * inner + i] : all[i * out + o];
                float& to = weight[o * inner + i];
                to = accumulate ? to + value : value;
            }
            if (bias != nullptr) bias[o] = (accumulate ? bias[o] : 0.0F) + all[weights_of(s_) + o];
        }
    }

private:
    static constexpr std::int64_t max_parts = 64, min_pixels = 256;

    [[nodiscard]] static std::int64_t weights_of(const ConvolutionShape& s) {
        return s.height.window * s.width.window * s.in_channels * s.out_channels;
    }
    [[nodiscard]] std::int64_t sums() const { return weights_of(s_) + s_.out_channels; }
    /// A kernel of 1 x 1 whose outputs are the input's pixels.
    [[nodiscard]] static bool is_point(const ConvolutionShape& s) {
        const auto one = [](const WindowAxis& a) { return a.window == 1 && a.stride == 1 && a.output == a.input; };
        return one(s.height) && one(s.width);
    }

    void add_bias(const float* gradients, float* sum) const {
        const std::int64_t out = s_.out_channels;
        for (std::int64_t j = 0; j < s_.width.output; ++j) {
#pragma omp simd
            for (std::int64_t o = 0; o < out; ++o) sum[o] += gradients[j * out + o];
        }
    }

    void add_point(const float* x, const float* gradients, float* sum) const {
        const std::int64_t out = s_.out_channels, in = s_.in_channels;
        for (std::int64_t j = 0; j < s_.width.output; ++j) {
            const float* const pixel = x + j * in;
            for (std::int64_t o = 0; o < out; ++o) {
                const float gradient = gradients[j * out + o];
                float* const to = sum + o * in;
#pragma omp simd
                for (std::int64_t c = 0; c < in; ++c) to[c] += gradient * pixel[c];
            }
        }
    }

    /// Row `row` of the outputs of all images, in the layout [window, in, out].
    void add_row(const float* x, std::int64_t row, const float* gradients, float* sum) const {
        const std::int64_t out = s_.out_channels, in = s_.in_channels;
        const std::int64_t sample = row / s_.height.output, i = row % s_.height.output;
        const std::int64_t top = window_start(s_.height, i);
        const std::int64_t first = window_begin(s_.height, i), last = window_end(s_.height, i);
        for (std::int64_t j = 0; j < s_.width.output; ++j) {
            const float* const gradient = gradients + j * out;
            const std::int64_t left = window_start(s_.width, j);
            const std::int64_t begin = window_begin(s_.width, j), end = window_end(s_.width, j);
            for (std::int64_t y = first; y < last; ++y) {
                const float* const from = x + ((sample * s_.height.input + y) * s_.width.input + begin) * in;
                float* const to = sum + ((y - top) * s_.width.window + begin - left) * in * out;
                for (std::int64_t k = 0; k < (end - begin) * in; ++k) {
                    const float value = from[k];
                    float* const products = to + k * out;
#pragma omp simd
                    for (std::int64_t o = 0; o < out; ++o) products[o] += value * gradient[o];
                }
            }
        }
    }

    ConvolutionShape s_;
    std::int64_t rows_, rows_per_part_, parts_;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
