// SPDX-License-Identifier: Apache-2.0
//
// The loops of batch normalisation over the rows of a block, where a row is the channels of one pixel: the moments, the
// normalisation, the sums of backward, and the gradient of the input.
#pragma once

#include <cstdint>
#include <type_traits>

#include <cupola/ops/activation.hpp>
#include <cupola/ops/host/impl/element.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The maximum number of channels that a loop processes at once. Rows of memory are then read as a whole, or in large
/// pieces: pieces of 16 channels would be limited by memory latency where there are more channels.
inline constexpr std::int64_t norm_lanes = 64;

/// Calls f(first channel, count): count is a constant for whole groups of lanes, so that their loops are unrolled.
template <class Function>
void for_norm_lanes(std::int64_t channels, Function&& f) {
    constexpr std::integral_constant<std::int64_t, norm_lanes> many;
    constexpr std::integral_constant<std::int64_t, 16> few;
    std::int64_t c = 0;
    for (; c + many <= channels; c += many) f(c, many);
    for (; c + few <= channels; c += few) f(c, few);
    if (c < channels) f(c, channels - c);
}

/// Three rows per block, with one element per channel: the mean as rounded, the sum of the deviations from it, and the
/// sum of their squares.
template <HostElement T>
void norm_moments(const T* x, std::int64_t rows, std::int64_t channels, float* to) {
    for_norm_lanes(channels, [=](std::int64_t first, auto lanes) {
        const T* const begin = x + first;
        float sum[norm_lanes] = {}, rest[norm_lanes] = {}, square[norm_lanes] = {};
        for (std::int64_t r = 0; r < rows; ++r) {
            const T* const row = begin + r * channels;
#pragma omp simd
            for (std::int64_t k = 0; k < lanes; ++k) sum[k] += static_cast<float>(row[k]);
        }
        const auto count = static_cast<float>(rows);
        for (std::int64_t k = 0; k < lanes; ++k) sum[k] /= count;
        for (std::int64_t r = 0; r < rows; ++r) {
            const T* const row = begin + r * channels;
#pragma omp simd
            for (std::int64_t k = 0; k < lanes; ++k) {
                const float deviation = static_cast<float>(row[k]) - sum[k];
                rest[k] += deviation;
                square[k] += deviation * deviation;
            }
        }
        for (std::int64_t k = 0; k < lanes; ++k) {
            to[first + k] = sum[k];
            to[channels + first + k] = rest[k];
            to[2 * channels + first + k] = square[k];
        }
    });
}

/// Forward and backward must agree on whether a normalised value is positive, and below a limit, so both compute it
/// here.
[[nodiscard]] inline float normalized(float x, float mean, float scale, float bias) {
    return (x - mean) * scale + bias;
}

template <HostElement T>
void norm_apply(const T* x, T* y, std::int64_t rows, std::int64_t channels, const float* mean, const float* scale,
                const float* bias, FusedActivation activation) {
    const float most = activation.most;
    for_norm_lanes(channels, [=](std::int64_t first, auto lanes) {
        const float *const m = mean + first, *const s = scale + first, *const b = bias + first;
        for (std::int64_t r = 0; r < rows; ++r) {
            const T* const from = x + r * channels + first;
            T* const to = y + r * channels + first;
            if (activation.applies) {
#pragma omp simd
                for (std::int64_t k = 0; k < lanes; ++k) {
                    const float value = normalized(static_cast<float>(from[k]), m[k], s[k], b[k]);
                    const float positive = value < 0.0F ? 0.0F : value;
                    put(to[k], positive > most ? most : positive);
                }
            } else {
#pragma omp simd
                for (std::int64_t k = 0; k < lanes; ++k)
                    put(to[k], normalized(static_cast<float>(from[k]), m[k], s[k], b[k]));
            }
        }
    });
}

/// Values that forward saves for backward, one per channel each; `scale` is weight / sqrt(variance + epsilon).
struct NormState {
    const float *mean, *scale, *bias;
};

/// The sums of dy and of dy (x - mean), with dy masked where there is an activation.
template <HostElement T>
void norm_gradient_sums(const T* x, const T* dy, std::int64_t rows, std::int64_t channels, const NormState& state,
                        FusedActivation activation, float* sums, float* products) {
    const float last = activation.last;
    for_norm_lanes(channels, [=](std::int64_t first, auto lanes) {
        const float *const m = state.mean + first, *const s = state.scale + first, *const b = state.bias + first;
        float sum[norm_lanes] = {}, product[norm_lanes] = {};
        for (std::int64_t r = 0; r < rows; ++r) {
            const T *const from = x + r * channels + first, *const g = dy + r * channels + first;
            if (activation.applies) {
#pragma omp simd
                for (std::int64_t k = 0; k < lanes; ++k) {
                    const auto value = static_cast<float>(from[k]), gradient = static_cast<float>(g[k]);
                    const float output = normalized(value, m[k], s[k], b[k]);
                    const float masked = ((output > 0.0F) & (output <= last)) ? gradient : 0.0F;
                    sum[k] += masked;
                    product[k] += masked * (value - m[k]);
                }
            } else {
#pragma omp simd
                for (std::int64_t k = 0; k < lanes; ++k) {
                    const auto gradient = static_cast<float>(g[k]);
                    sum[k] += gradient;
                    product[k] += gradient * (static_cast<float>(from[k]) - m[k]);
                }
            }
        }
        for (std::int64_t k = 0; k < lanes; ++k) {
            sums[first + k] = sum[k];
            products[first + k] = product[k];
        }
    });
}

/// dx = scale dy - offset - (x - mean) slope.
template <HostElement T>
void norm_backward(const T* x, const T* dy, T* dx, std::int64_t rows, std::int64_t channels, const NormState& state,
                   FusedActivation activation, const float* offset, const float* slope) {
    const float last = activation.last;
    for_norm_lanes(channels, [=](std::int64_t first, auto lanes) {
        const float *const m = state.mean + first, *const s = state.scale + first, *const b = state.bias + first;
        const float *const o = offset + first, *const d = slope + first;
        for (std::int64_t r = 0; r < rows; ++r) {
            const T *const from = x + r * channels + first, *const g = dy + r * channels + first;
            T* const to = dx + r * channels + first;
            if (activation.applies) {
#pragma omp simd
                for (std::int64_t k = 0; k < lanes; ++k) {
                    const auto value = static_cast<float>(from[k]), gradient = static_cast<float>(g[k]);
                    const float output = normalized(value, m[k], s[k], b[k]);
                    const float masked = ((output > 0.0F) & (output <= last)) ? gradient : 0.0F;
                    put(to[k], s[k] * masked - o[k] - (value - m[k]) * d[k]);
                }
            } else {
#pragma omp simd
                for (std::int64_t k = 0; k < lanes; ++k) {
                    put(to[k], s[k] * static_cast<float>(g[k]) - o[k] - (static_cast<float>(from[k]) - m[k]) * d[k]);
                }
            }
        }
    });
}

}}}  // namespace cupola::CUPOLA_ABI::impl
