// SPDX-License-Identifier: Apache-2.0
//
// AMX has eight tiles of 16 rows of 64 bytes. It multiplies two of them in bfloat16 and adds the product to a third in
// float,
//
//   C[m][n] += sum over p < 16 of A[m][2p] B[p][2n] + A[m][2p + 1] B[p][2n + 1]     16 cycles
//
// so each row of A contains 32 values of the summation index and B contains pairs of them. The instructions are written
// as assembly, so that a file need not be compiled for AMX: the support is queried at run time. Denormal numbers count
// as zero.
#pragma once

#include <cupola/ops/host/impl/avx512.hpp>

#if CUPOLA_ISA >= CUPOLA_ISA_AVX512 && defined(__x86_64__) && defined(__linux__)
#define CUPOLA_HOST_AMX 1

#include <cstdint>

#include <sys/syscall.h>
#include <unistd.h>

#include <cupola/device/host.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Rows of a tile; values of the summation index per row; bytes.
inline constexpr std::int64_t tile_rows = 16, tile_depth = 32, tile_bytes = 1024;

/// Whether the processor has the tiles, the system lets this process use them, and oneDNN is not restricted to a lower
/// ISA (ONEDNN_MAX_CPU_ISA), so that the computation matches `Host::library_isa`.
[[nodiscard]] inline bool has_amx() {
    static const bool has = [] {
        constexpr long request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
        return (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_amx) == dnnl_cpu_isa_avx512_core_amx &&
               syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
    }();
    return has;
}

/// While it exists, this thread's eight tiles have 16 rows of 64 bytes. oneDNN configures the tiles at each of its
/// calls.
class AmxTiles {
public:
    AmxTiles() {
        struct alignas(64) {
            std::uint8_t palette = 1, start_row = 0, reserved[14]{};
            std::uint16_t row_bytes[16]{64, 64, 64, 64, 64, 64, 64, 64};
            std::uint8_t rows[16]{16, 16, 16, 16, 16, 16, 16, 16};
        } const configuration;
        static_assert(sizeof configuration == 64);
        asm volatile("ldtilecfg %0" : : "m"(configuration) : "memory");
    }
    AmxTiles(const AmxTiles&) = delete;
    AmxTiles& operator=(const AmxTiles&) = delete;
    ~AmxTiles() { asm volatile("tilerelease" : : : "memory"); }
};

template <int tile>
[[gnu::always_inline]] inline void zero_tile() {
    asm volatile("tilezero %%tmm%c0" : : "i"(tile));
}
/// Rows `stride` bytes apart.
template <int tile>
[[gnu::always_inline]] inline void load_tile(const void* from, std::int64_t stride = 64) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(tile) : "memory");
}
template <int tile>
[[gnu::always_inline]] inline void store_tile(void* to, std::int64_t stride = 64) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(tile) : "memory");
}
/// sum += a b.
template <int sum, int a, int b>
[[gnu::always_inline]] inline void multiply_tiles() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(sum), "i"(a), "i"(b));
}

}}}  // namespace cupola::CUPOLA_ABI::impl

#endif
