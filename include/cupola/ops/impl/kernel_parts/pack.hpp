// SPDX-License-Identifier: Apache-2.0
//
// Packs: elements that a thread reads and writes together, up to 16 bytes in one instruction, and computes with in
// float.
//
// The computation of a kernel for one index is a separate function in a header without CUDA syntax, so that any C++
// compiler can compile it.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#include <cupola/core/abi.hpp>
#include <cupola/core/element_type.hpp>
#include <cupola/core/error.hpp>

// Arrays with constant indices stay in registers. A loop over the few remaining elements is not unrolled.
#ifdef __CUDA_ARCH__
#define CUPOLA_UNROLL _Pragma("unroll")
#define CUPOLA_NO_UNROLL _Pragma("unroll 1")
#else
#define CUPOLA_UNROLL
#define CUPOLA_NO_UNROLL
#endif

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

template <class T>
concept CudaElement = std::same_as<T, float> || std::same_as<T, BFloat16> || std::same_as<T, Float16>;

/// The number of elements in 16 bytes.
template <class T>
inline constexpr int pack_size = static_cast<int>(16 / sizeof(T));

template <class T, int n>
struct alignas(n * sizeof(T) < 16 ? n * sizeof(T) : 16) Pack {
    T element[n];
};

/// Whether packs of 16 bytes may be read at each of these addresses.
template <class... P>
[[nodiscard]] bool aligned_for_packs(const P*... pointers) {
    return ((reinterpret_cast<std::uintptr_t>(pointers) % 16 == 0) && ...);
}

[[noreturn, gnu::cold]] inline void throw_misaligned(std::uintptr_t address, std::size_t to) {
    throw Error(
        text("a kernel uses ", to, " bytes at once at the address ", address, ", which is no multiple of them"));
}

/// A GPU ends a kernel that reads or writes a `V` at an address that is no multiple of its alignment. Compiled for
/// another processor, which permits it, this throws in its place.
template <class V>
CUPOLA_HOST_DEVICE inline void expect_aligned([[maybe_unused]] const void* address) {
#ifndef __CUDA_ARCH__
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    if (at % alignof(V) != 0) [[unlikely]]
        throw_misaligned(at, alignof(V));
#endif
}

/// The n elements from an address on, which is a multiple of their size, or of 16 bytes where that is more.
template <int n, class T>
[[nodiscard]] CUPOLA_HOST_DEVICE inline Pack<T, n>& pack_at(T* address) {
    expect_aligned<Pack<T, n>>(address);
    return *reinterpret_cast<Pack<T, n>*>(address);
}
template <int n, class T>
[[nodiscard]] CUPOLA_HOST_DEVICE inline const Pack<T, n>& pack_at(const T* address) {
    expect_aligned<Pack<T, n>>(address);
    return *reinterpret_cast<const Pack<T, n>*>(address);
}

/// to[0, n) = from[0, n). `from` is aligned to n elements, or to 16 bytes where those are more. n is a power of two.
template <int n, class T>
CUPOLA_HOST_DEVICE inline void load_floats(const T* from, float* to) {
    const Pack<T, n> pack = pack_at<n>(from);
    CUPOLA_UNROLL
    for (int k = 0; k < n; ++k) to[k] = static_cast<float>(pack.element[k]);
}

/// to[0, n) = values[0, n), rounded once.
template <int n, class T>
CUPOLA_HOST_DEVICE inline void store_floats(T* to, const float* values) {
    Pack<T, n> pack;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    if constexpr (!std::same_as<T, float> && n % 2 == 0) {
        // Uses the hardware's rounding, two values at a time; it converts every NaN to the same NaN.
        CUPOLA_UNROLL
        for (int k = 0; k < n; k += 2) {
            std::uint32_t both;
            if constexpr (std::same_as<T, BFloat16>) {
                asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(values[k + 1]), "f"(values[k]));
            } else {
                asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(values[k + 1]), "f"(values[k]));
            }
            pack.element[k].bits = static_cast<std::uint16_t>(both);
            pack.element[k + 1].bits = static_cast<std::uint16_t>(both >> 16);
        }
    } else
#endif
    {
        CUPOLA_UNROLL
        for (int k = 0; k < n; ++k) pack.element[k] = T(values[k]);
    }
    pack_at<n>(to) = pack;
}

/// The value after it has been rounded for storage.
template <class T>
[[nodiscard]] CUPOLA_HOST_DEVICE inline float as_stored(float value) {
    return static_cast<float>(T(value));
}

/// Whether a functor of a kernel has a member `indexes_own_array` that is true: it indexes an array that it contains by
/// a variable, and is then read where the kernel's arguments are, instead of from a copy per thread.
template <class Functor>
inline constexpr bool indexes_own_array = requires { requires Functor::indexes_own_array; };

/// Calls `body.at<n>(begin)` for each full group of n elements of [0, count), and `body.at<1>(i)` for the rest.
template <int n, class Body>
struct InPacks {
    static constexpr bool indexes_own_array = impl::indexes_own_array<Body>;

    std::int64_t count;
    Body body;

    CUPOLA_HOST_DEVICE void operator()(std::int64_t i) const {
        std::int64_t begin = i * n;
        if (begin + n <= count) {
            body.template at<n>(begin);
        } else {
            CUPOLA_NO_UNROLL
            for (; begin < count; ++begin) body.template at<1>(begin);
        }
    }
    /// The number of indices.
    [[nodiscard]] std::int64_t size() const { return (count + n - 1) / n; }
};

}}}  // namespace cupola::CUPOLA_ABI::impl
