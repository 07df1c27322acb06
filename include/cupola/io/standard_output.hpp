// SPDX-License-Identifier: Apache-2.0
//
// StandardOutput prints the messages of a program: as lines for a reader, or each message as a JSON object for a machine.
// `json_string` is a text as JSON has it, `append_as_json` puts it behind others.
//
//   const StandardOutput output(json);
//   output.print_message("2 replicas");  2 replicas, or {"message":"2 replicas"}
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

#include <cupola/core/error.hpp>
#include <cupola/io/impl/json_string.hpp>

namespace cupola::inline CUPOLA_ABI {

/// Appends a text between quotes, as JSON has it: a byte that is no UTF-8, as a file's name may have, becomes U+FFFD.
[[gnu::cold]] inline void append_as_json(std::string& json, std::string_view text) {
    json += '"';
    for (std::size_t i = 0; i < text.size();) {
        const std::size_t length = impl::utf8_length(text.substr(i));
        if (length == 0) {
            json += "\\ufffd";
        } else {
            impl::append_json_character(json, text.substr(i, length));
        }
        i += length == 0 ? 1 : length;
    }
    json += '"';
}

/// The text alone.
[[nodiscard, gnu::cold]] inline std::string json_string(std::string_view text) {
    std::string result;
    append_as_json(result, text);
    return result;
}

class StandardOutput {
public:
    explicit StandardOutput(bool json = false, std::FILE* file = stdout) : json_(json), file_(file) {}
    [[nodiscard]] bool json() const { return json_; }

    /// One message of a line or several: for a machine {"message": "..."}. Throws DataError if it cannot be written.
    [[gnu::cold]] void print_message(std::string lines) const {
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
