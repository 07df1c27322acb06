// SPDX-License-Identifier: Apache-2.0
//
// Strings of JSON: their escapes, there and back, and the UTF-8 that they are written in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <cupola/core/error.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

[[nodiscard]] inline int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/// The four hexadecimal digits at `place`, or -1.
[[nodiscard]] inline std::int32_t four_hex_digits(std::string_view text, std::size_t place) {
    std::int32_t value = 0;
    for (std::size_t i = 0; i < 4; ++i) {
        const int digit = place + i < text.size() ? hex_digit(text[place + i]) : -1;
        if (digit < 0) return -1;
        value = value * 16 + digit;
    }
    return value;
}

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

/// Writes `point` in UTF-8 to `to`; returns the address after it.
inline char* put_utf8(char* to, std::uint32_t point) {
    const auto put = [&](std::uint32_t byte) { *to++ = static_cast<char>(byte); };
    if (point < 0x80) {
        put(point);
    } else if (point < 0x800) {
        put(0xC0 | point >> 6);
        put(0x80 | (point & 0x3F));
    } else if (point < 0x10000) {
        put(0xE0 | point >> 12);
        put(0x80 | (point >> 6 & 0x3F));
        put(0x80 | (point & 0x3F));
    } else {
        put(0xF0 | point >> 18);
        put(0x80 | (point >> 12 & 0x3F));
        put(0x80 | (point >> 6 & 0x3F));
        put(0x80 | (point & 0x3F));
    }
    return to;
}

/// Writes the characters that `written` represents over it, at `to`, and returns them: they never take more bytes than
/// their escapes. `written` has been checked by `JsonText::string`.
[[nodiscard]] inline std::string_view unescape(char* to, std::string_view written) {
    if (written.find('\\') == std::string_view::npos) return written;
    char* end = to;
    for (std::size_t i = 0; i < written.size(); ++i) {
        if (written[i] != '\\') {
            *end++ = written[i];
            continue;
        }
        const char kind = written[++i];
        if (kind != 'u') {
            constexpr std::string_view kinds = "bfnrt", characters = "\b\f\n\r\t";
            const std::size_t known = kinds.find(kind);
            *end++ = known == std::string_view::npos ? kind : characters[known];
            continue;
        }
        auto point = static_cast<std::uint32_t>(four_hex_digits(written, i + 1));
        i += 4;
        if (point >= 0xD800 && point < 0xE000) {
            const auto low = static_cast<std::uint32_t>(four_hex_digits(written, i + 3));
            point = 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00);
            i += 6;
        }
        end = put_utf8(end, point);
    }
    return {to, static_cast<std::size_t>(end - to)};
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

/// Appends `value` as a JSON string, quotes included. Throws InvalidArgument where it is not UTF-8.
inline void append_json_string(std::string& json, std::string_view value) {
    json += '"';
    for (std::size_t i = 0; i < value.size();) {
        const std::size_t length = utf8_length(value.substr(i));
        require(length > 0, "a string for a safetensors header is not UTF-8 at byte ", i);
        append_json_character(json, value.substr(i, length));
        i += length;
    }
    json += '"';
}

}}}  // namespace cupola::CUPOLA_ABI::impl
