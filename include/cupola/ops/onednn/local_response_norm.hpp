// SPDX-License-Identifier: Apache-2.0
//
// Local response normalisation on `Host`: one pass over each pixel's channels, the window summed by shifted vector
// loads. oneDNN's own keeps a workspace of twice the activation's size between forward and backward, and without AVX-512
// has only reference code for channels last; this one keeps nothing and takes any number of channels up to its limit.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

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
            powers(x, rows);
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
            powers(x, rows);
            float* const padded = rows.padded + shape_.radius;
#pragma omp simd
            for (std::int64_t c = 0; c < shape_.channels; ++c) padded[c] = dy[c] * x[c] * rows.next_power[c];
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
        alignas(64) float power[max_row];       // scale^-beta
        alignas(64) float next_power[max_row];  // scale^(-beta - 1)
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
        const std::int64_t channels = shape_.channels;
#pragma omp simd
        for (std::int64_t c = 0; c < channels; ++c) rows.sum[c] = rows.padded[c];
        for (std::int64_t d = 1; d <= 2 * shape_.radius; ++d) {
#pragma omp simd
            for (std::int64_t c = 0; c < channels; ++c) rows.sum[c] += rows.padded[c + d];
        }
    }

    /// s^(-1/4) to a float's precision by three of Newton's steps from a guess in the exponent: vector instructions on every
    /// processor, where std::sqrt, which may set errno, is none.
    static float inverse_fourth_root(float s) {
        constexpr std::uint32_t guess = 0x4F58CAE3;  // 5/4 of the bits of 1, less what makes the guess's error smallest
        float r = std::bit_cast<float>(guess - (std::bit_cast<std::uint32_t>(s) >> 2));
        for (int step = 0; step < 3; ++step) {
            const float square = r * r;
            r *= 1.25F - 0.25F * s * (square * square);
        }
        return r;
    }

    /// The powers of scale = bias + alpha * (sum of the squares in the window).
    void powers(const float* x, Rows& rows) const {
        const std::int64_t channels = shape_.channels;
        const float bias = shape_.bias, alpha = shape_.alpha;
        float* const padded = rows.padded + shape_.radius;
#pragma omp simd
        for (std::int64_t c = 0; c < channels; ++c) padded[c] = x[c] * x[c];
        window_sum(rows);
        if (shape_.beta == 0.75F) {
#pragma omp simd
            for (std::int64_t c = 0; c < channels; ++c) {
                const float r = inverse_fourth_root(bias + alpha * rows.sum[c]);
                const float square = r * r, power = square * r;
                rows.power[c] = power;
                rows.next_power[c] = power * (square * square);
            }
        } else {
            for (std::int64_t c = 0; c < channels; ++c) {
                const float scale = bias + alpha * rows.sum[c];
                rows.power[c] = std::pow(scale, -shape_.beta);
                rows.next_power[c] = rows.power[c] / scale;
            }
        }
    }

    LocalResponseNormShape shape_;
    std::int64_t pixels_;
};

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
