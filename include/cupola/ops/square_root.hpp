// SPDX-License-Identifier: Apache-2.0
//
// Square roots for element formulas. On the host, compilers vectorise them for every processor: std::sqrt may set
// errno, so g++ does not vectorise a loop with it unless the user's whole build disables this. On a GPU they are the
// GPU's own.
#pragma once

#include <bit>
#include <cstdint>

#include <cupola/core/abi.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// x^(-1/2) for a normal x > 0, as the nearest float or one adjacent to it: Newton steps from an initial guess
/// in the exponent. For 0 the result is some finite number on the host, and infinity on a GPU.
[[nodiscard, gnu::always_inline]] CUPOLA_HOST_DEVICE inline float inverse_square_root(float x) {
#ifdef __CUDA_ARCH__
    return rsqrtf(x);
#else
    constexpr std::uint32_t guess = 0x5F375A86;  // 3/2 of the bits of 1, less a shift that minimises the error
    float r = std::bit_cast<float>(guess - (std::bit_cast<std::uint32_t>(x) >> 1));
    const float half = 0.5F * x;
    r *= 1.5F - half * r * r;
    r *= 1.5F - half * r * r;
    return r * (1.5F - half * r * r);
#endif
}

/// x^(1/2) for x >= 0, as the nearest float or one adjacent to it.
[[nodiscard, gnu::always_inline]] CUPOLA_HOST_DEVICE inline float square_root(float x) {
#ifdef __CUDA_ARCH__
    return sqrtf(x);
#else
    const float r = inverse_square_root(x);
    const float root = x * r;
    return root + 0.5F * r * (x - root * root);
#endif
}

}}  // namespace cupola::CUPOLA_ABI
