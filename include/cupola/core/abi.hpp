// SPDX-License-Identifier: Apache-2.0
//
// The version, and the name of the inline namespace that holds everything.
//
// The inline namespace encodes what changes the code that is generated from these headers: the version and the
// instruction set that the file is compiled for. Files built with different flags then have different symbols and
// link into one program without one silently taking the other's functions. g++ writes it before every name in its
// messages, so it is short: without flags, as most programs are first compiled, it is the version alone.
#pragma once

#define CUPOLA_VERSION_MAJOR 0
#define CUPOLA_VERSION_MINOR 1
#define CUPOLA_VERSION_PATCH 0

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#define CUPOLA_ABI v0_1_avx512
#elif defined(__AVX2__) && defined(__FMA__)
#define CUPOLA_ABI v0_1_avx2
#else
#define CUPOLA_ABI v0_1
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
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__)
inline constexpr const char* compiled_isa = "avx512";
#elif defined(__AVX2__) && defined(__FMA__)
inline constexpr const char* compiled_isa = "avx2";
#else
inline constexpr const char* compiled_isa = "baseline";
#endif

}  // namespace cupola::inline CUPOLA_ABI
