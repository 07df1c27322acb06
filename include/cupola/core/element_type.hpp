// SPDX-License-Identifier: Apache-2.0
//
// The element types of tensors, and the policy that says which of them a network computes in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <cupola/core/abi.hpp>

namespace cupola::inline CUPOLA_ABI {

enum class ElementType : std::uint8_t { float32, int32, uint8 };

[[nodiscard]] constexpr std::size_t size_of(ElementType type) { return type == ElementType::uint8 ? 1 : 4; }

[[nodiscard]] constexpr std::string_view to_string(ElementType type) {
    switch (type) {
        case ElementType::float32: return "float32";
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
inline constexpr ElementType element_type_of<std::int32_t> = ElementType::int32;
template <>
inline constexpr ElementType element_type_of<std::uint8_t> = ElementType::uint8;

/// A precision policy names the type that activations are computed and kept in. Parameters, gradients and sums are
/// float under every policy.
struct Float32 {
    using Activation = float;
    static constexpr std::string_view name = "float32";
};

}  // namespace cupola::inline CUPOLA_ABI
