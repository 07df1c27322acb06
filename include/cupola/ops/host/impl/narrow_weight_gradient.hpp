// SPDX-License-Identifier: Apache-2.0
//
// The gradients of weight and bias of convolutions with few channels on one side, for which oneDNN's kernels take many
// times as long as the products themselves: images of few channels, as RGB, and kernels of 1 x 1 with few output
// channels, whose products are computed in vectors of input channels. Each part of the rows has sums of its own, which
// are added in the order of the parts: the bits do not depend on the number of threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <cupola/device/host.hpp>
#include <cupola/ops/convolution.hpp>
#include <cupola/ops/host/impl/lanes.hpp>
#include <cupola/ops/host/impl/narrow_image_gradient.hpp>
#include <cupola/tensor/algorithms.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

class NarrowWeightGradient {
public:
    NarrowWeightGradient(const ConvolutionShape& shape, std::int64_t batch)
        : s_(shape),
          image_(shape),
          by_image_(!is_point(shape)),
          sum_rows_(by_image_ ? image_.elements() : shape.out_channels),
          sum_columns_(by_image_ ? shape.out_channels : shape.in_channels),
          stride_((std::max(shape.out_channels, sum_columns_) + 15) / 16 * 16),
          rows_(batch * shape.height.output),
          rows_per_part_(std::max<std::int64_t>(
              {1, (rows_ + max_parts - 1) / max_parts, (min_pixels + s_.width.output - 1) / s_.width.output})),
          parts_((rows_ + rows_per_part_ - 1) / rows_per_part_) {}

    /// Whether this is faster than oneDNN. It has neither groups nor dilation. Without AVX2 images of 3 and 4 channels
    /// are oneDNN's, which chooses its instructions at run time and may have wider vectors.
    [[nodiscard]] static bool suits(const ConvolutionShape& s) {
        if (!s.is_dense()) return false;
        if (is_point(s)) return s.out_channels < 16 && s.in_channels <= 1024;
        const bool one_or_two = s.in_channels <= 2 && s.out_channels >= 8;
        const bool three_or_four = lane_count > 4 && s.in_channels <= 4 && s.out_channels >= 16;
        return (one_or_two || three_or_four) &&
               s.height.window * s.width.window * s.in_channels * s.out_channels <= 16384;
    }

    [[nodiscard]] std::size_t scratch_bytes() const {
        return static_cast<std::size_t>(parts_ * sums()) * sizeof(float);
    }

    /// Whether run() takes the outputs `y` of a ReLU that is part of the convolution, whose mask it then applies to dy.
    [[nodiscard]] bool masks() const { return by_image_; }

    /// `y` and `bias` may be null.
    void run(const HostContext& context, const float* x, const float* dy, const float* y, float* weight, float* bias,
             bool accumulate, std::byte* scratch) const {
        auto* const all = reinterpret_cast<float*>(scratch);
        parallel_for(context, parts_, [&](std::int64_t part) {
            float* const sum = all + part * sums();
            std::fill(sum, sum + sums(), 0.0F);
            const std::int64_t begin = part * rows_per_part_, end = std::min(rows_, begin + rows_per_part_);
            if (by_image_) {
                image_.add_rows(x, dy, y, begin, end, sum, stride_);
            } else {
                add_points(x, dy, begin * s_.width.output, end * s_.width.output, sum);
            }
        });
        // The last row is the bias. Sums of an image are [element, out], and weights [out, element].
        parallel_for(context, sum_rows_ + (bias != nullptr ? 1 : 0), [&](std::int64_t row) {
            const bool is_bias = row == sum_rows_;
            const std::int64_t count = is_bias ? s_.out_channels : sum_columns_;
            float* const sum = all + row * stride_;
            for (std::int64_t part = 1; part < parts_; ++part) {
                const float* const from = sum + part * sums();
#pragma omp simd
                for (std::int64_t i = 0; i < count; ++i) sum[i] += from[i];
            }
            const bool transposed = by_image_ && !is_bias;
            float* const to = is_bias ? bias : weight + row * (transposed ? 1 : sum_columns_);
            const std::int64_t step = transposed ? sum_rows_ : 1;
            for (std::int64_t i = 0; i < count; ++i) to[i * step] = accumulate ? to[i * step] + sum[i] : sum[i];
        });
    }

private:
    static constexpr std::int64_t max_parts = 64, min_pixels = 256;

    /// A kernel of 1 x 1 whose outputs are the input's pixels, of many channels.
    [[nodiscard]] static bool is_point(const ConvolutionShape& s) {
        const auto one = [](const WindowAxis& a) { return a.window == 1 && a.stride == 1 && a.output == a.input; };
        return one(s.height) && one(s.width) && s.in_channels >= 8;
    }
    [[nodiscard]] std::int64_t sums() const { return (sum_rows_ + 1) * stride_; }

    /// The pixels [begin, end) of all images, for a kernel of 1 x 1.
    void add_points(const float* x, const float* dy, std::int64_t begin, std::int64_t end, float* sum) const {
        const std::int64_t out = s_.out_channels, in = s_.in_channels;
        float* const bias = sum + sum_rows_ * stride_;
        for (std::int64_t at = begin; at < end; ++at) {
            const float* const pixel = x + at * in;
            for (std::int64_t o = 0; o < out; ++o) {
                const float gradient = dy[at * out + o];
                bias[o] += gradient;
                float* const to = sum + o * stride_;
#pragma omp simd
                for (std::int64_t c = 0; c < in; ++c) to[c] += gradient * pixel[c];
            }
        }
    }

    ConvolutionShape s_;
    NarrowImageGradient image_;
    bool by_image_;
    std::int64_t sum_rows_, sum_columns_, stride_, rows_, rows_per_part_, parts_;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
