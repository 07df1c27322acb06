// SPDX-License-Identifier: Apache-2.0
//
// The computations of local response normalisation for 8 channels of a pixel, as the kernels perform them. A thread
// reads the neighbouring channels in its windows from the first-level cache and recomputes their powers, so threads
// share nothing and do not synchronise. This is for windows of 5 and 9 channels and for multiples of 8 channels; a
// slower kernel handles all other shapes.
#pragma once

#include <cstdint>

#include <cupola/ops/impl/kernel_parts/divisor.hpp>
#include <cupola/ops/impl/kernel_parts/pack.hpp>
#include <cupola/ops/local_response_norm.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Channels per thread.
inline constexpr int norm_chunk = 8;

/// Whether the kernels for chunks support this shape.
[[nodiscard]] constexpr bool norm_in_chunks(const LocalResponseNormShape& shape) {
    return shape.channels % norm_chunk == 0 && (shape.radius == 2 || shape.radius == 4);
}

/// sum[k] = values[k] + ... + values[k + 2 radius], made of sums of 2, 4 and 8: each value enters only the sums that
/// contain it, so a NaN does not spread further.
template <int radius, int n>
CUPOLA_HOST_DEVICE inline void window_sums(const float (&values)[n + 2 * radius], float (&sum)[n]) {
    static_assert(radius == 2 || radius == 4);
    constexpr int quads = n + 2 * radius - 3;
    float quad[quads];
    CUPOLA_UNROLL
    for (int k = 0; k < quads; ++k) quad[k] = (values[k] + values[k + 1]) + (values[k + 2] + values[k + 3]);
    CUPOLA_UNROLL
    for (int k = 0; k < n; ++k) {
        if constexpr (radius == 4) {
            sum[k] = (quad[k] + quad[k + 4]) + values[k + 8];
        } else {
            sum[k] = quad[k] + values[k + 4];
        }
    }
}

/// The channels [c - halo, c + 8 + halo) of a pixel, 0 outside the pixel's channels.
template <int halo, class T>
CUPOLA_HOST_DEVICE inline void load_chunk(const T* pixel, std::int64_t c, std::int64_t channels,
                                          float (&to)[norm_chunk + 2 * halo]) {
    CUPOLA_UNROLL
    for (int k = 0; k < halo; ++k) to[k] = to[halo + norm_chunk + k] = 0.0F;
    if (c > 0) load_floats<halo>(pixel + c - halo, to);
    load_floats<norm_chunk>(pixel + c, to + halo);
    if (c + norm_chunk < channels) load_floats<halo>(pixel + c + norm_chunk, to + halo + norm_chunk);
}

/// y of 8 channels, from their values and those of `radius` channels on both sides.
template <int radius>
CUPOLA_HOST_DEVICE inline void normed_chunk(const NormFormula& formula, const float (&x)[norm_chunk + 2 * radius],
                                            float (&y)[norm_chunk]) {
    float square[norm_chunk + 2 * radius], sum[norm_chunk];
    CUPOLA_UNROLL
    for (int k = 0; k < norm_chunk + 2 * radius; ++k) square[k] = x[k] * x[k];
    window_sums<radius, norm_chunk>(square, sum);
    CUPOLA_UNROLL
    for (int k = 0; k < norm_chunk; ++k) {
        float next;
        y[k] = x[radius + k] * formula.power(sum[k], next);
    }
}

/// dx[c] = dy[c] scale[c]^-beta - factor x[c] sum over the window of dy[c'] x[c'] scale[c']^(-beta - 1) for 8 channels
/// that may be the first or the last of a pixel; with `mask`, 0 where x is not positive.
template <int radius>
CUPOLA_HOST_DEVICE inline void norm_gradient_chunk(const NormFormula& formula,
                                                   const float (&x)[norm_chunk + 4 * radius],
                                                   const float (&dy)[norm_chunk + 2 * radius], bool begins, bool ends,
                                                   bool mask, float (&dx)[norm_chunk]) {
    constexpr int wide = norm_chunk + 2 * radius;
    float square[norm_chunk + 4 * radius], sum[wide], product[wide], power[norm_chunk], around[norm_chunk];
    CUPOLA_UNROLL
    for (int k = 0; k < norm_chunk + 4 * radius; ++k) square[k] = x[k] * x[k];
    window_sums<radius, wide>(square, sum);
    CUPOLA_UNROLL
    for (int k = 0; k < wide; ++k) {
        float next;
        const float here = formula.power(sum[k], next);
        if (k >= radius && k < radius + norm_chunk) power[k - radius] = here;
        // Outside the channels the value is 0 even if the power is not finite.
        const bool outside = (begins && k < radius) || (ends && k >= radius + norm_chunk);
        product[k] = outside ? 0.0F : dy[k] * x[radius + k] * next;
    }
    window_sums<radius, norm_chunk>(product, around);
    CUPOLA_UNROLL
    for (int k = 0; k < norm_chunk; ++k)
        dx[k] = formula.gradient(x[2 * radius + k], dy[radius + k], power[k], around[k], mask);
}

/// The i-th chunk of an array of pixels.
struct ChunkPlaces {
    ChunkPlaces() = default;
    explicit ChunkPlaces(std::int64_t all) : channels(all), chunks(all / norm_chunk) {}

    std::int64_t channels = 0;
    Divisor chunks;
};

template <class T, int radius>
struct NormForward {
    NormFormula formula;
    ChunkPlaces places;
    const T* x;
    T* y;

    CUPOLA_HOST_DEVICE void operator()(std::int64_t i) const {
        const Divisor::Parts at = places.chunks.divide(i);
        float value[norm_chunk + 2 * radius], result[norm_chunk];
        load_chunk<radius>(x + at.quotient * places.channels, at.remainder * norm_chunk, places.channels, value);
        normed_chunk<radius>(formula, value, result);
        store_floats<norm_chunk>(y + i * norm_chunk, result);
    }
};

template <class T, int radius>
struct NormBackward {
    NormFormula formula;
    ChunkPlaces places;
    const T *x, *dy;
    T* dx;
    bool mask;

    CUPOLA_HOST_DEVICE void operator()(std::int64_t i) const {
        const Divisor::Parts at = places.chunks.divide(i);
        const std::int64_t pixel = at.quotient * places.channels, c = at.remainder * norm_chunk;
        float value[norm_chunk + 4 * radius], gradient[norm_chunk + 2 * radius], result[norm_chunk];
        load_chunk<2 * radius>(x + pixel, c, places.channels, value);
        load_chunk<radius>(dy + pixel, c, places.channels, gradient);
        norm_gradient_chunk<radius>(formula, value, gradient, c == 0, c + norm_chunk == places.channels, mask, result);
        store_floats<norm_chunk>(dx + i * norm_chunk, result);
    }
};

/// Any window and any number of channels, one element per thread.
template <class T>
struct AnyNorm {
    NormFormula formula;
    std::int64_t channels, radius;
    Divisor by_channels;
    const T *x, *dy;

    AnyNorm() = default;
    AnyNorm(const LocalResponseNormShape& shape, const T* from, const T* gradient)
        : formula(shape),
          channels(shape.channels),
          radius(shape.radius),
          by_channels(shape.channels),
          x(from),
          dy(gradient) {}

    /// The power around channel c.
    [[nodiscard]] CUPOLA_HOST_DEVICE float power(const T* pixel, std::int64_t c, float& next) const {
        float sum = 0.0F;
        const std::int64_t end = c + radius + 1 < channels ? c + radius + 1 : channels;
        for (std::int64_t k = c > radius ? c - radius : 0; k < end; ++k) {
            const auto value = static_cast<float>(pixel[k]);
            sum += value * value;
        }
        return formula.power(sum, next);
    }
};

template <class T>
struct AnyNormForward : AnyNorm<T> {
    T* y;
    AnyNormForward(const LocalResponseNormShape& shape, const T* from, T* to)
        : AnyNorm<T>(shape, from, nullptr), y(to) {}

    CUPOLA_HOST_DEVICE void operator()(std::int64_t i) const {
        const Divisor::Parts at = this->by_channels.divide(i);
        float next;
        const float own = this->power(this->x + at.quotient * this->channels, at.remainder, next);
        y[i] = T(static_cast<float>(this->x[i]) * own);
    }
};

template <class T>
struct AnyNormBackward : AnyNorm<T> {
    T* dx;
    bool mask;
    AnyNormBackward(const LocalResponseNormShape& shape, const T* from, const T* gradient, T* to, bool masks)
        : AnyNorm<T>(shape, from, gradient), dx(to), mask(masks) {}

    CUPOLA_HOST_DEVICE void operator()(std::int64_t i) const {
        const Divisor::Parts at = this->by_channels.divide(i);
        const T *const pixel = this->x + at.quotient * this->channels, *const gradient =
                                                                           this->dy + at.quotient * this->channels;
        const std::int64_t c = at.remainder, past = c + this->radius + 1,
                           end = past < this->channels ? past : this->channels;
        float around = 0.0F, own = 0.0F;
        for (std::int64_t k = c > this->radius ? c - this->radius : 0; k < end; ++k) {
            float next;
            const float here = this->power(pixel, k, next);
            if (k == c) own = here;
            around += static_cast<float>(gradient[k]) * static_cast<float>(pixel[k]) * next;
        }
        dx[i] =
            T(this->formula.gradient(static_cast<float>(pixel[c]), static_cast<float>(gradient[c]), own, around, mask));
    }
};

}}}  // namespace cupola::CUPOLA_ABI::impl
