// SPDX-License-Identifier: Apache-2.0
//
// Conversions between the element types of matrices and tensors and float, and rounding to fewer bits. They do not use
// Cupola's conversions, which the tests check.
#pragma once

#include "../../standard.hpp"

namespace cupola::emulator {

enum class ElementKind : std::uint8_t { float32, bfloat16, float16 };

[[nodiscard]] constexpr std::int64_t bytes_of(ElementKind kind) { return kind == ElementKind::float32 ? 4 : 2; }

/// Rounds to the nearest number whose last `dropped` bits are 0, ties to even.
[[nodiscard]] inline float rounded_to_fewer_bits(float value, int dropped) {
    if (!std::isfinite(value)) return value;
    const std::uint32_t step = 1U << dropped, bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t lower = bits / step * step, upper = lower + step, rest = bits - lower;
    const bool up = rest * 2 == step ? (lower / step) % 2 == 1 : rest * 2 > step;
    return std::bit_cast<float>(up ? upper : lower);
}
[[nodiscard]] inline float rounded_to_bfloat16(float value) { return rounded_to_fewer_bits(value, 16); }
/// TF32 has 10 fraction bits, float 23.
[[nodiscard]] inline float rounded_to_tf32(float value) { return rounded_to_fewer_bits(value, 13); }
[[nodiscard]] inline float rounded_to_float16(float value) { return static_cast<float>(static_cast<_Float16>(value)); }

[[nodiscard]] inline float load(const void* from, ElementKind kind, std::int64_t i) {
    const char* const at = static_cast<const char*>(from) + i * bytes_of(kind);
    if (kind == ElementKind::float32) {
        float value = 0;
        std::memcpy(&value, at, sizeof value);
        return value;
    }
    if (kind == ElementKind::float16) {
        _Float16 value = 0;
        std::memcpy(&value, at, sizeof value);
        return static_cast<float>(value);
    }
    std::uint16_t upper_half = 0;
    std::memcpy(&upper_half, at, sizeof upper_half);
    return std::bit_cast<float>(std::uint32_t{upper_half} * 65536U);
}

inline void store(void* to, ElementKind kind, std::int64_t i, float value) {
    char* const at = static_cast<char*>(to) + i * bytes_of(kind);
    if (kind == ElementKind::float32) {
        std::memcpy(at, &value, sizeof value);
    } else if (kind == ElementKind::float16) {
        const auto narrow = static_cast<_Float16>(value);
        std::memcpy(at, &narrow, sizeof narrow);
    } else {
        const float nearest = std::isnan(value) ? std::bit_cast<float>(0x7FC0'0000U) : rounded_to_bfloat16(value);
        const auto upper_half = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(nearest) / 65536U);
        std::memcpy(at, &upper_half, sizeof upper_half);
    }
}

}  // namespace cupola::emulator
