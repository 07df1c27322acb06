// SPDX-License-Identifier: Apache-2.0
//
// The version, the instructions that a file is compiled for, and the name of the inline namespace that holds everything.
//
// The inline namespace encodes what changes the code that is generated from these headers: the version and the
// instruction set that the file is compiled for. Files built with different flags then have different symbols and
// link into one program without one silently taking the other's functions. g++ writes it before every name in its
// messages, so it is short: without flags, as most programs are first compiled, it is the version alone.
#pragma once

#define CUPOLA_VERSION_MAJOR 0
#define CUPOLA_VERSION_MINOR 1
#define CUPOLA_VERSION_PATCH 0

// The instruction sets that these headers select code by, in rising order. Every processor with AVX2 and FMA has the rest
// of x86-64-v3 too. Beside BF16's, compilers use none of the instructions that processors have beyond x86-64-v4 (VNNI,
// VBMI, FP16, AMX) in this code; AMX is detected at run time.
#define CUPOLA_ISA_BASELINE 1
#define CUPOLA_ISA_AVX2 2
#define CUPOLA_ISA_AVX512 4
#define CUPOLA_ISA_AVX512_BF16 8

// The instruction sets of the linked cupola::ops, as a sum. The library's target defines it; this is the default.
#if defined(CUPOLA_OPS) && !defined(CUPOLA_OPS_HAS)
#define CUPOLA_OPS_HAS (CUPOLA_ISA_BASELINE + CUPOLA_ISA_AVX2 + CUPOLA_ISA_AVX512)
#endif

// A file that links to cupola::ops shares types with it, and so has a name that it has: without BF16 where it has none.
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
#if defined(__AVX512BF16__) && (!defined(CUPOLA_OPS_HAS) || (CUPOLA_OPS_HAS & CUPOLA_ISA_AVX512_BF16))
#define CUPOLA_ISA CUPOLA_ISA_AVX512_BF16
#define CUPOLA_ISA_NAME avx512_bf16
#else
#define CUPOLA_ISA CUPOLA_ISA_AVX512
#define CUPOLA_ISA_NAME avx512
#endif
#elif defined(__AVX2__) && defined(__FMA__)
#define CUPOLA_ISA CUPOLA_ISA_AVX2
#if defined(__AVX512F__) && !defined(CUPOLA_OPS_HAS)
#define CUPOLA_ISA_NAME avx512f
#else
#define CUPOLA_ISA_NAME avx2
#endif
#else
#define CUPOLA_ISA CUPOLA_ISA_BASELINE
// Headers select nothing by these, but a compiler generates other code, and with FMA other bits.
#if !defined(CUPOLA_OPS_HAS)
#if defined(__AVX512F__)
#define CUPOLA_ISA_NAME avx512f
#elif defined(__AVX2__)
#define CUPOLA_ISA_NAME avx2_without_fma
#elif defined(__FMA__) || defined(__FMA4__)
#define CUPOLA_ISA_NAME avx_fma
#elif defined(__AVX__)
#define CUPOLA_ISA_NAME avx
#elif defined(__SSE4_2__)
#define CUPOLA_ISA_NAME sse4_2
#elif defined(__SSE4_1__)
#define CUPOLA_ISA_NAME sse4_1
#elif defined(__SSSE3__)
#define CUPOLA_ISA_NAME ssse3
#elif defined(__SSE3__)
#define CUPOLA_ISA_NAME sse3
#endif
#endif
#endif

#if defined(CUPOLA_OPS_HAS) && !(CUPOLA_OPS_HAS & CUPOLA_ISA)
#error "cupola::ops has no code for this file's instructions (-march): add them to CUPOLA_OPS_ISAS"
#endif

#define CUPOLA_STRING_(a) #a
#define CUPOLA_STRING(a) CUPOLA_STRING_(a)
#ifdef CUPOLA_ISA_NAME
#define CUPOLA_ABI_OF_(major, minor, isa) v##major##_##minor##_##isa
#define CUPOLA_ABI_OF(major, minor, isa) CUPOLA_ABI_OF_(major, minor, isa)
#define CUPOLA_ABI CUPOLA_ABI_OF(CUPOLA_VERSION_MAJOR, CUPOLA_VERSION_MINOR, CUPOLA_ISA_NAME)
#else
#define CUPOLA_ABI_OF_(major, minor) v##major##_##minor
#define CUPOLA_ABI_OF(major, minor) CUPOLA_ABI_OF_(major, minor)
#define CUPOLA_ABI CUPOLA_ABI_OF(CUPOLA_VERSION_MAJOR, CUPOLA_VERSION_MINOR)
#endif

// cupola::ops, the optional library, holds compiled what does not depend on a user's network. Linking to it defines
// CUPOLA_OPS: functions marked CUPOLA_INLINE are then declared here and defined there; compiled.hpp has the templates.
#ifndef CUPOLA_INLINE
#define CUPOLA_INLINE inline
#endif

// nvcc calls a function from a kernel only if it is marked so, constexpr or not. Other compilers see nothing.
#ifdef __CUDACC__
#define CUPOLA_HOST_DEVICE __host__ __device__
#else
#define CUPOLA_HOST_DEVICE
#endif
// Kept out of line to save code, which a kernel has no use for.
#ifdef __CUDA_ARCH__
#define CUPOLA_HOST_NOINLINE
#else
#define CUPOLA_HOST_NOINLINE [[gnu::noinline]]
#endif

namespace cupola::inline CUPOLA_ABI {

struct Version {
    int major, minor, patch;
};

inline constexpr Version version{CUPOLA_VERSION_MAJOR, CUPOLA_VERSION_MINOR, CUPOLA_VERSION_PATCH};

/// The instruction set that this file's own kernels are compiled for (oneDNN chooses its own at run time).
#ifdef CUPOLA_ISA_NAME
inline constexpr const char* compiled_isa = CUPOLA_STRING(CUPOLA_ISA_NAME);
#else
inline constexpr const char* compiled_isa = "baseline";
#endif

}  // namespace cupola::inline CUPOLA_ABI
