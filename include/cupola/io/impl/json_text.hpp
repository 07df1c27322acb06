// SPDX-License-Identifier: Apache-2.0
//
// Reads the JSON of a safetensors header in place: objects, arrays, strings and natural numbers, which is all that such
// a header has.
//
// It allocates nothing, whatever the header contains: a general parser copies each string and each number before its
// length can be checked. The grammar is fixed, so there is no recursion either. Whatever it accepts is JSON in UTF-8;
// the tests compare it with nlohmann-json.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include <cupola/core/error.hpp>
#include <cupola/io/impl/json_string.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

class JsonText {
public:
    /// `file` is for messages.
    JsonText(std::string_view content, const std::string& file) : text_(content), file_(file) {}

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

    [[nodiscard]] std::size_t place() const { return at_; }

    template <class... Parts>
    [[noreturn]] void fail(const Parts&... parts) const {
        throw DataError(
            text(file_, " is damaged or is not a safetensors file: at byte ", at_, " of its header ", parts...));
    }

private:
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
    std::size_t at_ = 0;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
