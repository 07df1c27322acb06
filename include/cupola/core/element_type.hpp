// SPDX-License-Identifier: Apache-2.0
//
// The element types of tensors, and the policies that say which of them a network computes in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <cupola/core/abi.hpp>
#include <cupola/core/loss_scale.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// The upper half of a float: its range, and 8 bits of significand instead of 24. A float is rounded to the nearest,
/// ties to even; a NaN stays one. A loop of conversions is vectorised. (With the compiler's built-in bit cast, because
/// kernels cannot call std::bit_cast.)
struct BFloat16 {
    std::uint16_t bits = 0;

    constexpr BFloat16() = default;
    CUPOLA_HOST_DEVICE constexpr explicit BFloat16(float value)
        : bits(rounded(__builtin_bit_cast(std::uint32_t, value))) {}
    CUPOLA_HOST_DEVICE constexpr operator float() const {  // NOLINT: exact
        return __builtin_bit_cast(float, static_cast<std::uint32_t>(bits) << 16);
    }

private:
    CUPOLA_HOST_DEVICE static constexpr std::uint16_t rounded(std::uint32_t u) {
        const std::uint32_t nearest = (u + 0x7FFFU + ((u >> 16) & 1U)) >> 16;
        const std::uint32_t quiet = (u >> 16) | 0x40U;
        // Selected by a mask: with a conditional, g++ -O2 does not vectorise a loop that contains a second one.
        const std::uint32_t is_nan = 0U - static_cast<std::uint32_t>((u & 0x7FFF'FFFFU) > 0x7F80'0000U);
        return static_cast<std::uint16_t>((quiet & is_nan) | (nearest & ~is_nan));
    }
};

/// IEEE 754's binary16, CUDA's `__half`: 11 bits of significand, and 65,504 as the largest number. A float is rounded
/// to the nearest, ties to even; from 65,520 it becomes infinity, and below 2^-14 a multiple of 2^-24. A NaN stays one,
/// with a sign and a payload that depend on the device. Kernels convert with the GPU's own instruction.
struct Float16 {
    std::uint16_t bits = 0;

    constexpr Float16() = default;
    CUPOLA_HOST_DEVICE constexpr explicit Float16(float value) : bits(rounded(value)) {}
    CUPOLA_HOST_DEVICE constexpr operator float() const { return widened(bits); }  // NOLINT: exact

private:
    CUPOLA_HOST_DEVICE static constexpr std::uint16_t rounded(float value) {
#ifdef __CUDA_ARCH__
        if (!__builtin_is_constant_evaluated()) {
            std::uint16_t nearest = 0;
            asm("cvt.rn.f16.f32 %0, %1;" : "=h"(nearest) : "f"(value));
            return nearest;
        }
#endif
        const auto u = __builtin_bit_cast(std::uint32_t, value);
        const std::uint32_t sign = (u >> 16) & 0x8000U, magnitude = u & 0x7FFF'FFFFU;
        std::uint32_t result = 0x7C00U;  // infinity
        if (magnitude > 0x7F80'0000U) {  // a NaN, made quiet
            result = 0x7E00U | ((magnitude >> 13) & 0x3FFU);
        } else if (magnitude < 0x3880'0000U) {  // below 2^-14: in the sum with 1/2 a float's last bit is 2^-24
            const float sum = __builtin_bit_cast(float, magnitude) + 0.5F;
            result = __builtin_bit_cast(std::uint32_t, sum) - 0x3F00'0000U;
        } else if (magnitude < 0x477F'F000U) {  // below 65,520. An exponent is 112 more in a float
            result = ((magnitude + 0xFFFU + ((magnitude >> 13) & 1U)) >> 13) - (112U << 10);
        }
        return static_cast<std::uint16_t>(sign | result);
    }
    CUPOLA_HOST_DEVICE static constexpr float widened(std::uint16_t half) {
#ifdef __CUDA_ARCH__
        if (!__builtin_is_constant_evaluated()) {
            float value = 0;
            asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
            return value;
        }
#endif
        const std::uint32_t sign = (half & 0x8000U) << 16, magnitude = half & 0x7FFFU;
        std::uint32_t result = (magnitude << 13) + (112U << 23);
        if (magnitude >= 0x7C00U) {  // an infinity or a NaN
            result = 0x7F80'0000U | (magnitude << 13);
        } else if (magnitude < 0x400U) {
            result = __builtin_bit_cast(std::uint32_t, static_cast<float>(magnitude) * 0x1p-24F);
        }
        return __builtin_bit_cast(float, sign | result);
    }
};

enum class ElementType : std::uint8_t { float32, bfloat16, float16, int32, uint8 };

[[nodiscard]] constexpr std::size_t size_of(ElementType type) {
    switch (type) {
        case ElementType::float32:
        case ElementType::int32: return 4;
        case ElementType::bfloat16:
        case ElementType::float16: return 2;
        case ElementType::uint8: return 1;
    }
    return 0;
}

[[nodiscard]] constexpr std::string_view to_string(ElementType type) {
    switch (type) {
        case ElementType::float32: return "float32";
        case ElementType::bfloat16: return "bfloat16";
        case ElementType::float16: return "float16";
        case ElementType::int32: return "int32";
        case ElementType::uint8: return "uint8";
    }
    return "unknown";
}

template <class T>
inline constexpr ElementType element_type_of = [] {
    static_assert(sizeof(T) == 0, "T is not an element type of a tensor");
    return ElementType::float32;
}();
template <>
inline constexpr ElementType element_type_of<float> = ElementType::float32;
template <>
inline constexpr ElementType element_type_of<BFloat16> = ElementType::bfloat16;
template <>
inline constexpr ElementType element_type_of<Float16> = ElementType::float16;
template <>
inline constexpr ElementType element_type_of<std::int32_t> = ElementType::int32;
template <>
inline constexpr ElementType element_type_of<std::uint8_t> = ElementType::uint8;

/// A precision policy names the type in which activations and their gradients are computed and stored. Parameters,
/// their gradients, sums and the loss are float under every policy. `InPrecision<Policy, Net>` puts a network under
/// one.
///
/// Backward begins with the gradient multiplied by `loss_scale`, and the parameters' mean gradient is divided by it, so
/// that optimisers, clipping and reports see the gradient itself. It is 1 where activations have the range of a float;
/// a number is a constant scale, and a LossScale one that may change. TrainingOptions::loss_scale replaces it.
struct Float32 {
    using Activation = float;
    static constexpr std::string_view name = "float32";
    static constexpr float loss_scale = 1;
};
/// Convolutions and matrix products read bfloat16 and add in float, as Keras's mixed_bfloat16 does.
struct MixedBFloat16 {
    using Activation = BFloat16;
    static constexpr std::string_view name = "bfloat16";
    static constexpr float loss_scale = 1;
};
/// The same in IEEE's half, on `Cuda` only, as Keras's mixed_float16. The loss scale keeps small gradients above 2^-24,
/// the smallest number in half; a step whose gradients it makes too large is skipped, and the scale is halved. A policy
/// with another scale is `struct Half : MixedFloat16 { static constexpr LossScale loss_scale{.initial = 1024}; };`, or
/// has a number, `static constexpr float loss_scale = 1024`, for a scale that never changes.
struct MixedFloat16 {
    using Activation = Float16;
    static constexpr std::string_view name = "float16";
    static constexpr LossScale loss_scale{};
};

}}  // namespace cupola::CUPOLA_ABI
