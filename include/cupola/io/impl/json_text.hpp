// SPDX-License-Identifier: Apache-2.0
//
// Reads the JSON of a safetensors header or of an index in place: objects, arrays, strings and natural numbers, which
// is all that such a header has; other values are skipped.
//
// It allocates nothing, whatever the text contains: a general parser copies each string and each number before its
// length can be checked. There is no recursion either. Whatever it accepts is JSON in UTF-8; the tests compare it with
// nlohmann-json.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include <cupola/core/error.hpp>
#include <cupola/io/impl/json_string.hpp>

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
[[nodiscard, gnu::cold]] inline std::string_view unescape(char* to, std::string_view written) {
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

/// Of UTF-8, which editors of Windows write before a text.
inline constexpr std::string_view utf8_byte_order_mark = "\xEF\xBB\xBF";

class JsonText {
public:
    /// What should have the text, and which part of it the text is; for messages.
    struct Source {
        std::string_view format = "a safetensors file", part = " of its header";
    };

    /// `file` is for messages.
    JsonText(std::string_view content, const std::string& file) : JsonText(content, file, Source()) {}
    JsonText(std::string_view content, const std::string& file, Source source)
        : text_(content), file_(file), source_(source) {}

    /// Takes the next character, after white space, if it is `c`.
    [[nodiscard]] bool accept(char c) {
        skip_space();
        const bool found = at_ < text_.size() && text_[at_] == c;
        at_ += found ? 1 : 0;
        return found;
    }

    void expect(char c) {
        if (!accept(c)) fail("'", c, "' is missing");
    }

    void expect_end() {
        skip_space();
        if (at_ < text_.size()) fail("text follows its end");
    }

    /// The next string as it is written, without its quotes and with its escapes.
    [[nodiscard]] std::string_view string() {
        expect('"');
        const std::size_t begin = at_;
        while (true) {
            if (at_ == text_.size()) fail("a string is not terminated");
            const char c = text_[at_];
            if (c == '"') break;
            const std::size_t length = c == '\\'                              ? escape_length()
                                       : static_cast<unsigned char>(c) < 0x20 ? 0
                                                                              : utf8_length(text_.substr(at_));
            if (length == 0) fail("a string has a byte that JSON does not allow");
            at_ += length;
        }
        return text_.substr(begin, at_++ - begin);
    }

    /// The next natural number, below 2^63.
    [[nodiscard]] std::uint64_t natural() {
        skip_space();
        constexpr std::uint64_t largest = std::numeric_limits<std::int64_t>::max();
        const std::size_t begin = at_;
        std::uint64_t value = 0;
        for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
            const auto digit = static_cast<std::uint64_t>(text_[at_] - '0');
            if (value > (largest - digit) / 10) fail("a number is too large");
            value = value * 10 + digit;
        }
        if (at_ == begin) fail("a natural number is missing");
        if (text_[begin] == '0' && at_ > begin + 1) fail("a number begins with 0");
        return value;
    }

    /// Skips the next value, whatever it is. Objects and arrays may be nested 64 deep.
    void skip_value() {
        // A bit per object or array that is open, the last one lowest: whether it is an object.
        std::uint64_t objects = 0;
        int depth = 0;
        do {
            if (depth > 0 && (objects & 1) != 0) {
                static_cast<void>(string());
                expect(':');
            }
            const bool object = accept('{'), opens = object || accept('[');
            if (opens && !accept(object ? '}' : ']')) {
                if (++depth > 64) fail("values are nested more than 64 deep");
                objects = objects << 1 | (object ? 1 : 0);
                continue;
            }
            if (!opens) skip_scalar();
            while (depth > 0 && !accept(',')) {
                expect((objects & 1) != 0 ? '}' : ']');
                objects >>= 1;
                --depth;
            }
        } while (depth > 0);
    }

    [[nodiscard]] std::size_t place() const { return at_; }

    template <class... Parts>
    [[noreturn]] void fail(const Parts&... parts) const {
        throw DataError(
            text(file_, " is damaged or is not ", source_.format, ": at byte ", at_, source_.part, " ", parts...));
    }

private:
    /// A string, a number, true, false or null.
    void skip_scalar() {
        skip_space();
        if (text_.substr(at_).starts_with('"')) return static_cast<void>(string());
        for (const std::string_view word : {"true", "false", "null"}) {
            if (!text_.substr(at_).starts_with(word)) continue;
            at_ += word.size();
            return;
        }
        const auto take = [&](std::string_view any) {
            const bool found = at_ < text_.size() && any.find(text_[at_]) != any.npos;
            at_ += found ? 1 : 0;
            return found;
        };
        const auto digits = [&] {
            if (!take("0123456789")) fail("a value is missing");
            while (take("0123456789")) {
            }
        };
        static_cast<void>(take("-"));
        if (!take("0")) digits();
        if (take(".")) digits();
        if (take("eE")) {
            static_cast<void>(take("+-"));
            digits();
        }
    }

    void skip_space() {
        const auto is_space = [](char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; };
        while (at_ < text_.size() && is_space(text_[at_])) ++at_;
    }

    /// The bytes of the escape at `at_`, or 0. A surrogate is valid only as the first or second half of a pair.
    [[nodiscard]] std::size_t escape_length() const {
        const char kind = at_ + 1 < text_.size() ? text_[at_ + 1] : '\0';
        if (kind != 'u') return std::string_view("\"\\/bfnrt").find(kind) == std::string_view::npos ? 0 : 2;
        const std::int32_t unit = four_hex_digits(text_, at_ + 2);
        if (unit < 0 || (unit >= 0xDC00 && unit < 0xE000)) return 0;
        if (unit < 0xD800 || unit >= 0xE000) return 6;
        if (text_.substr(at_ + 6, 2) != "\\u") return 0;
        const std::int32_t low = four_hex_digits(text_, at_ + 8);
        return low >= 0xDC00 && low < 0xE000 ? 12 : 0;
    }

    std::string_view text_;
    const std::string& file_;
    Source source_;
    std::size_t at_ = 0;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
