// SPDX-License-Identifier: Apache-2.0
//
// Functions of a float for element formulas (ops/elementwise.hpp). On the host, compilers vectorise a loop of them for
// every processor and at any optimisation level; the standard library's functions may set errno, so a loop with one of
// them is scalar. In a kernel they are CUDA's functions.
//
// Largest errors on the host over all floats, in units in the last place of the result (a GPU's are in CUDA's
// documentation, at most 2):
//
//   exp   1.1     expm1  1.6
//   log   0.9     tanh   1.5
//   log1p 1.5     erf    1.3
//
// A NaN is kept. exp is 0 below -104 and infinite above 88.73; tanh and erf are -1 and 1 at the infinities; log is -inf
// at 0 and NaN below 0; log1p(x) is log(1 + x), and expm1(x) is exp(x) - 1, exact for an x near 0. A subnormal argument
// or result counts as 0 where the thread flushes subnormals, as a device's threads do.
//
// The coefficients are minimax coefficients, found by the Remez algorithm and rounded to floats; the argument
// reductions of exp and log are those of Cephes (Moshier 1989).
#pragma once

#ifdef __CUDA_ARCH__
#include <cmath>
#endif
#include <cstdint>

#include <cupola/core/abi.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace math {

/// |x|.
[[nodiscard, gnu::always_inline]] CUPOLA_HOST_DEVICE inline float abs(float x) {
    return __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, x) & 0x7FFF'FFFFU);
}
/// `magnitude`, which must not be negative, with the sign of `sign`.
[[nodiscard, gnu::always_inline]] CUPOLA_HOST_DEVICE inline float with_sign(float magnitude, float sign) {
    return __builtin_bit_cast(
        float, __builtin_bit_cast(std::uint32_t, magnitude) | (__builtin_bit_cast(std::uint32_t, sign) & 0x8000'0000U));
}
/// a where `condition` holds, else b. Both are computed: there is no branch.
[[nodiscard, gnu::always_inline]] CUPOLA_HOST_DEVICE inline float select(bool condition, float a, float b) {
    const std::uint32_t mask = 0U - static_cast<std::uint32_t>(condition);
    return __builtin_bit_cast(
        float, (__builtin_bit_cast(std::uint32_t, a) & mask) | (__builtin_bit_cast(std::uint32_t, b) & ~mask));
}

/// x = k ln 2 + r with |r| <= ln 2 / 2, and p for exp(r) = 1 + r + r^2 p.
struct ReducedExp {
    std::int32_t k;
    float r, p;
};
/// |x| must not be above 2^22, and should not be above 104.
[[nodiscard, gnu::always_inline]] CUPOLA_HOST_DEVICE inline ReducedExp reduced_exp(float x) {
    // Adding 1.5 * 2^23 rounds to an integer, which is in the last bits of the sum.
    constexpr float rounder = 0x1.8p23F;
    const float shifted = x * 0x1.715476p0F + rounder;
    const float k = shifted - rounder;
    const float r = (x - k * 0x1.63p-1F) + k * 0x1.bd0106p-13F;
    float p = 0x1.6a2420p-10F;
    p = p * r + 0x1.1239fap-7F;
    p = p * r + 0x1.5558f2p-5F;
    p = p * r + 0x1.555492p-3F;
    p = p * r + 0x1.fffffcp-2F;
    return {__builtin_bit_cast(std::int32_t, shifted) - __builtin_bit_cast(std::int32_t, rounder), r, p};
}
/// 2^k for a normal result.
[[nodiscard, gnu::always_inline]] CUPOLA_HOST_DEVICE inline float power_of_two(std::int32_t k) {
    return __builtin_bit_cast(float, (k + 127) << 23);
}

[[nodiscard, gnu::always_inline]] CUPOLA_HOST_DEVICE inline float exp(float x) {
#ifdef __CUDA_ARCH__
    return expf(x);
#else
    x = select(x < -104.0F, -104.0F, select(x > 89.0F, 89.0F, x));
    const auto [k, r, p] = reduced_exp(x);
    // Multiplies by 2^k in two steps, because 2^128 and 2^-150 are not normal numbers.
    const std::int32_t half = k >> 1;
    return (r * r * p + r + 1.0F) * power_of_two(half) * power_of_two(k - half);
#endif
}

/// exp(x) - 1.
[[nodiscard, gnu::always_inline]] CUPOLA_HOST_DEVICE inline float expm1(float x) {
#ifdef __CUDA_ARCH__
    return expm1f(x);
#else
    x = select(x < -25.0F, -25.0F, select(x > 89.0F, 89.0F, x));
    const auto [k, r, p] = reduced_exp(x);
    // 2^k (exp(r) - 1) + 2^k - 1. Half of it where k is 128, because 2^128 is not a number; twice it below 0.
    const std::int32_t shift = k >> 7;
    const float scale = power_of_two(k - shift);
    return (scale * (r * r * p + r) + (scale - power_of_two(-shift))) * power_of_two(shift);
#endif
}

[[nodiscard, gnu::always_inline]] CUPOLA_HOST_DEVICE inline float log(float x) {
#ifdef __CUDA_ARCH__
    return logf(x);
#else
    constexpr float infinity = __builtin_inff(), least_normal = 0x1p-126F;
    const bool subnormal = x < least_normal;
    const auto bits = __builtin_bit_cast(std::uint32_t, select(subnormal, x * 0x1p25F, x));
    // x = 2^e (1 + f), with 1 + f in [sqrt(1/2), sqrt(2)].
    constexpr std::uint32_t root_of_half = 0x3F35'04F3U;
    const std::uint32_t above = bits - root_of_half;
    const auto e = static_cast<float>(static_cast<std::int32_t>(above) >> 23) - select(subnormal, 25.0F, 0.0F);
    const float f = __builtin_bit_cast(float, (above & 0x007F'FFFFU) + root_of_half) - 1.0F;
    float p = 0x1.1450bap-4F;
    p = p * f - 0x1.de2c58p-4F;
    p = p * f + 0x1.e6ead2p-4F;
    p = p * f - 0x1.fc2408p-4F;
    p = p * f + 0x1.2337e4p-3F;
    p = p * f - 0x1.555c44p-3F;
    p = p * f + 0x1.99a4b0p-3F;
    p = p * f - 0x1.000006p-2F;
    p = p * f + 0x1.555548p-2F;
    const float square = f * f;
    const float result = ((f * square) * p - e * 0x1.bd0106p-13F) - 0.5F * square + f + e * 0x1.63p-1F;
    const float finite = select(x > 0.0F, result, select(x == 0.0F, -infinity, __builtin_nanf("")));
    return select(x < infinity, finite, x);
#endif
}

/// log(1 + x).
[[nodiscard, gnu::always_inline]] CUPOLA_HOST_DEVICE inline float log1p(float x) {
#ifdef __CUDA_ARCH__
    return log1pf(x);
#else
    // The logarithm of the rounded sum, and what the rounding took from it.
    const float sum = 1.0F + x;
    const float lost = select(x > 1.0F, 1.0F - (sum - x), x - (sum - 1.0F)) / sum;
    return log(sum) + select((sum > 0.0F) & (sum < __builtin_inff()), lost, 0.0F);
#endif
}

[[nodiscard, gnu::always_inline]] CUPOLA_HOST_DEVICE inline float tanh(float x) {
#ifdef __CUDA_ARCH__
    return tanhf(x);
#else
    const float magnitude = abs(x), square = x * x;
    float p = -0x1.73706cp-8F;
    p = p * square + 0x1.519f92p-6F;
    p = p * square - 0x1.b82880p-5F;
    p = p * square + 0x1.110696p-3F;
    p = p * square - 0x1.555530p-2F;
    const float near = magnitude * square * p + magnitude;
    const float far = 1.0F - 2.0F / (exp(2.0F * magnitude) + 1.0F);
    return with_sign(select(magnitude < 0.625F, near, far), x);
#endif
}

[[nodiscard, gnu::always_inline]] CUPOLA_HOST_DEVICE inline float erf(float x) {
#ifdef __CUDA_ARCH__
    return erff(x);
#else
    const float magnitude = abs(x), square = x * x;
    float p = 0x1.5cdc72p-14F;
    p = p * square - 0x1.aa4188p-11F;
    p = p * square + 0x1.54c83ap-8F;
    p = p * square - 0x1.b80e98p-6F;
    p = p * square + 0x1.ce2e0ap-4F;
    p = p * square - 0x1.812742p-2F;
    p = p * square + 0x1.06eba8p-3F;
    const float near = magnitude * p + magnitude;
    // 1 - erf(x) = exp(-x - x q(x)) up to 4, beyond which erf rounds to 1 in float.
    const float t = select(magnitude > 4.0F, 4.0F, magnitude);
    float q = -0x1.c0bb7cp-13F;
    q = q * t + 0x1.a5607ep-9F;
    q = q * t - 0x1.77060ep-6F;
    q = q * t + 0x1.af267ep-4F;
    q = q * t + 0x1.457cecp-1F;
    q = q * t + 0x1.07327ap-3F;
    const float far = 1.0F - exp(-(t * q + t));
    return with_sign(select(magnitude < 0.921875F, near, far), x);
#endif
}

}  // namespace math

}}  // namespace cupola::CUPOLA_ABI
