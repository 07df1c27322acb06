// SPDX-License-Identifier: Apache-2.0
//
// StandardOutput prints the messages of a program: as lines for a reader, or each message as a JSON object for a
// machine. `json_string` returns a text as a JSON string; `append_as_json` appends it to another text.
//
//   const StandardOutput output(json);
//   output.print_message("2 replicas");  2 replicas, or {"message":"2 replicas"}
//
// An OutputCopy puts the same lines into a file.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include <stdio_ext.h>
#include <cupola/core/error.hpp>
#include <cupola/core/write_signals.hpp>
#include <cupola/io/impl/json_string.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// Appends a text as a JSON string, with quotes. A byte that is not UTF-8, as a file's name may have, becomes U+FFFD.
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

namespace impl {

/// Writes the lines to the file at once. Returns 0, or the errno if that fails. A pipe without a reader and a limit on
/// the size of files are reported as errors and raise no signals.
[[nodiscard]] inline int write_error(std::FILE* file, std::string_view lines) {
    const WriteSignalsBlock no_signal;
    if (std::fwrite(lines.data(), 1, lines.size(), file) == lines.size() && std::fflush(file) == 0) return 0;
    const int error = errno;
    __fpurge(file);  // else the end of the file or of the process would write it again, and a signal could interrupt it
    return error;
}

/// The same. Throws DataError if it fails: "the result could not be written to standard output".
[[gnu::cold]] inline void write_whole(std::FILE* file, std::string_view lines, std::string_view what,
                                      std::string_view where = {}) {
    if (const int error = write_error(file, lines); error != 0)
        throw DataError(text(what, " could not be written", where, ": ", std::strerror(error)));
}

}  // namespace impl

/// The lines of a StandardOutput in a file too, which may be opened after the first of them: until then they are kept.
class OutputCopy {
public:
    /// Writes the lines that are kept, and later ones at once. `name` is for errors; the file is not closed. Throws
    /// DataError if they cannot be written.
    [[gnu::cold]] void open(std::FILE* file, std::string name) {
        file_ = file;
        name_ = std::move(name);
        write(std::exchange(kept_, {}));
    }
    [[gnu::cold]] void write(const std::string& lines) {
        if (file_ == nullptr) {
            kept_ += lines;
            return;
        }
        impl::write_whole(file_, lines, text("the log ", name_));
    }

private:
    std::FILE* file_ = nullptr;
    std::string kept_, name_;
};

class StandardOutput {
public:
    /// `copy`, if it is given, has to live as long as this one.
    explicit StandardOutput(bool json = false, std::FILE* file = stdout, OutputCopy* copy = nullptr)
        : json_(json), file_(file), copy_(copy) {}
    [[nodiscard]] bool json() const { return json_; }

    /// One message of a line or several: for a machine {"message": "..."}. Throws DataError if it cannot be written.
    [[gnu::cold]] void print_message(std::string lines) const {
        if (lines.ends_with('\n')) lines.pop_back();
        print(json_ ? "{\"message\":" + json_string(lines) + '}' : lines);
    }

    /// Writes the lines as they are, ended by a newline. Throws DataError if they cannot be written.
    [[gnu::cold]] void print(std::string lines) const {
        if (!lines.ends_with('\n')) lines += '\n';
        impl::write_whole(file_, lines, "the result", " to standard output");
        if (copy_ != nullptr) copy_->write(lines);
    }

private:
    bool json_;
    std::FILE* file_;
    OutputCopy* copy_;
};

}}  // namespace cupola::CUPOLA_ABI
