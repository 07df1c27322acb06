// SPDX-License-Identifier: Apache-2.0
//
// What a program with --json says on standard output: its lines as they are, or each as a JSON object.
#pragma once

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include <cupola/core/error.hpp>

/// A text between quotes, as JSON has it.
inline std::string json_string(const std::string& text) {
    std::string result = "\"";
    for (const char c : text) {
        if (static_cast<unsigned char>(c) < 0x20) {
            char escape[8];
            std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(c));
            result += escape;
            continue;
        }
        if (c == '"' || c == '\\') result += '\\';
        result += c;
    }
    return result + '"';
}

class StandardOutput {
public:
    explicit StandardOutput(bool json) : json_(json) {}
    [[nodiscard]] bool json() const { return json_; }

    /// A line, or several: for a machine {"message": "..."}. Throws DataError if it cannot be written.
    void say(std::string lines) const {
        if (lines.ends_with('\n')) lines.pop_back();
        print(json_ ? "{\"message\":" + json_string(lines) + '}' : lines);
    }

    /// The same, as it is given.
    void print(const std::string& lines) const {
        const bool written = std::fwrite(lines.data(), 1, lines.size(), stdout) == lines.size() &&
                             (lines.ends_with('\n') || std::fputc('\n', stdout) != EOF) && std::fflush(stdout) == 0;
        cupola::require<cupola::DataError>(
            written, "the result could not be written to standard output: ", std::strerror(errno));
    }

private:
    bool json_;
};
