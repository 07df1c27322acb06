// SPDX-License-Identifier: Apache-2.0
//
// Floating-point elements of a file as float: F32; F16 and BF16, in which others save smaller models and which convert
// exactly; and F64, which is rounded to the nearest.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include <cupola/core/abi.hpp>
#include <cupola/core/element_type.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Whether `read_stored_floats` knows elements of this type, by its name in a safetensors header.
[[nodiscard]] inline bool is_stored_float(std::string_view type) {
    return type == "F32" || type == "F16" || type == "BF16" || type == "F64";
}

/// Writes the elements in `bytes`, which need not be aligned, to `to`.
inline void read_stored_floats(std::string_view type, std::span<const std::byte> bytes, float* to) {
    const auto each = [&]<class Stored>(Stored, auto convert) {
        for (std::size_t at = 0; at < bytes.size(); at += sizeof(Stored)) {
            Stored element;
            std::memcpy(&element, bytes.data() + at, sizeof element);
            *to++ = convert(element);
        }
    };
    if (type == "F16") {
        each(Float16{}, [](Float16 value) { return static_cast<float>(value); });
    } else if (type == "BF16") {
        each(std::uint16_t{},
             [](std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); });
    } else if (type == "F64") {
        each(double{}, [](double value) { return static_cast<float>(value); });
    } else {
        std::memcpy(to, bytes.data(), bytes.size());
    }
}

}}}  // namespace cupola::CUPOLA_ABI::impl
