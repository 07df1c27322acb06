// SPDX-License-Identifier: Apache-2.0
//
// The computations of a max pooling fused with an adjacent local response normalisation, for 8 channels of a pixel: the
// intermediate values are in registers, computed by each thread whose windows contain them. norm_elements.hpp states
// the supported shapes.
#pragma once

#include <cstdint>

#include <cupola/ops/impl/kernel_parts/norm_elements.hpp>
#include <cupola/ops/impl/kernel_parts/pool_elements.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// MaxPool2d followed by LocalResponseNorm. Null `pooled` and `offsets` are not written.
template <class T, int radius, int window>
struct PoolThenLrnForward {
    PoolExtents extents;  // in chunks
    NormFormula formula;
    const T* x;
    T *y, *pooled;
    std::uint8_t* offsets;
    bool mask;

    CUPOLA_HOST_DEVICE void operator()(std::int64_t i) const {
        const PoolExtents::Place at = extents.output(i);
        const std::int64_t channels = extents.channels, c = at.channel;
        float value[norm_chunk + 2 * radius] = {}, best[norm_chunk], side[radius];
        int offset[norm_chunk], side_offset[radius];
        window_maxima<norm_chunk, window>(extents, at, ChannelsOf<norm_chunk, T>{x, channels, c}, best, offset);
        CUPOLA_UNROLL
        for (int k = 0; k < norm_chunk; ++k) value[radius + k] = best[k];
        if (pooled != nullptr) store_floats<norm_chunk>(pooled + i * norm_chunk, best);
        if (offsets != nullptr) store_offsets<norm_chunk>(offsets + i * norm_chunk, best, offset, mask);
        if (c > 0) {
            window_maxima<radius, window>(extents, at, ChannelsOf<radius, T>{x, channels, c - radius}, side,
                                          side_offset);
            CUPOLA_UNROLL
            for (int k = 0; k < radius; ++k) value[k] = side[k];
        }
        if (c + norm_chunk < channels) {
            window_maxima<radius, window>(extents, at, ChannelsOf<radius, T>{x, channels, c + norm_chunk}, side,
                                          side_offset);
            CUPOLA_UNROLL
            for (int k = 0; k < radius; ++k) value[radius + norm_chunk + k] = side[k];
        }
        normed_chunk<radius>(formula, value, best);
        store_floats<norm_chunk>(y + i * norm_chunk, best);
    }
};

/// The normalised channels of a pixel, as window_maxima reads them: rounded as if they had been stored.
template <class T, int radius>
struct NormedChannelsOf {
    NormFormula formula;
    const T* x;
    std::int64_t channels, channel;

    CUPOLA_HOST_DEVICE void operator()(std::int64_t pixel, float (&value)[norm_chunk]) const {
        float around[norm_chunk + 2 * radius];
        load_chunk<radius>(x + pixel * channels, channel, channels, around);
        normed_chunk<radius>(formula, around, value);
        CUPOLA_UNROLL
        for (int k = 0; k < norm_chunk; ++k) value[k] = as_stored<T>(value[k]);
    }
};

/// LocalResponseNorm followed by MaxPool2d. Null `offsets` are not written.
template <class T, int radius, int window>
struct LrnThenPoolForward {
    PoolExtents extents;  // in chunks
    NormFormula formula;
    const T* x;
    T* y;
    std::uint8_t* offsets;

    CUPOLA_HOST_DEVICE void operator()(std::int64_t i) const {
        const PoolExtents::Place at = extents.output(i);
        float best[norm_chunk];
        int offset[norm_chunk];
        const NormedChannelsOf<T, radius> normed{formula, x, extents.channels, at.channel};
        window_maxima<norm_chunk, window>(extents, at, normed, best, offset);
        store_floats<norm_chunk>(y + i * norm_chunk, best);
        if (offsets != nullptr) store_offsets<norm_chunk>(offsets + i * norm_chunk, best, offset, false);
    }
};

/// Gathers the gradient of the normalised values and converts it to that of the input.
template <class T, int radius>
struct LrnThenPoolBackward {
    PoolExtents extents;  // in chunks
    NormFormula formula;
    const T *x, *dy;
    const std::uint8_t* offsets;
    T* dx;
    bool mask;

    CUPOLA_HOST_DEVICE void operator()(std::int64_t i) const {
        float result[norm_chunk];
        values(i, result);
        store(i, result);
    }
    CUPOLA_HOST_DEVICE void values(std::int64_t i, float (&result)[norm_chunk]) const {
        const PoolExtents::Place at = extents.input(i);
        const std::int64_t channels = extents.channels, c = at.channel;
        float value[norm_chunk + 4 * radius], gradient[norm_chunk + 2 * radius] = {};
        load_chunk<2 * radius>(x + extents.input_pixel(at.image, at.row, at.column) * channels, c, channels, value);
        if (c > 0) gather_maxima<radius>(extents, at, c - radius, dy, offsets, gradient);
        gather_maxima<norm_chunk>(extents, at, c, dy, offsets, gradient + radius);
        if (c + norm_chunk < channels) {
            gather_maxima<radius>(extents, at, c + norm_chunk, dy, offsets, gradient + radius + norm_chunk);
        }
        CUPOLA_UNROLL
        for (int k = 0; k < norm_chunk + 2 * radius; ++k) gradient[k] = as_stored<T>(gradient[k]);
        norm_gradient_chunk<radius>(formula, value, gradient, c == 0, c + norm_chunk == channels, mask, result);
    }
    CUPOLA_HOST_DEVICE void store(std::int64_t i, const float* result) const {
        store_floats<norm_chunk>(dx + i * norm_chunk, result);
    }
    [[nodiscard]] CUPOLA_HOST_DEVICE static float stored(float value) { return as_stored<T>(value); }
};

}}}  // namespace cupola::CUPOLA_ABI::impl
