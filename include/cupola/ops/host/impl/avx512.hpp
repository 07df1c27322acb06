// SPDX-License-Identifier: Apache-2.0
//
// Sixteen floats in a register, loaded from and stored to tensors of either element type. Defined only where a file is
// compiled for AVX-512; elsewhere the kernels use equivalent plain loops.
#pragma once

#include <cupola/core/abi.hpp>

#if CUPOLA_ISA >= CUPOLA_ISA_AVX512

#include <cstdint>
#include <utility>

#include <immintrin.h>

#include <cupola/core/element_type.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

inline constexpr std::int64_t vector_lanes = 16;

/// The lanes below `count`.
[[nodiscard]] inline __mmask16 first_lanes(std::int64_t count) {
    return static_cast<__mmask16>(count >= vector_lanes ? 0xFFFFU : (1U << count) - 1U);
}

// g++ 12 warns about undefined values in its own headers where an intrinsic has no mask, so some intrinsics here have a
// mask that selects all lanes.

[[nodiscard]] inline __m512 widened(__m256i bits) {
    return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(0xFFFF, _mm512_maskz_cvtepu16_epi32(0xFFFF, bits), 16));
}
/// Rounds to nearest, ties to even; a NaN is kept.
[[nodiscard]] inline __m256i narrowed(__m512 v) {
#if CUPOLA_ISA >= CUPOLA_ISA_AVX512_BF16
    return (__m256i)_mm512_cvtneps_pbh(v);  // NOLINT: a cast between vectors of one size
#else
    const __m512i bits = _mm512_castps_si512(v), high = _mm512_maskz_srli_epi32(0xFFFF, bits, 16);
    const __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
    const __m512i rounded =
        _mm512_maskz_srli_epi32(0xFFFF, _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF))), 16);
    const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    return _mm512_cvtepi32_epi16(_mm512_mask_or_epi32(rounded, nan, high, _mm512_set1_epi32(0x40)));
#endif
}

[[nodiscard]] inline __m512 load16(const float* p) { return _mm512_loadu_ps(p); }
[[nodiscard]] inline __m512 load16(const float* p, __mmask16 m) { return _mm512_maskz_loadu_ps(m, p); }
[[nodiscard]] inline __m512 load16(const BFloat16* p) {
    return widened(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
[[nodiscard]] inline __m512 load16(const BFloat16* p, __mmask16 m) { return widened(_mm256_maskz_loadu_epi16(m, p)); }

inline void store16(float* p, __m512 v) { _mm512_storeu_ps(p, v); }
inline void store16(float* p, __m512 v, __mmask16 m) { _mm512_mask_storeu_ps(p, m, v); }
inline void store16(BFloat16* p, __m512 v) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrowed(v)); }
inline void store16(BFloat16* p, __m512 v, __mmask16 m) { _mm256_mask_storeu_epi16(p, m, narrowed(v)); }

/// Calls f(0), f(1), ... f(n - 1) with the number in the type, so that an array indexed by it stays in registers.
template <int n, class Function>
[[gnu::always_inline]] inline void unrolled(Function&& f) {
    [&]<int... i>(std::integer_sequence<int, i...>) {
        (f(std::integral_constant<int, i>{}), ...);
    }(std::make_integer_sequence<int, n>{});
}

}}}  // namespace cupola::CUPOLA_ABI::impl

#endif
