// SPDX-License-Identifier: Apache-2.0
//
// Strings of JSON as they are written, and the UTF-8 that they are written in. json_text.hpp reads them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <cupola/core/error.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The bytes of the UTF-8 sequence at the beginning of `text`; 0 if there is none.
[[nodiscard]] inline std::size_t utf8_length(std::string_view text) {
    const auto byte = [&](std::size_t i) -> std::uint32_t {
        return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
    };
    const std::uint32_t first = byte(0);
    if (first < 0x80) return text.empty() ? 0 : 1;
    const std::size_t length = first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0;
    std::uint32_t point = length == 2 ? first & 0x1F : length == 3 ? first & 0x0F : first & 0x07;
    for (std::size_t i = 1; i < length; ++i) {
        if ((byte(i) & 0xC0) != 0x80) return 0;
        point = point << 6 | (byte(i) & 0x3F);
    }
    const bool shorter = (length == 3 && point < 0x800) || (length == 4 && point < 0x10000);
    const bool no_character = (point >= 0xD800 && point < 0xE000) || point > 0x10FFFF;
    return shorter || no_character ? 0 : length;
}

/// A text of a file for a message: without line breaks and other control characters, and cut to about `enough` bytes.
[[nodiscard]] inline std::string shown(std::string_view text, std::size_t enough = 100) {
    std::string result;
    while (!text.empty() && result.size() < enough) {
        const std::size_t length = utf8_length(text);
        const auto c = static_cast<unsigned char>(text[0]);
        if (length == 0 || c < 0x20 || c == 0x7F) {
            result += '?';
        } else {
            result += text.substr(0, length);
        }
        text.remove_prefix(length == 0 ? 1 : length);
    }
    if (!text.empty()) result += "...";
    return result;
}

/// Appends one character of UTF-8 as a JSON string has it.
inline void append_json_character(std::string& json, std::string_view character) {
    const auto c = static_cast<unsigned char>(character[0]);
    if (c < 0x20) {
        json += "\\u00";
        json += "0123456789abcdef"[c >> 4];
        json += "0123456789abcdef"[c & 15];
    } else {
        if (c == '"' || c == '\\') json += '\\';
        json += character;
    }
}

}}}  // namespace cupola::CUPOLA_ABI::impl
