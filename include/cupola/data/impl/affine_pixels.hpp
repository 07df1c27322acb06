// SPDX-License-Identifier: Apache-2.0
//
// The two passes over an image to which all augmentations of pixel values reduce: sums in integers over the bytes, and
// one multiply-add per pixel, y = scale * x + shift[channel].
//
// Both walk a row of bytes in chunks of 48: whole pixels (3 channels) and whole vectors (16 lanes) at once, so lane j
// of every chunk has channel j % 3 and both loops turn into plain vector code without a shuffle. An image of 1 channel
// takes the same loops: its three sums are parts of one (`all_channels_together`), and its three shifts are equal.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <cupola/core/abi.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

inline constexpr std::int64_t chunk_lanes = 48;
/// Chunks that 16-bit sums of bytes can hold: 257 * 255 = 65535, rounded down to a power of two.
inline constexpr std::int64_t band_chunks = 256;
inline constexpr std::int64_t band_bytes = band_chunks * chunk_lanes;

/// The sums of the values and of their squares, one per channel. (Plain arrays: kernels cannot access std::array's
/// elements.)
struct PixelSums {
    std::int64_t values[3]{}, squares[3]{};
};

/// The sums of an image of 1 channel, as those of three channels with its values.
CUPOLA_HOST_DEVICE inline void all_channels_together(PixelSums& sums) {
    const std::int64_t values = sums.values[0] + sums.values[1] + sums.values[2];
    const std::int64_t squares = sums.squares[0] + sums.squares[1] + sums.squares[2];
    for (int c = 0; c < 3; ++c) {
        sums.values[c] = values;
        sums.squares[c] = squares;
    }
}

/// y = scale * x + shift[channel].
struct AffinePixels {
    float scale = 1;
    float shift[3]{};
};

/// Adds `chunks` chunks, at most band_chunks, to `sums`.
inline void add_pixel_sums(const std::uint8_t* bytes, std::int64_t chunks, PixelSums& sums) {
    alignas(64) std::uint16_t values[chunk_lanes] = {};
    alignas(64) std::uint32_t squares[chunk_lanes] = {};
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
        const std::uint8_t* x = bytes + chunk * chunk_lanes;
#pragma omp simd
        for (int j = 0; j < chunk_lanes; ++j) {
            const std::uint16_t value = x[j];
            const auto square = static_cast<std::uint16_t>(value * value);  // 255 * 255 just fits
            values[j] = static_cast<std::uint16_t>(values[j] + value);
            squares[j] += square;
        }
    }
    for (std::size_t j = 0; j < chunk_lanes; ++j) {
        sums.values[j % 3] += values[j];
        sums.squares[j % 3] += squares[j];
    }
}

/// Writes `count` values.
inline void write_affine_pixels(const std::uint8_t* bytes, std::int64_t count, const AffinePixels& affine, float* to) {
    alignas(64) float shift[chunk_lanes];
    for (std::size_t j = 0; j < chunk_lanes; ++j) shift[j] = affine.shift[j % 3];
    const float scale = affine.scale;
    std::int64_t i = 0;
    for (; i + chunk_lanes <= count; i += chunk_lanes) {
        const std::uint8_t* x = bytes + i;
        float* y = to + i;
#pragma omp simd
        for (int j = 0; j < chunk_lanes; ++j) y[j] = static_cast<float>(x[j]) * scale + shift[j];
    }
    for (std::int64_t j = 0; i < count; ++i, ++j) to[i] = static_cast<float>(bytes[i]) * scale + shift[j];
}

/// Copies a row of `width` pixels of 1 or 3 channels, right to left if `flip`. Writes one byte more than the row has.
inline void copy_row(const std::uint8_t* row, std::int64_t width, std::int64_t channels, bool flip, std::uint8_t* to) {
    if (!flip) {
        std::memcpy(to, row, static_cast<std::size_t>(width * channels));
        return;
    }
    if (channels == 1) {
        std::reverse_copy(row, row + width, to);
        return;
    }
    // Four bytes per pixel: the fourth is overwritten by the next pixel. The first may end the image, so it takes
    // three.
    std::memcpy(to, row + 3 * (width - 1), 3);
    for (std::int64_t x = 1; x < width; ++x) std::memcpy(to + 3 * x, row + 3 * (width - 1 - x), 4);
}

}}}  // namespace cupola::CUPOLA_ABI::impl
