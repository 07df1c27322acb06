// SPDX-License-Identifier: Apache-2.0
//
// Local response normalisation on `Host`: one pass over each pixel's channels, the window summed by shifted vector
// loads. oneDNN's own needs a second tensor of the activation's size between forward and backward and falls to
// reference code where the channels are no multiple of the vector's length; this one keeps nothing and takes any.
#pragma once

#include <cmath>
#include <cstdint>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include <cupola/device/host.hpp>
#include <cupola/ops/local_response_norm.hpp>
#include <cupola/tensor/algorithms.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace ops {

template <>
class LocalResponseNorm<Host, float> {
public:
    LocalResponseNorm(const Site<Host>& site, const LocalResponseNormShape& shape)
        : shape_(shape), pixels_(site.batch * site.output.size() / shape.channels) {
        require(shape.channels + 2 * shape.radius <= max_row, "local response normalisation takes at most ", max_row,
                " channels with its window on both sides, not ", shape.channels, " + 2 x ", shape.radius);
    }

    void forward(const Pass<Host>& pass) const {
        for_each_pixel(pass.context, [this, &pass](std::int64_t pixel, Rows& rows) {
            const float* const x = pass.input + pixel * shape_.channels;
            float* const y = pass.output + pixel * shape_.channels;
            scale(x, rows);
            power(rows);
#pragma omp simd
            for (std::int64_t c = 0; c < shape_.channels; ++c) y[c] = x[c] * rows.power[c];
        });
    }

    /// dx[c] = dy[c] scale[c]^-beta - 2 alpha beta x[c] sum over the window of dy[c'] x[c'] scale[c']^(-beta - 1).
    void backward(const Pass<Host>& pass) const {
        if (pass.input_gradient == nullptr) return;
        for_each_pixel(pass.context, [this, &pass](std::int64_t pixel, Rows& rows) {
            const float* const x = pass.input + pixel * shape_.channels;
            const float* const dy = pass.output_gradient + pixel * shape_.channels;
            float* const dx = pass.input_gradient + pixel * shape_.channels;
            scale(x, rows);
            power(rows);
            float* const padded = rows.padded + shape_.radius;
#pragma omp simd
            for (std::int64_t c = 0; c < shape_.channels; ++c) padded[c] = dy[c] * x[c] * rows.power[c] / rows.scale[c];
            window_sum(rows);
            const float factor = 2.0F * shape_.alpha * shape_.beta;
#pragma omp simd
            for (std::int64_t c = 0; c < shape_.channels; ++c) {
                dx[c] = dy[c] * rows.power[c] - factor * x[c] * rows.sum[c];
            }
        });
    }

private:
    static constexpr std::int64_t max_row = 4096;

    /// One pixel's rows: `padded` has `radius` zeros on both sides.
    struct Rows {
        alignas(64) float padded[max_row];
        alignas(64) float sum[max_row];
        alignas(64) float scale[max_row];
        alignas(64) float power[max_row];
    };

    template <class Function>
    void for_each_pixel(const HostContext& context, Function&& f) const {
        constexpr std::int64_t pixels_a_block = 64;
        parallel_for(context, (pixels_ + pixels_a_block - 1) / pixels_a_block, [&](std::int64_t block) {
            Rows rows;
            const std::int64_t row = shape_.channels + 2 * shape_.radius;
            for (std::int64_t c = 0; c < shape_.radius; ++c) rows.padded[c] = rows.padded[row - 1 - c] = 0.0F;
            const std::int64_t end = std::min(pixels_, (block + 1) * pixels_a_block);
            for (std::int64_t pixel = block * pixels_a_block; pixel < end; ++pixel) f(pixel, rows);
        });
    }

    void window_sum(Rows& rows) const {
        const std::int64_t channels = shape_.channels, window = 2 * shape_.radius + 1;
        for (std::int64_t c0 = 0; c0 < channels; c0 += 16) {
            float sum[16] = {};
            const std::int64_t count = std::min<std::int64_t>(16, channels - c0);
            if (count == 16) {
                for (std::int64_t d = 0; d < window; ++d) {
#pragma omp simd
                    for (std::int64_t c = 0; c < 16; ++c) sum[c] += rows.padded[c0 + c + d];
                }
#pragma omp simd
                for (std::int64_t c = 0; c < 16; ++c) rows.sum[c0 + c] = sum[c];
            } else {
                for (std::int64_t d = 0; d < window; ++d) {
                    for (std::int64_t c = 0; c < count; ++c) sum[c] += rows.padded[c0 + c + d];
                }
                for (std::int64_t c = 0; c < count; ++c) rows.sum[c0 + c] = sum[c];
            }
        }
    }

    void scale(const float* x, Rows& rows) const {
        float* const padded = rows.padded + shape_.radius;
#pragma omp simd
        for (std::int64_t c = 0; c < shape_.channels; ++c) padded[c] = x[c] * x[c];
        window_sum(rows);
#pragma omp simd
        for (std::int64_t c = 0; c < shape_.channels; ++c) rows.scale[c] = shape_.bias + shape_.alpha * rows.sum[c];
    }

    /// scale^-beta; for the usual 3/4 by two square roots. Compilers do not make vector instructions of std::sqrt, which
    /// may set errno, so these are named: the same bits, and the whole operation takes less than half the time.
    void power(Rows& rows) const {
        if (shape_.beta != 0.75F) {
            for (std::int64_t c = 0; c < shape_.channels; ++c) rows.power[c] = std::pow(rows.scale[c], -shape_.beta);
            return;
        }
        std::int64_t c = 0;
#if defined(__SSE__)
        for (; c + 4 <= shape_.channels; c += 4) {
            const __m128 root = _mm_sqrt_ps(_mm_load_ps(rows.scale + c));
            _mm_store_ps(rows.power + c, _mm_div_ps(_mm_set1_ps(1.0F), _mm_mul_ps(root, _mm_sqrt_ps(root))));
        }
#endif
        for (; c < shape_.channels; ++c) {
            const float root = std::sqrt(rows.scale[c]);
            rows.power[c] = 1.0F / (root * std::sqrt(root));
        }
    }

    LocalResponseNormShape shape_;
    std::int64_t pixels_;
};

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
