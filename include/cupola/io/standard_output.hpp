// SPDX-License-Identifier: Apache-2.0
//
// StandardOutput: what a program says, one message at a time: for a reader the lines as they are, for a machine each message
// as a JSON object. `json_string` is a text as JSON has it.
//
//   const StandardOutput output(json);
//   output.say("2 replicas");            2 replicas, or {"message":"2 replicas"}
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

#include <cupola/core/error.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

/// The bytes of the UTF-8 character at `i`, or 0 where none is.
[[nodiscard, gnu::cold]] inline std::size_t utf8_length(std::string_view text, std::size_t i) {
    const auto byte = [&](std::size_t k) -> unsigned {
        return k < text.size() ? static_cast<unsigned char>(text[k]) : 0;
    };
    const unsigned first = byte(i), second = byte(i + 1);
    if (first < 0x80) return 1;
    const std::size_t length = first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0;
    for (std::size_t k = 1; k < length; ++k) {
        if ((byte(i + k) & 0xC0) != 0x80) return 0;
    }
    // Too long for its character, half of a UTF-16 pair, or beyond the last character.
    const bool wrong = (first == 0xE0 && second < 0xA0) || (first == 0xED && second >= 0xA0) ||
                       (first == 0xF0 && second < 0x90) || (first == 0xF4 && second >= 0x90);
    return wrong ? 0 : length;
}

}  // namespace impl

/// A text between quotes, as JSON has it: a byte that is no UTF-8, as a file's name may have, becomes U+FFFD.
[[nodiscard, gnu::cold]] inline std::string json_string(std::string_view text) {
    std::string result = "\"";
    for (std::size_t i = 0; i < text.size();) {
        const auto byte = static_cast<unsigned char>(text[i]);
        const std::size_t length = impl::utf8_length(text, i);
        if (byte < 0x20) {
            char escape[8];
            std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(byte));
            result += escape;
        } else if (length == 0) {
            result += "\\ufffd";
        } else {
            if (byte == '"' || byte == '\\') result += '\\';
            result.append(text, i, length);
        }
        i += length == 0 ? 1 : length;
    }
    return result + '"';
}

class StandardOutput {
public:
    explicit StandardOutput(bool json = false, std::FILE* file = stdout) : json_(json), file_(file) {}
    [[nodiscard]] bool json() const { return json_; }

    /// One message of a line or several: for a machine {"message": "..."}. Throws DataError if it cannot be written.
    [[gnu::cold]] void say(std::string lines) const {
        if (lines.ends_with('\n')) lines.pop_back();
        print(json_ ? "{\"message\":" + json_string(lines) + '}' : lines);
    }

    /// Writes the lines as they are, ended by a newline. Throws DataError if they cannot be written.
    [[gnu::cold]] void print(const std::string& lines) const {
        const bool written = std::fwrite(lines.data(), 1, lines.size(), file_) == lines.size() &&
                             (lines.ends_with('\n') || std::fputc('\n', file_) != EOF) && std::fflush(file_) == 0;
        require<DataError>(written, "the result could not be written to standard output: ", std::strerror(errno));
    }

private:
    bool json_;
    std::FILE* file_;
};

}  // namespace cupola::inline CUPOLA_ABI
