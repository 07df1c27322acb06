// SPDX-License-Identifier: Apache-2.0
//
// Local response normalisation of neighbouring pixels, for the operations that contain one: forward, and the gradient
// from the input alone (nothing is kept between them). With AVX-512, windows of 5 and of 9 channels and the power 3/4
// are computed in registers: a window's sum is made of sums of 2, 4 and 8 by shifts, so that each element enters only
// the windows that contain it and a NaN does not spread further. Without it, their forward keeps only the squares of a
// few pixels in memory. All other cases use rows in the first-level cache.
#pragma once

#include <algorithm>
#include <cstdint>

#include <cupola/core/abi.hpp>
#include <cupola/core/error.hpp>
#include <cupola/ops/host/impl/element.hpp>
#include <cupola/ops/host/impl/lanes.hpp>
#include <cupola/ops/local_response_norm.hpp>
#if CUPOLA_ISA >= CUPOLA_ISA_AVX512
#include <cupola/ops/host/impl/avx512.hpp>
#endif

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

class NormRows {
public:
    explicit NormRows(const LocalResponseNormShape& shape) : shape_(shape) {
        require(shape.channels + 2 * shape.radius <= max_row, "local response normalisation takes at most ", max_row,
                " channels with its window on both sides, not ", shape.channels, " + 2 x ", shape.radius);
    }

    /// Its vector instructions that multiply or take a root, as multiply-adds; of other powers than 3/4, as many.
    [[nodiscard]] static OperationWork work(Direction direction, std::int64_t elements) {
        const int instructions = (direction == Direction::forward ? 13 : 19) + (has_roots ? 0 : 5);
        return {.operations = 2.0 * instructions * static_cast<double>(elements)};
    }
    /// `y` may be `x`.
    template <class T>
    void forward(const T* x, T* y, std::int64_t pixels) const {
#if CUPOLA_ISA >= CUPOLA_ISA_AVX512
        if (shape_.beta == 0.75F && shape_.radius == 4) {
            return shape_.channels == 4 * vector_lanes ? forward_in_registers<4, 4>(x, y, pixels)
                                                       : forward_in_registers<4, 0>(x, y, pixels);
        }
        if (shape_.beta == 0.75F && shape_.radius == 2) return forward_in_registers<2, 0>(x, y, pixels);
#else
        if (shape_.beta == 0.75F && shape_.radius == 4) return forward_in_blocks<4>(x, y, pixels);
        if (shape_.beta == 0.75F && shape_.radius == 2) return forward_in_blocks<2>(x, y, pixels);
#endif
        Rows rows(shape_);
        for (; pixels > 0; --pixels, x += shape_.channels, y += shape_.channels) {
            powers(x, rows);
#pragma omp simd
            for (std::int64_t c = 0; c < shape_.channels; ++c) put(y[c], static_cast<float>(x[c]) * rows.power[c]);
        }
    }

    /// `dx` may be `dy`.
    template <class T>
    void backward(const T* x, const T* dy, T* dx, std::int64_t pixels, bool mask) const {
#if CUPOLA_ISA >= CUPOLA_ISA_AVX512
        if (shape_.beta == 0.75F && shape_.radius == 4) {
            return shape_.channels == 4 * vector_lanes ? backward_in_registers<4, 4>(x, dy, dx, pixels, mask)
                                                       : backward_in_registers<4, 0>(x, dy, dx, pixels, mask);
        }
        if (shape_.beta == 0.75F && shape_.radius == 2) return backward_in_registers<2, 0>(x, dy, dx, pixels, mask);
#endif
        const NormFormula formula(shape_);
        Rows rows(shape_);
        for (; pixels > 0; --pixels, x += shape_.channels, dy += shape_.channels, dx += shape_.channels) {
            powers(x, rows);
            float* const padded = rows.padded + shape_.radius;
#pragma omp simd
            for (std::int64_t c = 0; c < shape_.channels; ++c) {
                padded[c] = static_cast<float>(dy[c]) * static_cast<float>(x[c]) * rows.next_power[c];
            }
            window_sum(rows);
#pragma omp simd
            for (std::int64_t c = 0; c < shape_.channels; ++c) {
                put(dx[c], formula.gradient(static_cast<float>(x[c]), static_cast<float>(dy[c]), rows.power[c],
                                            rows.sum[c], mask));
            }
        }
    }

private:
    static constexpr bool has_roots = CUPOLA_ISA >= CUPOLA_ISA_AVX512;
    static constexpr std::int64_t max_row = 4096;

    /// One pixel's rows: `padded` has `radius` zeros on both sides.
    struct Rows {
        explicit Rows(const LocalResponseNormShape& shape) {
            const std::int64_t row = shape.channels + 2 * shape.radius;
            for (std::int64_t c = 0; c < shape.radius; ++c) padded[c] = padded[row - 1 - c] = 0.0F;
        }
        alignas(64) float padded[max_row];
        alignas(64) float sum[max_row];
        alignas(64) float power[max_row];       // scale^-beta
        alignas(64) float next_power[max_row];  // scale^(-beta - 1)
    };

    void window_sum(Rows& rows) const {
        const std::int64_t channels = shape_.channels;
        std::copy_n(rows.padded, channels, rows.sum);
        for (std::int64_t d = 1; d <= 2 * shape_.radius; ++d) {
#pragma omp simd
            for (std::int64_t c = 0; c < channels; ++c) rows.sum[c] += rows.padded[c + d];
        }
    }

    /// The powers of scale = bias + alpha * (sum of the squares in the window).
    template <class T>
    void powers(const T* x, Rows& rows) const {
        const std::int64_t channels = shape_.channels;
        const NormFormula formula(shape_);
        float* const padded = rows.padded + shape_.radius;
#pragma omp simd
        for (std::int64_t c = 0; c < channels; ++c) padded[c] = static_cast<float>(x[c]) * static_cast<float>(x[c]);
        window_sum(rows);
        if (formula.three_quarters) {
#pragma omp simd
            for (std::int64_t c = 0; c < channels; ++c)
                rows.power[c] = formula.power_by_root(rows.sum[c], rows.next_power[c]);
        } else {
            for (std::int64_t c = 0; c < channels; ++c)
                rows.power[c] = formula.any_power(rows.sum[c], rows.next_power[c]);
        }
    }

#if CUPOLA_ISA < CUPOLA_ISA_AVX512
    /// Blocks of pixels: their squares first, with `radius` zeros between pixels, then all that follows in registers. A
    /// processor delays a load of what two stores before it have written until both are in the cache, so the squares
    /// of a pixel are read after those of others are written.
    template <int radius, class T>
    void forward_in_blocks(const T* x, T* y, std::int64_t pixels) const {
        constexpr std::int64_t block = 8;
        const std::int64_t channels = shape_.channels, row = channels + radius;
        const std::int64_t most = std::min({pixels, block, (max_row - radius) / row});
        const NormFormula formula(shape_);
        alignas(64) float padded[max_row];
        for (std::int64_t p = 0; p <= most; ++p) std::fill_n(padded + p * row, radius, 0.0F);
        for (std::int64_t count = most; pixels > 0; pixels -= count) {
            count = std::min(count, pixels);
            for (std::int64_t p = 0; p < count; ++p) {
                const T* const from = x + p * channels;
                float* const to = padded + p * row + radius;
#pragma omp simd
                for (std::int64_t c = 0; c < channels; ++c)
                    to[c] = static_cast<float>(from[c]) * static_cast<float>(from[c]);
            }
            for (std::int64_t p = 0; p < count; ++p, x += channels, y += channels) {
                const float* const around = padded + p * row;
#pragma omp simd
                for (std::int64_t c = 0; c < channels; ++c) {
                    float sum = around[c], next_power;
                    for_each_index<2 * radius>([&](auto d) __attribute__((always_inline)) {
                        sum += around[c + static_cast<std::int64_t>(d) + 1];
                    });
                    put(y[c], static_cast<float>(x[c]) * formula.power_by_root(sum, next_power));
                }
            }
        }
    }
#endif

#if CUPOLA_ISA >= CUPOLA_ISA_AVX512
    /// The lanes of `now` shifted up by `by`, with the last lanes of `before` shifted in.
    template <int by>
    static __m512 shifted(__m512 now, __m512 before) {
        if constexpr (by == vector_lanes) {
            return before;
        } else {
            return _mm512_castsi512_ps(_mm512_maskz_alignr_epi32(0xFFFF, _mm512_castps_si512(now),
                                                                 _mm512_castps_si512(before), vector_lanes - by));
        }
    }

    /// Sums over windows of a row that is read vector by vector: next(v) returns the sums around the elements of the
    /// vector before v.
    template <int radius>
    struct Window {
        static_assert(radius == 2 || radius == 4);
        __m512 one = _mm512_setzero_ps(), two = one, four = one, all = one;

        __m512 next(__m512 now) {
            const __m512 pair = _mm512_add_ps(now, shifted<1>(now, one));
            const __m512 quad = _mm512_add_ps(pair, shifted<2>(pair, two));
            __m512 sum = quad;
            if constexpr (radius == 4) sum = _mm512_add_ps(quad, shifted<4>(quad, four));
            sum = _mm512_add_ps(sum, shifted<2 * radius>(now, one));
            const __m512 centred = shifted<vector_lanes - radius>(sum, all);
            one = now, two = pair, four = quad, all = sum;
            return centred;
        }
    };

    /// s^(-1/4) by a Newton step from the processor's approximations, each with a relative error of 2^-14.
    static __m512 inverse_fourth_root(__m512 s) {
        const __m512 root = _mm512_maskz_rsqrt14_ps(0xFFFF, s);  // s^(-1/2)
        const __m512 r = _mm512_mul_ps(root, _mm512_maskz_rsqrt14_ps(0xFFFF, root));
        const __m512 square = _mm512_mul_ps(r, r);
        const __m512 quarter = _mm512_mul_ps(_mm512_mul_ps(s, _mm512_set1_ps(0.25F)), _mm512_mul_ps(square, square));
        return _mm512_mul_ps(r, _mm512_sub_ps(_mm512_set1_ps(1.25F), quarter));
    }

    [[nodiscard]] __m512 scale(__m512 sum) const {
        return _mm512_fmadd_ps(_mm512_set1_ps(shape_.alpha), sum, _mm512_set1_ps(shape_.bias));
    }

    /// `known`: the number of vectors per pixel, all of them full; 0 if it is known only at run time.
    template <int radius, int known, class T>
    void forward_in_registers(const T* x, T* y, std::int64_t pixels) const {
        const std::int64_t channels = known > 0 ? known * vector_lanes : shape_.channels,
                           count = (channels + vector_lanes - 1) / vector_lanes;
        const __mmask16 last = known > 0 ? 0xFFFF : first_lanes(channels - (count - 1) * vector_lanes);
        for (; pixels > 0; --pixels, x += channels, y += channels) {
            Window<radius> window;
            __m512 before = _mm512_setzero_ps();
            for_each_vector<known, 1>(
                count, [&](std::int64_t v) __attribute__((always_inline)) {
                    const __m512 now = v == count ? _mm512_setzero_ps() : load(x, v, count, last);
                    const __m512 sum = window.next(_mm512_mul_ps(now, now));
                    if (v > 0) {
                        const __m512 r = inverse_fourth_root(scale(sum));
                        store(y, v - 1, count, last, _mm512_mul_ps(before, _mm512_mul_ps(_mm512_mul_ps(r, r), r)));
                    }
                    before = now;
                });
        }
    }

    template <int radius, int known, class T>
    void backward_in_registers(const T* x, const T* dy, T* dx, std::int64_t pixels, bool mask) const {
        const std::int64_t channels = known > 0 ? known * vector_lanes : shape_.channels,
                           count = (channels + vector_lanes - 1) / vector_lanes;
        const __mmask16 last = known > 0 ? 0xFFFF : first_lanes(channels - (count - 1) * vector_lanes);
        const __m512 factor = _mm512_set1_ps(2.0F * shape_.alpha * shape_.beta), zero = _mm512_setzero_ps();
        const __mmask16 all = mask ? 0 : 0xFFFF;
        for (; pixels > 0; --pixels, x += channels, dy += channels, dx += channels) {
            Window<radius> squares, products;
            __m512 x1 = zero, x2 = zero, dy2 = zero, power2 = zero;  // of the previous vector, and of the one before it
            for_each_vector<known, 2>(
                count, [&](std::int64_t v) __attribute__((always_inline)) {
                    const __m512 now = v < count ? load(x, v, count, last) : zero;
                    const __m512 sum = squares.next(_mm512_mul_ps(now, now));
                    __m512 product = zero, dy1 = zero, power1 = zero;
                    if (v > 0 && v <= count) {
                        const __m512 r = inverse_fourth_root(scale(sum)), square = _mm512_mul_ps(r, r);
                        power1 = _mm512_mul_ps(square, r);
                        dy1 = load(dy, v - 1, count, last);
                        const __m512 next_power = _mm512_mul_ps(power1, _mm512_mul_ps(square, square));
                        // Lanes past the channels are zero even if the power there is not finite.
                        product = _mm512_maskz_mul_ps(v == count ? last : 0xFFFF, _mm512_mul_ps(dy1, x1), next_power);
                    }
                    const __m512 around = products.next(product);
                    if (v > 1) {
                        const __m512 d =
                            _mm512_fnmadd_ps(_mm512_mul_ps(factor, x2), around, _mm512_mul_ps(dy2, power2));
                        const auto keep = static_cast<__mmask16>(all | _mm512_cmp_ps_mask(x2, zero, _CMP_GT_OQ));
                        store(dx, v - 2, count, last, _mm512_maskz_mov_ps(keep, d));
                    }
                    x2 = x1, x1 = now, dy2 = dy1, power2 = power1;
                });
        }
    }

    /// Calls f(0) to f(count + more - 1); without a loop where the number is known at compile time.
    template <int known, int more, class Function>
    [[gnu::always_inline]] static void for_each_vector(std::int64_t count, Function f) {
        if constexpr (known > 0) {
            unrolled<known + more>([&](auto v) __attribute__((always_inline)) { f(v); });
        } else {
            for (std::int64_t v = 0; v < count + more; ++v) f(v);
        }
    }

    template <class T>
    static __m512 load(const T* p, std::int64_t v, std::int64_t count, __mmask16 last) {
        return v + 1 == count ? load16(p + v * vector_lanes, last) : load16(p + v * vector_lanes);
    }
    template <class T>
    static void store(T* p, std::int64_t v, std::int64_t count, __mmask16 last, __m512 value) {
        v + 1 == count ? store16(p + v * vector_lanes, value, last) : store16(p + v * vector_lanes, value);
    }
#endif

    LocalResponseNormShape shape_;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
