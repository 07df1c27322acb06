// SPDX-License-Identifier: Apache-2.0
//
// The emulator's fragments of tensor cores: products of each type and layout, and what a GPU leaves undefined.
#include "../../../test.hpp"

#include <cuda_runtime.h>
#include <mma.h>

#include "../control.hpp"
#include "../numbers.hpp"

namespace emulator = cupola::emulator;
using namespace nvcuda;

namespace fragment_kernels {

enum class Mistake { none, address, row, lanes, rounding, missing_lane };

/// to = left right + to, in rows of 20.
template <int k, class T, class Stored, class LeftLayout, class RightLayout>
void multiply(const Stored* left, const Stored* right, float* to, Mistake mistake) {
    wmma::fragment<wmma::matrix_a, 16, 16, k, T, LeftLayout> l;
    wmma::fragment<wmma::matrix_b, 16, 16, k, T, RightLayout> r;
    wmma::fragment<wmma::accumulator, 16, 16, k, float> sums;
    wmma::fill_fragment(sums, 1.0F);
    if (mistake == Mistake::missing_lane && threadIdx.x == 5) return;
    const unsigned row = std::is_same_v<LeftLayout, wmma::row_major> ? k : 16;
    wmma::load_matrix_sync(l, left + (mistake == Mistake::lanes && threadIdx.x == 7 ? 16 : 0), row);
    wmma::load_matrix_sync(
        r, right + (mistake == Mistake::address ? 4 : 0),
        (std::is_same_v<RightLayout, wmma::row_major> ? 16U : k) + (mistake == Mistake::row ? 1U : 0U));
    if constexpr (std::is_same_v<Stored, float>) {
        for (float& each : l.x) each = wmma::__float_to_tf32(each);
        if (mistake != Mistake::rounding)
            for (float& each : r.x) each = wmma::__float_to_tf32(each);
    }
    wmma::mma_sync(sums, l, r, sums);
    wmma::store_matrix_sync(to, sums, 20, wmma::mem_row_major);
}

}  // namespace fragment_kernels

using fragment_kernels::Mistake;

namespace {

template <int k, class T, class Stored, class LeftLayout, class RightLayout>
std::string run(Mistake mistake) {
    constexpr emulator::ElementKind kind = wmma::emulated::kind<T>;
    alignas(32) Stored left[2 * 16 * k], right[2 * 16 * k];
    std::vector<float> l, r;
    for (int i = 0; i < 16 * k; ++i) {
        emulator::store(left, kind, i, static_cast<float>(i % 7) - 2.25F);
        emulator::store(right, kind, i, static_cast<float>(i % 5) / 3);
        l.push_back(emulator::load(left, kind, i));
        r.push_back(emulator::load(right, kind, i));
        if (std::is_same_v<Stored, float>) r.back() = emulator::rounded_to_tf32(r.back());
    }
    alignas(32) float to[16 * 20] = {};
    const cudaLaunchConfig_t config{1, 32, 0, nullptr, nullptr, 0};
    CHECK(cudaLaunchKernelEx(&config, &fragment_kernels::multiply<k, T, Stored, LeftLayout, RightLayout>, left, right,
                             &to[0], mistake) == cudaSuccess);
    static_cast<void>(cudaStreamSynchronize(nullptr));
    if (const std::string failure = emulator::failure(); !failure.empty()) {
        emulator::mend();
        static_cast<void>(cudaGetLastError());
        return failure;
    }
    for (int row = 0; row < 16; ++row) {
        for (int column = 0; column < 16; ++column) {
            double sum = 1;
            for (int s = 0; s < k; ++s) {
                const int at_left = std::is_same_v<LeftLayout, wmma::row_major> ? row * k + s : s * 16 + row;
                const int at_right = std::is_same_v<RightLayout, wmma::row_major> ? s * 16 + column : column * k + s;
                sum += static_cast<double>(l[static_cast<std::size_t>(at_left)]) *
                       static_cast<double>(r[static_cast<std::size_t>(at_right)]);
            }
            REQUIRE(static_cast<double>(to[row * 20 + column]) == doctest::Approx(sum).epsilon(1e-6));
        }
    }
    return {};
}

bool contains(const std::string& text, const char* what) { return text.find(what) != std::string::npos; }

}  // namespace

TEST_CASE("fragments multiply in each type and layout") {
    using wmma::col_major, wmma::row_major, wmma::precision::tf32;
    CHECK(run<16, __nv_bfloat16, __nv_bfloat16, row_major, col_major>(Mistake::none) == "");
    CHECK(run<16, __nv_bfloat16, __nv_bfloat16, row_major, row_major>(Mistake::none) == "");
    CHECK(run<16, __half, __half, col_major, row_major>(Mistake::none) == "");
    CHECK(run<16, __half, __half, col_major, col_major>(Mistake::none) == "");
    CHECK(run<8, tf32, float, row_major, col_major>(Mistake::none) == "");
    CHECK(run<8, tf32, float, col_major, row_major>(Mistake::none) == "");
    // To the nearest of 10 bits, halves away from zero.
    CHECK(wmma::__float_to_tf32(1 + 0x1p-11F) == 1 + 0x1p-10F);
    CHECK(wmma::__float_to_tf32(-1 - 0x1p-11F) == -1 - 0x1p-10F);
    CHECK(wmma::__float_to_tf32(1 + 0x1.8p-12F) == 1);
}

TEST_CASE("what a GPU leaves undefined of a fragment ends the kernel") {
    using wmma::col_major, wmma::row_major, wmma::precision::tf32;
    const auto failure_of = [](Mistake mistake) { return run<8, tf32, float, row_major, col_major>(mistake); };
    CHECK(contains(failure_of(Mistake::address), "the address of a fragment is not a multiple of 32 bytes"));
    CHECK(contains(failure_of(Mistake::row), "the row of a fragment is not a multiple of 16 bytes"));
    CHECK(contains(failure_of(Mistake::lanes), "the lanes of a warp name different addresses of a fragment"));
    CHECK(contains(failure_of(Mistake::rounding), "a right factor is not rounded to TF32"));
    CHECK(contains(failure_of(Mistake::missing_lane), "a warp diverges"));
}
