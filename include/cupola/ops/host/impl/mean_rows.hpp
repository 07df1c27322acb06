// SPDX-License-Identifier: Apache-2.0
//
// Means over windows that count padding and that may end outside of it (ceil_mode), one row of an image at a time: the
// divisor differs between windows, and oneDNN always divides by all elements. Backward gathers, as in pool_rows.hpp.
#pragma once

#include <algorithm>
#include <cstdint>

#include <cupola/core/abi.hpp>
#include <cupola/ops/host/impl/element.hpp>
#include <cupola/ops/pooling.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

class MeanRows {
public:
    explicit MeanRows(const PoolingShape& shape)
        : height_(shape.height), width_(shape.width), channels_(shape.channels) {}

    [[nodiscard]] std::int64_t inputs() const { return height_.input; }
    [[nodiscard]] std::int64_t outputs() const { return height_.output; }
    [[nodiscard]] std::int64_t input_row() const { return width_.input * channels_; }
    [[nodiscard]] std::int64_t output_row() const { return width_.output * channels_; }

    /// Computes output row i of the image `x`.
    template <class T>
    void forward(std::int64_t i, const T* x, T* y) const {
        for (std::int64_t j = 0; j < width_.output; ++j) {
            for (std::int64_t c = 0; c < channels_; c += block) {
                const std::int64_t count = std::min(block, channels_ - c);
                float sum[block] = {};
                for (std::int64_t a = window_begin(height_, i); a < window_end(height_, i); ++a) {
                    for (std::int64_t b = window_begin(width_, j); b < window_end(width_, j); ++b) {
                        const T* const from = x + a * input_row() + b * channels_ + c;
#pragma omp simd
                        for (std::int64_t k = 0; k < count; ++k) sum[k] += static_cast<float>(from[k]);
                    }
                }
                const float elements = counted_window(height_, i) * counted_window(width_, j);
                T* const to = y + j * channels_ + c;
#pragma omp simd
                for (std::int64_t k = 0; k < count; ++k) put(to[k], sum[k] / elements);
            }
        }
    }

    /// Computes row `at` of the gradient of an image's input from that of its whole output.
    template <class T>
    void backward(std::int64_t at, const T* dy, T* dx) const {
        for (std::int64_t x = 0; x < width_.input; ++x) {
            for (std::int64_t c = 0; c < channels_; c += block) {
                const std::int64_t count = std::min(block, channels_ - c);
                float sum[block] = {};
                for (std::int64_t i = first_output(height_, at); i <= last_output(height_, at); ++i) {
                    for (std::int64_t j = first_output(width_, x); j <= last_output(width_, x); ++j) {
                        const float elements = counted_window(height_, i) * counted_window(width_, j);
                        const T* const from = dy + i * output_row() + j * channels_ + c;
#pragma omp simd
                        for (std::int64_t k = 0; k < count; ++k) sum[k] += static_cast<float>(from[k]) / elements;
                    }
                }
                T* const to = dx + x * channels_ + c;
#pragma omp simd
                for (std::int64_t k = 0; k < count; ++k) put(to[k], sum[k]);
            }
        }
    }

private:
    static constexpr std::int64_t block = 64;

    WindowAxis height_, width_;
    std::int64_t channels_;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
