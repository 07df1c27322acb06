// SPDX-License-Identifier: Apache-2.0
//
// One vector register of floats, by the compilers' vector extension, loaded from and stored to tensors of either
// element type. Its width is that of the instruction set for which the file is compiled, so that the same code is
// AVX-512, AVX2 or plain, and no width without a register is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <cupola/core/abi.hpp>
#include <cupola/core/element_type.hpp>
#include <cupola/ops/host/impl/avx512.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

#if CUPOLA_ISA >= CUPOLA_ISA_AVX512
inline constexpr std::int64_t lane_count = 16;
#elif CUPOLA_ISA >= CUPOLA_ISA_AVX2
inline constexpr std::int64_t lane_count = 8;
#else
inline constexpr std::int64_t lane_count = 4;
#endif

typedef float Lanes __attribute__((vector_size(sizeof(float) * lane_count)));
typedef std::uint32_t WordLanes __attribute__((vector_size(sizeof(float) * lane_count)));

[[gnu::always_inline]] inline Lanes load_lanes(const float* from) {
    Lanes value;
    __builtin_memcpy(&value, from, sizeof value);
    return value;
}

[[gnu::always_inline]] inline void store_lanes(float* to, Lanes value) { __builtin_memcpy(to, &value, sizeof value); }

/// The bits of as many elements of bfloat16 as a register has floats.
typedef std::uint16_t BFloat16Lanes __attribute__((vector_size(sizeof(std::uint16_t) * lane_count)));

[[nodiscard, gnu::always_inline]] inline Lanes widened_lanes(BFloat16Lanes bits) {
#if CUPOLA_ISA >= CUPOLA_ISA_AVX512
    return reinterpret_cast<Lanes>(widened(reinterpret_cast<__m256i>(bits)));
#elif CUPOLA_ISA >= CUPOLA_ISA_AVX2 && !defined(__clang__)  // g++ 12 makes four instructions of the conversion below
    typedef short Shorts __attribute__((vector_size(sizeof bits)));
    return reinterpret_cast<Lanes>(__builtin_ia32_pmovzxwd256(reinterpret_cast<Shorts>(bits)) << 16);
#else
    return reinterpret_cast<Lanes>(__builtin_convertvector(bits, WordLanes) << 16);
#endif
}
/// Rounds to nearest, ties to even; a NaN is kept.
[[nodiscard, gnu::always_inline]] inline BFloat16Lanes narrowed_lanes(Lanes value) {
#if CUPOLA_ISA >= CUPOLA_ISA_AVX512
    return reinterpret_cast<BFloat16Lanes>(narrowed(value));
#else
    typedef std::int32_t Signed __attribute__((vector_size(sizeof(float) * lane_count)));
    const WordLanes bits = reinterpret_cast<WordLanes>(value);
    const WordLanes is_nan = reinterpret_cast<WordLanes>(reinterpret_cast<Signed>(bits & 0x7FFF'FFFFU) > 0x7F80'0000);
    const WordLanes added = (0x7FFFU + (bits >> 16 & 1U)) & ~is_nan;
    return __builtin_convertvector(((bits + added) | (is_nan & 0x40'0000U)) >> 16, BFloat16Lanes);
#endif
}

[[gnu::always_inline]] inline Lanes load_lanes(const BFloat16* from) {
    BFloat16Lanes bits;
    __builtin_memcpy(&bits, &from->bits, sizeof bits);
    return widened_lanes(bits);
}
[[gnu::always_inline]] inline void store_lanes(BFloat16* to, Lanes value) {
    const BFloat16Lanes bits = narrowed_lanes(value);
    __builtin_memcpy(&to->bits, &bits, sizeof bits);
}

/// Each value as an element of type T has it.
template <class T>
[[nodiscard, gnu::always_inline]] inline Lanes rounded_lanes(Lanes value) {
    if constexpr (std::is_same_v<T, float>) {
        return value;
    } else {
        return widened_lanes(narrowed_lanes(value));
    }
}

/// Calls f(i) for i in [0, Count), each a constant: arrays of vectors that are only indexed this way stay in registers.
template <std::size_t Count, class Function>
[[gnu::always_inline]] inline void for_each_index(Function f) {
    [&]<std::size_t... i>(std::index_sequence<i...>) __attribute__((always_inline)) {
        (f(std::integral_constant<std::size_t, i>{}), ...);
    }
    (std::make_index_sequence<Count>{});
}

}}}  // namespace cupola::CUPOLA_ABI::impl
