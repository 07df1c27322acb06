// SPDX-License-Identifier: Apache-2.0
//
// The element types of tensors and the precision policies.
#include "../test.hpp"

#include <concepts>

#include <cupola/core/element_type.hpp>

static_assert(element_type_of<float> == ElementType::float32);
static_assert(element_type_of<BFloat16> == ElementType::bfloat16);
static_assert(element_type_of<Float16> == ElementType::float16);
static_assert(element_type_of<std::int32_t> == ElementType::int32);
static_assert(element_type_of<std::uint8_t> == ElementType::uint8);
static_assert(size_of(ElementType::float32) == sizeof(float));
static_assert(size_of(ElementType::bfloat16) == sizeof(BFloat16));
static_assert(size_of(ElementType::float16) == sizeof(Float16));
static_assert(size_of(ElementType::int32) == sizeof(std::int32_t));
static_assert(size_of(ElementType::uint8) == sizeof(std::uint8_t));
static_assert(std::same_as<Float32::Activation, float> && Float32::name == "float32");
static_assert(std::same_as<MixedBFloat16::Activation, BFloat16> && MixedBFloat16::name == "bfloat16");
static_assert(std::same_as<MixedFloat16::Activation, Float16> && MixedFloat16::name == "float16");
static_assert(Float32::loss_scale == 1 && MixedBFloat16::loss_scale == 1 && MixedFloat16::loss_scale == LossScale{});
static_assert(std::is_trivially_copyable_v<BFloat16> && sizeof(BFloat16) == 2 && alignof(BFloat16) == 2);
static_assert(!std::is_convertible_v<float, BFloat16> && std::is_convertible_v<BFloat16, float>,
              "what rounds is explicit");
static_assert(BFloat16(1.0F).bits == 0x3F80 && static_cast<float>(BFloat16(-0.5F)) == -0.5F,
              "in constant expressions too");
static_assert(std::is_trivially_copyable_v<Float16> && sizeof(Float16) == 2 && alignof(Float16) == 2);
static_assert(!std::is_convertible_v<float, Float16> && std::is_convertible_v<Float16, float>,
              "what rounds is explicit");
static_assert(Float16(1.0F).bits == 0x3C00 && static_cast<float>(Float16(-0.5F)) == -0.5F &&
              Float16(0x1p-24F).bits == 1);

namespace {

std::uint16_t rounded_bits(std::uint32_t bits) { return BFloat16(std::bit_cast<float>(bits)).bits; }

float value_of(std::uint16_t bits) {
    BFloat16 x;
    x.bits = bits;
    return x;
}

/// A Float16's value by the standard's words: sign, exponent and fraction.
double half_by_fields(std::uint32_t bits) {
    const int exponent = static_cast<int>(bits >> 10 & 31), fraction = static_cast<int>(bits & 0x3FF);
    const double magnitude = exponent == 0    ? std::ldexp(fraction, -24)
                             : exponent == 31 ? (fraction == 0 ? std::numeric_limits<double>::infinity() : std::nan(""))
                                              : std::ldexp(1024 + fraction, exponent - 25);
    return (bits & 0x8000U) != 0 ? -magnitude : magnitude;
}

std::uint32_t half_bits(float value) { return Float16(value).bits; }

}  // namespace

TEST_CASE("element types have the names that files and errors use") {
    CHECK(to_string(ElementType::float32) == "float32");
    CHECK(to_string(ElementType::bfloat16) == "bfloat16");
    CHECK(to_string(ElementType::float16) == "float16");
    CHECK(to_string(ElementType::int32) == "int32");
    CHECK(to_string(ElementType::uint8) == "uint8");
    CHECK(to_string(static_cast<ElementType>(99)) == "unknown");
    CHECK(size_of(static_cast<ElementType>(99)) == 0);
}

TEST_CASE("a float is rounded to the nearest BFloat16, and to the even one of two as near") {
    CHECK(rounded_bits(0x3F80'0000) == 0x3F80);  // 1
    CHECK(rounded_bits(0x3F80'7FFF) == 0x3F80);  // below the middle
    CHECK(rounded_bits(0x3F80'8000) == 0x3F80);  // the middle, from an even one
    CHECK(rounded_bits(0x3F80'8001) == 0x3F81);
    CHECK(rounded_bits(0x3F81'7FFF) == 0x3F81);
    CHECK(rounded_bits(0x3F81'8000) == 0x3F82);  // the middle, from an odd one
    CHECK(rounded_bits(0xBF81'8000) == 0xBF82);
    CHECK(rounded_bits(0x3FFF'8000) == 0x4000);  // over the edge to the next power of two
}

TEST_CASE("zeros, infinities and subnormal numbers are rounded like any other") {
    CHECK(rounded_bits(0x0000'0000) == 0x0000);
    CHECK(rounded_bits(0x8000'0000) == 0x8000);
    CHECK(rounded_bits(0x7F80'0000) == 0x7F80);
    CHECK(rounded_bits(0xFF80'0000) == 0xFF80);
    CHECK(rounded_bits(0x7F7F'7FFF) == 0x7F7F);  // the last that stays finite
    CHECK(rounded_bits(0x7F7F'8000) == 0x7F80);  // the first that does not
    CHECK(rounded_bits(0x0000'8000) == 0x0000);
    CHECK(rounded_bits(0x0000'8001) == 0x0001);
    CHECK(rounded_bits(0x8001'8000) == 0x8002);
    CHECK(rounded_bits(0x007F'8000) == 0x0080);  // the largest without an exponent becomes the smallest with one
}

TEST_CASE_TEMPLATE("a NaN stays a NaN with its sign, even where rounding would clear its bits", T, BFloat16, Float16) {
    constexpr unsigned quiet = std::is_same_v<T, BFloat16> ? 0x40 : 0x200;
    for (const std::uint32_t bits :
         {0x7FC0'0000U, 0x7F80'0001U, 0x7FFF'FFFFU, 0xFFFF'FFFFU, 0xFF80'0001U, 0x7F80'8000U, 0x7F80'1000U}) {
        CAPTURE(bits);
        const T rounded(std::bit_cast<float>(bits));
        CHECK(std::isnan(static_cast<float>(rounded)));
        CHECK((rounded.bits & 0x8000U) == bits >> 31 << 15);
        CHECK((rounded.bits & quiet) != 0);
    }
}

TEST_CASE("every BFloat16 survives conversion to float and back, and rounding chooses the nearest") {
    for (std::uint32_t i = 0; i < 0x1'0000; ++i) {
        const auto bits = static_cast<std::uint16_t>(i);
        const float value = value_of(bits);
        REQUIRE(std::bit_cast<std::uint32_t>(value) == i << 16);
        if (std::isnan(value)) continue;
        REQUIRE(BFloat16(value).bits == bits);
        const float next = value_of(static_cast<std::uint16_t>(i + 1));
        if ((i & 0x7FFFU) >= 0x7F7FU) continue;  // what follows is infinite, or the other sign
        for (const std::uint32_t low : {0x1U, 0x1234U, 0x7FFFU, 0x8000U, 0x8001U, 0xFFFFU}) {
            const auto between = static_cast<double>(std::bit_cast<float>(i << 16 | low));
            const auto chosen = static_cast<double>(static_cast<float>(BFloat16(static_cast<float>(between))));
            REQUIRE(std::abs(between - chosen) <= std::abs(between - static_cast<double>(value)));
            REQUIRE(std::abs(between - chosen) <= std::abs(between - static_cast<double>(next)));
        }
    }
}

TEST_CASE("some floats are rounded to known Float16 values") {
    CHECK(half_bits(0.0F) == 0x0000);
    CHECK(half_bits(-0.0F) == 0x8000);
    CHECK(half_bits(1.0F) == 0x3C00);
    CHECK(half_bits(-2.0F) == 0xC000);
    CHECK(half_bits(0.1F) == 0x2E66);
    CHECK(half_bits(1.0F / 3.0F) == 0x3555);
    CHECK(half_bits(65504.0F) == 0x7BFF);
    CHECK(half_bits(65519.996F) == 0x7BFF);  // the last float that stays finite
    CHECK(half_bits(65520.0F) == 0x7C00);    // the first that does not
    CHECK(half_bits(std::numeric_limits<float>::max()) == 0x7C00);
    CHECK(half_bits(-std::numeric_limits<float>::infinity()) == 0xFC00);
    CHECK(half_bits(0x1p-14F) == 0x0400);      // the smallest with an exponent of its own
    CHECK(half_bits(0x1.FF8p-15F) == 0x03FF);  // the largest without
    CHECK(half_bits(0x1.FFCp-15F) == 0x0400);  // the middle of these, to the even one
    CHECK(half_bits(0x1p-24F) == 0x0001);      // the smallest
    CHECK(half_bits(0x1p-25F) == 0x0000);      // half of it, to the even one
    CHECK(half_bits(0x1.000002p-25F) == 0x0001);
    CHECK(half_bits(-0x1.8p-24F) == 0x8002);
    CHECK(half_bits(std::numeric_limits<float>::denorm_min()) == 0x0000);
}

TEST_CASE("every Float16 is the float of its sign, exponent and fraction, and survives conversion to float and back") {
    for (std::uint32_t i = 0; i < 0x1'0000; ++i) {
        Float16 half;
        half.bits = static_cast<std::uint16_t>(i);
        const float value = half;
        const double expected = half_by_fields(i);
        if (std::isnan(expected)) {
            REQUIRE(std::isnan(value));
            REQUIRE(std::isnan(static_cast<float>(Float16(value))));
            continue;
        }
        REQUIRE(static_cast<double>(value) == expected);
        REQUIRE(std::signbit(value) == ((i & 0x8000U) != 0));
        REQUIRE(half_bits(value) == i);
    }
}

TEST_CASE("between two Float16 the nearer one is chosen, and in the middle the even one") {
    for (std::uint32_t i = 0; i < 0x7C00; ++i) {
        // After the largest comes, for rounding, what would be the next if there were one.
        const double low = half_by_fields(i), high = i == 0x7BFF ? 65536.0 : half_by_fields(i + 1);
        const auto middle = static_cast<float>((low + high) / 2);
        REQUIRE(static_cast<double>(middle) == (low + high) / 2);
        for (const std::uint32_t sign : {0U, 0x8000U}) {
            const float signed_middle = sign != 0 ? -middle : middle;
            REQUIRE(half_bits(signed_middle) == (sign | (i + (i & 1U))));
            REQUIRE(half_bits(std::nextafter(signed_middle, 0.0F)) == (sign | i));
            REQUIRE(half_bits(std::nextafter(signed_middle, sign != 0 ? -1e9F : 1e9F)) == (sign | (i + 1)));
        }
    }
}
