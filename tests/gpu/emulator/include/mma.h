/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The emulator's: the fragments of tensor cores. A lane has a row of 8 sums, the row of the left factor and the columns of the right
 * one that these need; which elements a lane has on a GPU is not specified. What a GPU leaves undefined ends the kernel: lanes that
 * name different places, places and rows that are not aligned, and factors in TF32 that were not rounded.
 */
#pragma once

#include <bit>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "../kernel.hpp"
#include "../numbers.hpp"
#include "cuda_bf16.h"
#include "cuda_fp16.h"

namespace nvcuda::wmma {

struct row_major;
struct col_major;
struct matrix_a;
struct matrix_b;
struct accumulator;
namespace precision {
struct tf32;
}
enum layout_t { mem_row_major, mem_col_major };

inline float __float_to_tf32(float value) {
    constexpr std::uint32_t half = 0x1000, dropped = 0x1FFF;  // to the nearest, ties away from zero
    const auto bits = std::bit_cast<std::uint32_t>(value);
    return (bits & 0x7F80'0000U) == 0x7F80'0000U ? value : std::bit_cast<float>((bits + half) & ~dropped);
}

namespace emulated {

inline constexpr int lanes_sums = 8;

template <class T>
inline constexpr cupola::emulator::ElementKind kind =
    std::is_same_v<T, precision::tf32> ? cupola::emulator::ElementKind::float32
    : std::is_same_v<T, __half>        ? cupola::emulator::ElementKind::float16
                                       : cupola::emulator::ElementKind::bfloat16;

/* The elements of a lane: its row, and the first of its columns. */
[[nodiscard]] inline int row() { return cupola::emulator::lane() / 2; }
[[nodiscard]] inline int column() { return cupola::emulator::lane() % 2 * lanes_sums; }

/* All lanes of the warp wait for each other, and name the same value. */
inline void agree(std::uint64_t value, const char* what, cupola::emulator::Place place) {
    const std::uint64_t first =
        cupola::emulator::exchange(cupola::emulator::WarpOperation::shuffle, 0xFFFFFFFFU, value, 0, place);
    if (first != value) throw std::logic_error(std::string("the lanes of a warp name different ") + what);
}
inline void check(const void* place, unsigned row, std::size_t element, cupola::emulator::Place at) {
    agree(reinterpret_cast<std::uintptr_t>(place), "addresses of a fragment", at);
    agree(row, "rows of a fragment", at);
    if (reinterpret_cast<std::uintptr_t>(place) % 32 != 0)
        throw std::logic_error("the address of a fragment is not a multiple of 32 bytes");
    if (row * element % 16 != 0) throw std::logic_error("the row of a fragment is not a multiple of 16 bytes");
}

}  // namespace emulated

template <class Use, int m, int n, int k, class T, class Layout = void>
struct fragment {
    static_assert(m == 16 && n == 16 &&
                      k == (std::is_same_v<T, precision::tf32> || std::is_same_v<T, float> ? k : 16) &&
                      (k == 16 || k == 8),
                  "no other shapes are emulated");
    static constexpr bool left = std::is_same_v<Use, matrix_a>, sums = std::is_same_v<Use, accumulator>;
    static constexpr int num_elements = sums ? emulated::lanes_sums : left ? k : k * emulated::lanes_sums;
    float x[num_elements];
};

template <int k>
using Sums = fragment<accumulator, 16, 16, k, float>;

template <int k>
void fill_fragment(Sums<k>& of, float value) {
    for (float& each : of.x) each = value;
}

template <class Use, int k, class T, class Layout, class Stored>
void load_matrix_sync(fragment<Use, 16, 16, k, T, Layout>& to, const Stored* from, unsigned row,
                      const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    using To = fragment<Use, 16, 16, k, T, Layout>;
    emulated::check(from, row, sizeof(Stored), {file, line});
    const auto at = [&](int r, int c) {
        return cupola::emulator::load(
            from, emulated::kind<T>,
            std::is_same_v<Layout, row_major> ? std::int64_t{row} * r + c : std::int64_t{row} * c + r);
    };
    for (int s = 0; s < k; ++s) {
        if constexpr (To::left) {
            to.x[s] = at(emulated::row(), s);
        } else {
            for (int c = 0; c < emulated::lanes_sums; ++c)
                to.x[s * emulated::lanes_sums + c] = at(s, emulated::column() + c);
        }
    }
}

template <int k, class T, class Left, class Right>
void mma_sync(Sums<k>& to, const fragment<matrix_a, 16, 16, k, T, Left>& left,
              const fragment<matrix_b, 16, 16, k, T, Right>& right, const Sums<k>& before,
              const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    emulated::agree(0, "products", {file, line});
    if constexpr (std::is_same_v<T, precision::tf32>) {
        for (const float each : left.x) {
            if (each != __float_to_tf32(each) && each == each)
                throw std::logic_error("a left factor is not rounded to TF32");
        }
        for (const float each : right.x) {
            if (each != __float_to_tf32(each) && each == each)
                throw std::logic_error("a right factor is not rounded to TF32");
        }
    }
    float sum[emulated::lanes_sums];
    for (int c = 0; c < emulated::lanes_sums; ++c) sum[c] = before.x[c];
    for (int s = 0; s < k; ++s) {
        for (int c = 0; c < emulated::lanes_sums; ++c) sum[c] += left.x[s] * right.x[s * emulated::lanes_sums + c];
    }
    for (int c = 0; c < emulated::lanes_sums; ++c) to.x[c] = sum[c];
}

template <int k>
void store_matrix_sync(float* to, const Sums<k>& from, unsigned row, layout_t layout,
                       const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    emulated::check(to, row, sizeof(float), {file, line});
    for (int c = 0; c < emulated::lanes_sums; ++c) {
        const int r = emulated::row(), column = emulated::column() + c;
        to[layout == mem_row_major ? static_cast<int>(row) * r + column : static_cast<int>(row) * column + r] =
            from.x[c];
    }
}

}  // namespace nvcuda::wmma
