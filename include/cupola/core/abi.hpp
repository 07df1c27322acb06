// SPDX-License-Identifier: Apache-2.0
//
// The version, the instruction set that a file is compiled for, and the name of the inline namespace that holds
// everything.
//
// The inline namespace encodes what changes the code that is generated from these headers: the version, the instruction
// set that the file is compiled for, and the macros that change the layout of the standard library's types. Files built
// with different flags then have different symbols: they link into one program without one silently taking the other's
// functions, or do not link. g++ writes it before every name in its messages, so it is short: without flags, as most
// programs are first compiled, it is the version alone. Exceptions are in an inline namespace of the version alone, so
// that a file catches what a file with other flags throws (core/error.hpp).
#pragma once

#include <version>  // for the macros of the standard library

// The compiler features that these headers need. Without them there would be thousands of errors, so the inclusion of a
// header that does not exist ends the compilation.
#if __cplusplus < 202002L
#error "Cupola needs C++20: compile with -std=c++20"
#define CUPOLA_CANNOT_BE_COMPILED
#elif defined(__clang__) ? __clang_major__ < 16 : defined(__GNUC__) && __GNUC__ < 12
#error "Cupola needs g++ 12 or clang 16, or a later version of them"
#define CUPOLA_CANNOT_BE_COMPILED
#elif defined(_LIBCPP_VERSION) && _LIBCPP_VERSION < 190000
#error "Cupola needs libc++ 19 or later, or libstdc++"
#define CUPOLA_CANNOT_BE_COMPILED
#elif !defined(__cpp_exceptions)
#error "Cupola needs exceptions: compile without -fno-exceptions"
#define CUPOLA_CANNOT_BE_COMPILED
#endif
// The names that separate compilation had before.
#if defined(CUPOLA_OPS) || defined(CUPOLA_OPS_HAS) || defined(CUPOLA_INLINE) || defined(CUPOLA_COMPILING_OPS)
#error "CUPOLA_OPS and its like are gone: define CUPOLA_SEPARATE_COMPILATION, and include <cupola/src.hpp> in one file"
#define CUPOLA_CANNOT_BE_COMPILED
#endif
#ifdef CUPOLA_CANNOT_BE_COMPILED
#define CUPOLA_REASON "see the error above"
#include CUPOLA_REASON
#endif

#define CUPOLA_VERSION_MAJOR 0
#define CUPOLA_VERSION_MINOR 1
#define CUPOLA_VERSION_PATCH 0

// The instruction sets between which these headers choose, in ascending order. Every processor with AVX2 and FMA also
// has the rest of x86-64-v3. Compilers use only BF16 of the extensions beyond x86-64-v4 in this code, not VNNI, VBMI,
// FP16 or AMX; AMX is detected at run time.
#define CUPOLA_ISA_BASELINE 1
#define CUPOLA_ISA_AVX2 2
#define CUPOLA_ISA_AVX512 3
#define CUPOLA_ISA_AVX512_BF16 4

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
#if defined(__AVX512BF16__)
#define CUPOLA_ISA CUPOLA_ISA_AVX512_BF16
#define CUPOLA_ISA_NAME avx512_bf16
#else
#define CUPOLA_ISA CUPOLA_ISA_AVX512
#define CUPOLA_ISA_NAME avx512
#endif
#elif defined(__AVX2__) && defined(__FMA__)
#define CUPOLA_ISA CUPOLA_ISA_AVX2
#if defined(__AVX512F__)
#define CUPOLA_ISA_NAME avx512f
#else
#define CUPOLA_ISA_NAME avx2
#endif
#else
#define CUPOLA_ISA CUPOLA_ISA_BASELINE
// The headers do not test for these extensions, but compilers generate different code with them and, with FMA,
// different bits.
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

// The standard library, where the layout of its types is not that of libstdc++ with its defaults: options contain
// vectors, spans and strings. libstdc++'s debug mode adds iterators to containers, and its older strings are one
// pointer; libc++ has versions of its ABI, and options that change iterators, unique_ptr, and the order of a string's
// members.
#if defined(_LIBCPP_VERSION)
#define CUPOLA_LIBRARY_BASE CUPOLA_JOIN(libcpp, _LIBCPP_ABI_VERSION)
#if defined(_LIBCPP_ABI_BOUNDED_ITERATORS) || defined(_LIBCPP_ABI_BOUNDED_ITERATORS_IN_STRING) ||              \
    defined(_LIBCPP_ABI_BOUNDED_ITERATORS_IN_VECTOR) || defined(_LIBCPP_ABI_BOUNDED_ITERATORS_IN_STD_ARRAY) || \
    defined(_LIBCPP_ABI_BOUNDED_UNIQUE_PTR) || defined(_LIBCPP_ABI_USE_WRAP_ITER_IN_STD_ARRAY) ||              \
    defined(_LIBCPP_ABI_USE_WRAP_ITER_IN_STD_STRING_VIEW)
#define CUPOLA_LIBRARY_BOUNDED CUPOLA_JOIN(CUPOLA_LIBRARY_BASE, _bounded)
#else
#define CUPOLA_LIBRARY_BOUNDED CUPOLA_LIBRARY_BASE
#endif
#if defined(_LIBCPP_ABI_ALTERNATE_STRING_LAYOUT)
#define CUPOLA_LIBRARY_NAME CUPOLA_JOIN(CUPOLA_LIBRARY_BOUNDED, _alternate_string)
#else
#define CUPOLA_LIBRARY_NAME CUPOLA_LIBRARY_BOUNDED
#endif
#elif defined(_GLIBCXX_DEBUG) && defined(_GLIBCXX_USE_CXX11_ABI) && !_GLIBCXX_USE_CXX11_ABI
#define CUPOLA_LIBRARY_NAME glibcxx_debug_cow_string
#elif defined(_GLIBCXX_DEBUG)
#define CUPOLA_LIBRARY_NAME glibcxx_debug
#elif defined(_GLIBCXX_USE_CXX11_ABI) && !_GLIBCXX_USE_CXX11_ABI
#define CUPOLA_LIBRARY_NAME cow_string
#endif

#define CUPOLA_STRING_(a) #a
#define CUPOLA_STRING(a) CUPOLA_STRING_(a)
#define CUPOLA_JOIN_(a, b) a##b
#define CUPOLA_JOIN(a, b) CUPOLA_JOIN_(a, b)
#define CUPOLA_WORDS_(a, b) a##_##b
#define CUPOLA_WORDS(a, b) CUPOLA_WORDS_(a, b)
/// `v0_1`, `v0_1_avx2`, `v0_1_avx2_glibcxx_debug`.
#define CUPOLA_VERSION_ABI CUPOLA_WORDS(CUPOLA_JOIN(v, CUPOLA_VERSION_MAJOR), CUPOLA_VERSION_MINOR)
#ifdef CUPOLA_ISA_NAME
#define CUPOLA_ISA_ABI CUPOLA_WORDS(CUPOLA_VERSION_ABI, CUPOLA_ISA_NAME)
#else
#define CUPOLA_ISA_ABI CUPOLA_VERSION_ABI
#endif
#ifdef CUPOLA_LIBRARY_NAME
#define CUPOLA_ABI CUPOLA_WORDS(CUPOLA_ISA_ABI, CUPOLA_LIBRARY_NAME)
#else
#define CUPOLA_ABI CUPOLA_ISA_ABI
#endif

// Definitions that are not templates and are long are in .ipp files, which the headers include where CUPOLA_DECL is
// defined: in a header-only program, as inline functions; where the program is compiled with
// CUPOLA_SEPARATE_COMPILATION, only in the file that includes src.hpp.
#ifndef CUPOLA_SEPARATE_COMPILATION
#define CUPOLA_DECL inline
#elif defined(CUPOLA_SRC_FUNCTIONS)
#define CUPOLA_DECL
#endif

// nvcc lets a kernel call a function only if it is marked so, constexpr or not. For other compilers the macro is empty.
#ifdef __CUDACC__
#define CUPOLA_HOST_DEVICE __host__ __device__
#else
#define CUPOLA_HOST_DEVICE
#endif
// Not inlined on the host, to save code; in kernels the compiler decides.
#ifdef __CUDA_ARCH__
#define CUPOLA_HOST_NOINLINE
#else
#define CUPOLA_HOST_NOINLINE [[gnu::noinline]]
#endif

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {
struct PackingProbe {
    char first;
    double second;
};
static_assert(sizeof(PackingProbe) == 16,
              "Cupola's headers are included under #pragma pack or with -fpack-struct: their "
              "types would have another layout than in other files");
}  // namespace impl

#ifdef CUPOLA_SEPARATE_COMPILATION
/// Defined by src.hpp, and used by each file that is compiled with CUPOLA_SEPARATE_COMPILATION. The linker names it if
/// no file includes src.hpp, if two do, and if the one that does has another inline namespace, by other flags.
extern const char include_cupola_src_hpp_in_exactly_one_file_with_the_same_flags;
namespace {
[[maybe_unused, gnu::used]] const char* const uses_cupola_src_hpp =
    &include_cupola_src_hpp_in_exactly_one_file_with_the_same_flags;
}  // namespace
#endif

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

}}  // namespace cupola::CUPOLA_ABI
