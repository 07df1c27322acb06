// SPDX-License-Identifier: Apache-2.0
//
// The operands of AMX's products, written from rows of up to 32 images over which the products sum: a column of 32
// images per element, or columns of image pairs with their elements interleaved. Missing images count as zeros.
#pragma once

#include <cupola/ops/host/impl/amx.hpp>

#if defined(CUPOLA_HOST_AMX)

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <cupola/core/element_type.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// rows[i] lane j = rows[j] lane i.
[[gnu::always_inline]] inline void transpose16(__m512i (&rows)[16]) {
    constexpr __mmask16 all = 0xFFFF;
    constexpr __mmask8 all8 = 0xFF;
    __m512i pairs[16], fours[16], eights[16];
    unrolled<8>([&](auto i) {
        pairs[2 * i] = _mm512_maskz_unpacklo_epi32(all, rows[2 * i], rows[2 * i + 1]);
        pairs[2 * i + 1] = _mm512_maskz_unpackhi_epi32(all, rows[2 * i], rows[2 * i + 1]);
    });
    unrolled<8>([&](auto i) {  // quarter q of fours[4 r + c] is column 4 q + c of the rows 4 r to 4 r + 3
        constexpr int r = i / 2 * 4, c = i % 2;
        fours[r + 2 * c] = _mm512_maskz_unpacklo_epi64(all8, pairs[r + c], pairs[r + 2 + c]);
        fours[r + 2 * c + 1] = _mm512_maskz_unpackhi_epi64(all8, pairs[r + c], pairs[r + 2 + c]);
    });
    unrolled<8>([&](auto i) {
        constexpr int r = i / 4 * 8, c = i % 4;
        eights[r + c] = _mm512_maskz_shuffle_i32x4(all, fours[r + c], fours[r + 4 + c], 0x88);
        eights[r + 4 + c] = _mm512_maskz_shuffle_i32x4(all, fours[r + c], fours[r + 4 + c], 0xDD);
    });
    unrolled<8>([&](auto i) {
        rows[i] = _mm512_maskz_shuffle_i32x4(all, eights[i], eights[8 + i], 0x88);
        rows[8 + i] = _mm512_maskz_shuffle_i32x4(all, eights[i], eights[8 + i], 0xDD);
    });
}

/// The images whose rows are read: `count` of them (at most 32), `stride` elements apart.
struct AmxImages {
    std::int64_t count, stride;
};

/// Writes columns of 32 images, 64 bytes per column, for each of the `elements` of a row. Sixteen columns are a tile;
/// tile i is written at (i % period) * long_step + (i / period) * 1024 bytes.
inline void write_columns(const BFloat16* row, const AmxImages& images, std::int64_t elements, std::byte* to,
                          std::int64_t period, std::int64_t long_step) {
    const auto tile = [&](std::int64_t i) { return to + i % period * long_step + i / period * tile_bytes; };
    for (std::int64_t first = 0; first < elements; first += 32) {
        const std::int64_t here = std::min<std::int64_t>(32, elements - first);
        const auto valid = static_cast<__mmask32>(here == 32 ? 0xFFFFFFFFU : (1U << here) - 1U);
        __m512i low[16], high[16];
        for (int pair = 0; pair < 16; ++pair) {
            const BFloat16* const from = row + first + 2 * pair * images.stride;
            const __m512i even = _mm512_maskz_loadu_epi16(2 * pair < images.count ? valid : 0U, from);
            const __m512i odd =
                _mm512_maskz_loadu_epi16(2 * pair + 1 < images.count ? valid : 0U, from + images.stride);
            low[pair] = _mm512_unpacklo_epi16(even, odd);
            high[pair] = _mm512_unpackhi_epi16(even, odd);
        }
        // Lane j of `low` contains element j / 4 * 8 + j % 4, that of `high` the one four later.
        transpose16(low);
        transpose16(high);
        std::byte* const tiles[2]{tile(first / 16), here > 16 ? tile(first / 16 + 1) : nullptr};
        for (int j = 0; j < 16; ++j) {
            const int element = j / 4 * 8 + j % 4;
            std::byte* const line = tiles[element / 16] + element % 16 * 64;
            if (element < here) _mm512_store_si512(line, low[j]);
            if (element + 4 < here) _mm512_store_si512(line + 4 * 64, high[j]);
        }
    }
}

/// Writes a tile of 16 pairs of images for each of `pixels` pixels of a row and each 16 of its channels. Adds the sum
/// of the row's pixels in all images to `sums`, one float per channel (of whole tiles).
inline void write_pairs(const BFloat16* row, const AmxImages& images, std::int64_t pixels, std::int64_t channels,
                        std::byte* to, std::int64_t pixel_step, std::int64_t tile_step, float* sums) {
    for (std::int64_t pair = 0; pair < 16; ++pair) {
        const BFloat16* const even = row + 2 * pair * images.stride;
        const BFloat16* const odd = even + images.stride;
        for (std::int64_t c = 0; c < channels; c += 16) {
            const __mmask16 valid = first_lanes(channels - c);
            const __mmask16 valid_even = 2 * pair < images.count ? valid : __mmask16{0};
            const __mmask16 valid_odd = 2 * pair + 1 < images.count ? valid : __mmask16{0};
            std::byte* line = to + c / 16 * tile_step + pair * 64;
            __m512 sum = _mm512_setzero_ps(), odd_sum = sum;
            for (std::int64_t x = 0; x < pixels; ++x, line += pixel_step) {
                const __m512i low =
                    _mm512_maskz_cvtepu16_epi32(0xFFFF, _mm256_maskz_loadu_epi16(valid_even, even + x * channels + c));
                const __m512i high = _mm512_castps_si512(load16(odd + x * channels + c, valid_odd));
                _mm512_store_si512(line, _mm512_or_si512(low, high));
                sum = _mm512_add_ps(sum, _mm512_castsi512_ps(_mm512_maskz_slli_epi32(0xFFFF, low, 16)));
                odd_sum = _mm512_add_ps(odd_sum, _mm512_castsi512_ps(high));
            }
            _mm512_storeu_ps(sums + c, _mm512_add_ps(_mm512_loadu_ps(sums + c), _mm512_add_ps(sum, odd_sum)));
        }
    }
}

}}}  // namespace cupola::CUPOLA_ABI::impl

#endif
