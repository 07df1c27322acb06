// SPDX-License-Identifier: Apache-2.0
//
// The element types of tensors and the precision policy.
#include <concepts>
#include <cstdint>

#include <doctest/doctest.h>
#include <cupola/core/element_type.hpp>

using namespace cupola;

static_assert(element_type_of<float> == ElementType::float32);
static_assert(element_type_of<std::int32_t> == ElementType::int32);
static_assert(element_type_of<std::uint8_t> == ElementType::uint8);
static_assert(size_of(ElementType::float32) == sizeof(float));
static_assert(size_of(ElementType::int32) == sizeof(std::int32_t));
static_assert(size_of(ElementType::uint8) == sizeof(std::uint8_t));
static_assert(std::same_as<Float32::Activation, float> && Float32::name == "float32");

TEST_CASE("element types have the names that files and errors use") {
    CHECK(to_string(ElementType::float32) == "float32");
    CHECK(to_string(ElementType::int32) == "int32");
    CHECK(to_string(ElementType::uint8) == "uint8");
    CHECK(to_string(static_cast<ElementType>(99)) == "unknown");
}
