// SPDX-License-Identifier: Apache-2.0
//
// The records of a CSV file, one after another, through a buffer that holds the longest of them and not the file.
//
// RFC 4180: fields are separated by the separator, records by a line feed (with or without a carriage return before
// it); a field in quotes may contain both, and two quotes stand for one. A byte order mark is skipped, the last line
// needs no end, and blanks around a field without quotes are not part of it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/data/impl/files.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// A text of a file for a message: in quotes, without control characters, and cut to a bounded length.
[[nodiscard, gnu::cold]] inline std::string in_quotes(std::string_view text) {
    constexpr std::size_t longest = 60;
    std::string result = "\"";
    for (const char c : text.substr(0, longest)) {
        result += static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? '?' : c;
    }
    // A shortened text must not end inside a character of UTF-8.
    if (text.size() > longest) {
        while (result.size() > 1 && (static_cast<unsigned char>(result.back()) & 0xC0) == 0x80) result.pop_back();
        if (static_cast<unsigned char>(result.back()) >= 0xC0) result.pop_back();
        result += "...";
    }
    return result += '"';
}

class CsvRecords {
public:
    static constexpr std::size_t first_buffer = std::size_t{1} << 16, longest_record = std::size_t{1} << 24,
                                 max_fields = std::size_t{1} << 16;

    CsvRecords(const std::string& path, char separator)
        : path_(path), separator_(separator), file_(path), unread_(file_.size()) {
        buffer_.resize(std::min(first_buffer, std::max<std::size_t>(unread_, 1)));
        read_more();
        constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
        require<DataError>(!held().starts_with("\xFF\xFE") && !held().starts_with("\xFE\xFF"), path,
                           " is a text in UTF-16; save it in UTF-8");
        if (held().starts_with(byte_order_mark)) begin_ += byte_order_mark.size();
    }

    /// Moves to the next record; false after the last. Empty lines at the end of the file are not records.
    [[nodiscard]] bool next() {
        std::int64_t empty_line = 0;
        while (true) {
            if (begin_ == end_ && unread_ == 0) return false;
            while (!split()) read_more();
            if (fields_.size() > 1 || fields_[0].size > 0 || fields_[0].in_quotes) break;
            if (empty_line == 0) empty_line = line_;
        }
        if (empty_line != 0) fail(empty_line, " is empty, and there are records after it");
        for (Field& field : fields_) {
            if (field.escaped) unescape(field);
        }
        return true;
    }

    /// The line on which the record begins, counted from 1.
    [[nodiscard]] std::int64_t line() const { return line_; }
    [[nodiscard]] std::size_t size() const { return fields_.size(); }
    /// Valid until the next record.
    [[nodiscard]] std::string_view operator[](std::size_t i) const {
        return {buffer_.data() + fields_[i].begin, fields_[i].size};
    }

private:
    struct Field {
        std::size_t begin = 0, size = 0;
        bool in_quotes = false, escaped = false;
    };

    [[nodiscard]] std::string_view held() const { return {buffer_.data() + begin_, end_ - begin_}; }

    [[noreturn, gnu::cold]] void fail(std::int64_t line, std::string_view what) const {
        throw DataError(text(path_, ", line ", line, what));
    }

    /// Reads more of the file; the incomplete record moves to the beginning of the buffer.
    void read_more() {
        if (begin_ > 0) {
            std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
            end_ -= begin_;
            begin_ = 0;
        }
        if (end_ == buffer_.size() && unread_ > 0) {
            if (buffer_.size() >= longest_record) {
                fail(next_line_, text(": the record is longer than ", longest_record, " bytes"));
            }
            buffer_.resize(std::min(2 * buffer_.size(), longest_record));
        }
        const std::size_t count = std::min(unread_, buffer_.size() - end_);
        file_.read(reinterpret_cast<std::uint8_t*>(buffer_.data() + end_), count);
        unread_ -= count;
        end_ += count;
    }

    /// Finds the fields of the record at `begin_` and moves past it; false if its end is not in the buffer yet.
    [[nodiscard]] bool split() {
        const char* const data = buffer_.data();
        const bool last = unread_ == 0;
        fields_.clear();
        std::size_t i = begin_;
        std::int64_t lines = 0;
        while (true) {
            Field field{.begin = i};
            if (i < end_ && data[i] == '"') {
                field.in_quotes = true;
                const std::int64_t opened = next_line_ + lines;
                if (!skip_quoted(field, i, lines)) {
                    if (last) fail(opened, text(": the quotes of field ", fields_.size() + 1, " are not closed"));
                    return false;
                }
            } else {
                while (i < end_ && data[i] != separator_ && data[i] != '\n' && data[i] != '"') ++i;
                if (i < end_ && data[i] == '"') {
                    fail(next_line_ + lines, text(": field ", fields_.size() + 1,
                                                  " has a quote inside and is not in quotes; a field with a quote is "
                                                  "written \"...\", each quote inside it twice"));
                }
                field.size = i - field.begin;
            }
            if (fields_.size() == max_fields) fail(next_line_, text(" has more than ", max_fields, " fields"));
            if (i == end_ && !last) return false;
            const bool ends = i == end_ || data[i] == '\n';
            if (!field.in_quotes) trim(field, ends);
            fields_.push_back(field);
            if (i < end_) ++i;
            if (!ends) continue;
            line_ = next_line_;
            next_line_ += lines + 1;
            begin_ = i;
            return true;
        }
    }

    /// From an opening quote to what ends the field; false if no closing quote is in the buffer. What is found at the
    /// buffer's end may change with what follows: split() reads on then.
    [[nodiscard]] bool skip_quoted(Field& field, std::size_t& i, std::int64_t& lines) const {
        const char* const data = buffer_.data();
        field.begin = ++i;
        while (true) {
            const void* const quote = std::memchr(data + i, '"', end_ - i);
            if (quote == nullptr) return false;
            const auto at = static_cast<std::size_t>(static_cast<const char*>(quote) - data);
            lines += std::count(data + i, data + at, '\n');
            i = at + 1;
            if (i < end_ && data[i] == '"') {
                field.escaped = true;
                ++i;
                continue;
            }
            field.size = at - field.begin;
            break;
        }
        if (i < end_ && data[i] == '\r' && (i + 1 == end_ || data[i + 1] == '\n')) ++i;
        if (i < end_ && data[i] != separator_ && data[i] != '\n')
            fail(next_line_ + lines, text(": field ", fields_.size() + 1, " goes on behind its closing quote"));
        return true;
    }

    /// Removes blanks, and the carriage return at the end of a line.
    void trim(Field& field, bool ends) const {
        const char* const data = buffer_.data();
        const auto is_blank = [](char c) { return c == ' ' || c == '\t'; };
        if (ends && field.size > 0 && data[field.begin + field.size - 1] == '\r') --field.size;
        while (field.size > 0 && is_blank(data[field.begin + field.size - 1])) --field.size;
        while (field.size > 0 && is_blank(data[field.begin])) ++field.begin, --field.size;
    }

    void unescape(Field& field) {
        char* const data = buffer_.data() + field.begin;
        std::size_t to = 0;
        for (std::size_t from = 0; from < field.size; ++from, ++to) {
            data[to] = data[from];
            if (data[from] == '"') ++from;
        }
        field.size = to;
    }

    std::string path_;
    char separator_;
    InputFile file_;
    std::size_t unread_;
    std::vector<char> buffer_;
    std::size_t begin_ = 0, end_ = 0;
    std::vector<Field> fields_;
    std::int64_t line_ = 0, next_line_ = 1;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
