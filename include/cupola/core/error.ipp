// SPDX-License-Identifier: Apache-2.0
//
// Definitions of cupola/core/error.hpp.
#pragma once

#include <cupola/core/error.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

CUPOLA_DECL void TextPart::append_to(std::string& result) const {
    char digits[32];
    std::uint64_t magnitude = 0;
    switch (kind_) {
        case Kind::text: result += text_; return;
        case Kind::character: result += character_; return;
        case Kind::real:
        case Kind::decimals: append_real(result); return;
        case Kind::integer:
            if (integer_ < 0) result += '-';
            magnitude = integer_ < 0 ? 0 - static_cast<std::uint64_t>(integer_) : static_cast<std::uint64_t>(integer_);
            break;
        case Kind::natural: magnitude = natural_; break;
        case Kind::bytes: append_bytes(result, natural_); return;
    }
    result.append(digits, std::to_chars(digits, digits + sizeof digits, magnitude).ptr);
}

CUPOLA_DECL void TextPart::append_real(std::string& result) const {
    if (is_nan(real_)) {
        result += "nan";  // never "-nan"
        return;
    }
    char digits[400];  // the largest double has 309 digits before its point
    const auto format = kind_ == Kind::decimals ? std::chars_format::fixed : std::chars_format::general;
    result.append(digits, std::to_chars(digits, digits + sizeof digits, real_, format, digits_).ptr);
}

CUPOLA_DECL void TextPart::append_bytes(std::string& result, std::uint64_t bytes) {
    // A number that would round to 1000.0 of a unit is written in the next unit.
    const bool giga = bytes >= 999'950'000, mega = bytes >= 999'950;
    if (bytes < 1'000) {
        result += join({bytes, " bytes"});
    } else {
        const std::uint64_t tenth = giga   ? 100'000'000
                                    : mega ? 100'000
                                           : 100,
                            tenths = bytes / tenth + (bytes % tenth >= tenth / 2 ? 1 : 0);
        result += join({tenths / 10, '.', tenths % 10, giga ? " GB" : mega ? " MB" : " kB"});
    }
}

CUPOLA_DECL std::string join(std::initializer_list<TextPart> parts) {
    std::string result;
    for (const TextPart& part : parts) part.append_to(result);
    return result;
}

}  // namespace impl

CUPOLA_DECL std::string exact_text(double value) {
    if (impl::is_nan(value)) return "nan";  // never "-nan"
    char digits[32];
    return {digits, std::to_chars(digits, digits + sizeof digits, value, std::chars_format::general).ptr};
}

}}  // namespace cupola::CUPOLA_ABI
