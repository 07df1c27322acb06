// SPDX-License-Identifier: Apache-2.0
//
// One vector register of floats, by the compilers' vector extension. Its width is that of the instruction set for which
// the file is compiled, so that the same code is AVX-512, AVX2 or plain, and no width without a register is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <cupola/core/abi.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

#if CUPOLA_ISA >= CUPOLA_ISA_AVX512
inline constexpr std::int64_t lane_count = 16;
#elif CUPOLA_ISA >= CUPOLA_ISA_AVX2
inline constexpr std::int64_t lane_count = 8;
#else
inline constexpr std::int64_t lane_count = 4;
#endif

typedef float Lanes __attribute__((vector_size(sizeof(float) * lane_count)));

[[gnu::always_inline]] inline Lanes load_lanes(const float* from) {
    Lanes value;
    __builtin_memcpy(&value, from, sizeof value);
    return value;
}

[[gnu::always_inline]] inline void store_lanes(float* to, Lanes value) { __builtin_memcpy(to, &value, sizeof value); }

/// Calls f(i) for i in [0, Count), each a constant: arrays of vectors that are only indexed this way stay in registers.
template <std::size_t Count, class Function>
[[gnu::always_inline]] inline void for_each_index(Function f) {
    [&]<std::size_t... i>(std::index_sequence<i...>) __attribute__((always_inline)) {
        (f(std::integral_constant<std::size_t, i>{}), ...);
    }
    (std::make_index_sequence<Count>{});
}

}}}  // namespace cupola::CUPOLA_ABI::impl
