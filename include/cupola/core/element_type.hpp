// SPDX-License-Identifier: Apache-2.0
//
// The element types of tensors, and the policies that say which of them a network computes in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <cupola/core/abi.hpp>

namespace cupola::inline CUPOLA_ABI {

/// The upper half of a float: its range, and 8 bits of significand instead of 24. A float is rounded to the nearest, ties to
/// even; a NaN stays one. A loop of conversions becomes vector instructions. (The compiler's own bit cast, because kernels
/// cannot call std::bit_cast.)
struct BFloat16 {
    std::uint16_t bits = 0;

    constexpr BFloat16() = default;
    CUPOLA_HOST_DEVICE constexpr explicit BFloat16(float value) : bits(rounded(__builtin_bit_cast(std::uint32_t, value))) {}
    CUPOLA_HOST_DEVICE constexpr operator float() const {  // NOLINT: exact
        return __builtin_bit_cast(float, static_cast<std::uint32_t>(bits) << 16);
    }

private:
    CUPOLA_HOST_DEVICE static constexpr std::uint16_t rounded(std::uint32_t u) {
        const std::uint32_t nearest = (u + 0x7FFFU + ((u >> 16) & 1U)) >> 16;
        const std::uint32_t quiet = (u >> 16) | 0x40U;
        return static_cast<std::uint16_t>((u & 0x7FFF'FFFFU) > 0x7F80'0000U ? quiet : nearest);
    }
};

enum class ElementType : std::uint8_t { float32, bfloat16, int32, uint8 };

[[nodiscard]] constexpr std::size_t size_of(ElementType type) {
    switch (type) {
        case ElementType::float32:
        case ElementType::int32: return 4;
        case ElementType::bfloat16: return 2;
        case ElementType::uint8: return 1;
    }
    return 0;
}

[[nodiscard]] constexpr std::string_view to_string(ElementType type) {
    switch (type) {
        case ElementType::float32: return "float32";
        case ElementType::bfloat16: return "bfloat16";
        case ElementType::int32: return "int32";
        case ElementType::uint8: return "uint8";
    }
    return "unknown";
}

template <class T>
inline constexpr ElementType element_type_of = [] {
    static_assert(sizeof(T) == 0, "not an element type of a tensor");
    return ElementType::float32;
}();
template <>
inline constexpr ElementType element_type_of<float> = ElementType::float32;
template <>
inline constexpr ElementType element_type_of<BFloat16> = ElementType::bfloat16;
template <>
inline constexpr ElementType element_type_of<std::int32_t> = ElementType::int32;
template <>
inline constexpr ElementType element_type_of<std::uint8_t> = ElementType::uint8;

/// A precision policy names the type that activations are computed and kept in, and their gradients. Parameters, their
/// gradients, sums and the loss are float under every policy, so none needs a loss scale as long as the activation's range
/// is float's. `InPrecision<Policy, Net>` puts a network under one.
struct Float32 {
    using Activation = float;
    static constexpr std::string_view name = "float32";
};
/// Convolutions and matrix products take bfloat16 and add in float: Keras's mixed_bfloat16.
struct MixedBFloat16 {
    using Activation = BFloat16;
    static constexpr std::string_view name = "bfloat16";
};

}  // namespace cupola::inline CUPOLA_ABI
