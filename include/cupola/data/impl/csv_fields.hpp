// SPDX-License-Identifier: Apache-2.0
//
// The fields of a CSV file as numbers and classes, with one message per error: file, line, column and text.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/finite.hpp>
#include <cupola/core/number_from_chars.hpp>
#include <cupola/data/impl/csv_records.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Names for a message: the first of them where there are many.
[[nodiscard, gnu::cold]] inline std::string quoted_list(const std::vector<std::string>& names) {
    constexpr std::size_t enough = 20;
    std::string result;
    for (std::size_t i = 0; i < std::min(enough, names.size()); ++i)
        result += (i == 0 ? "" : ", ") + in_quotes(names[i]);
    if (names.size() > enough) result += text(" and ", names.size() - enough, " more");
    return result;
}

/// The indices of columns by name: a file may have so many that a search in their order would take long.
class CsvHeader {
public:
    CsvHeader() = default;
    /// Throws DataError for a name that occurs twice; any number of columns may have none.
    CsvHeader(const std::string& path, std::vector<std::string> names)
        : names_(std::move(names)), order_(names_.size()) {
        std::iota(order_.begin(), order_.end(), std::size_t{0});
        std::ranges::sort(order_, [&](std::size_t a, std::size_t b) {
            return names_[a] != names_[b] ? names_[a] < names_[b] : a < b;
        });
        for (std::size_t i = 1; i < order_.size(); ++i) {
            const std::size_t first = order_[i - 1], second = order_[i];
            if (names_[first] != names_[second] || names_[first].empty()) continue;
            throw DataError(text(path, " has the column ", in_quotes(names_[first]), " twice: columns ", first + 1,
                                 " and ", second + 1));
        }
    }

    static constexpr std::size_t none = static_cast<std::size_t>(-1);

    [[nodiscard]] const std::vector<std::string>& names() const { return names_; }
    /// `none` if there is no such column.
    [[nodiscard]] std::size_t find(std::string_view name) const {
        const auto found =
            std::ranges::lower_bound(order_, name, {}, [&](std::size_t i) { return std::string_view(names_[i]); });
        return found == order_.end() || names_[*found] != name ? none : *found;
    }

private:
    std::vector<std::string> names_;
    std::vector<std::size_t> order_;  ///< sorted by the names
};

/// The whole number that a text is, with or without a sign; nothing for any other text, and outside 64 bits.
[[nodiscard]] inline std::optional<std::int64_t> whole_number(std::string_view text) {
    if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);  // from_chars takes no plus sign
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return value;
}

/// Whether a text is written as a number is, whole or not: digits, with a sign, a point and an exponent if need be.
[[nodiscard]] inline bool looks_like_number(std::string_view text) {
    const auto skip_sign = [&] {
        if (!text.empty() && (text[0] == '+' || text[0] == '-')) text.remove_prefix(1);
    };
    const auto skip_digits = [&] {
        const std::size_t end = std::min(text.find_first_not_of("0123456789"), text.size());
        text.remove_prefix(end);
        return end;
    };
    skip_sign();
    std::size_t digits = skip_digits();
    if (!text.empty() && text[0] == '.') {
        text.remove_prefix(1);
        digits += skip_digits();
    }
    if (digits == 0) return false;
    if (text.empty()) return true;
    if (text[0] != 'e' && text[0] != 'E') return false;
    text.remove_prefix(1);
    skip_sign();
    return skip_digits() > 0 && text.empty();
}

/// The numbers of classes: of a training's table where there is one, and otherwise by order of appearance until
/// finish().
class ClassNumbers {
public:
    static constexpr std::size_t max_classes = 100'000;

    /// `known` is null, or the classes in the order of their numbers.
    explicit ClassNumbers(const std::vector<std::string>* known) : known_(known) {
        if (known == nullptr) return;
        bool whole = true;
        for (const std::string& name : *known) {
            const auto number = static_cast<std::int32_t>(numbers_.size());
            const std::optional<std::int64_t> value = whole_number(name);
            whole = whole && value.has_value();
            numbers_.emplace(name, number);
            if (whole) values_.emplace(*value, number);
        }
        if (!whole) values_.clear();
    }

    /// -1 for a class that is not known, or if there would be too many.
    [[nodiscard]] std::int32_t of(std::string_view name) {
        const auto found = numbers_.find(name);
        if (found != numbers_.end()) return found->second;
        if (known_ == nullptr) {
            if (numbers_.size() == max_classes) return -1;
            return numbers_.emplace(name, static_cast<std::int32_t>(numbers_.size())).first->second;
        }
        const std::optional<std::int64_t> value = values_.empty() ? std::nullopt : whole_number(name);
        const auto same = value ? values_.find(*value) : values_.end();
        return same == values_.end() ? -1 : same->second;
    }
    /// The known classes; null where classes are numbered here.
    [[nodiscard]] const std::vector<std::string>* known() const { return known_; }

    /// Renumbers `labels` by the order of the classes, which it returns: each as it is written, or in the shortest of
    /// the ways in which a whole number is written. Throws DataError, which begins with `where`, for classes that
    /// differ by blanks alone and for numbers that are equal and not whole.
    [[nodiscard]] std::vector<std::string> finish(std::vector<std::int32_t>& labels, std::string_view where) const {
        if (known_ != nullptr) return *known_;
        struct Class {
            std::int64_t value;
            std::string name;
            std::int32_t number;
        };
        std::vector<Class> classes;
        bool whole = true;
        for (const auto& [name, number] : numbers_) {  // sorted by its bytes
            const std::optional<std::int64_t> value = whole_number(name);
            whole = whole && value.has_value();
            classes.push_back({value.value_or(0), name, number});
        }
        if (whole) {
            std::ranges::stable_sort(classes, {},
                                     [](const Class& each) { return std::pair(each.value, each.name.size()); });
        } else {
            require_distinct(where);
        }
        std::vector<std::int32_t> renumbered(classes.size());
        std::vector<std::string> names;
        for (std::size_t i = 0; i < classes.size(); ++i) {
            if (!whole || i == 0 || classes[i].value != classes[i - 1].value)
                names.push_back(std::move(classes[i].name));
            renumbered[static_cast<std::size_t>(classes[i].number)] = static_cast<std::int32_t>(names.size() - 1);
        }
        for (std::int32_t& label : labels) label = renumbered[static_cast<std::size_t>(label)];
        return names;
    }

private:
    [[nodiscard]] static std::string_view without_blanks(std::string_view name) {
        while (!name.empty() && (name.front() == ' ' || name.front() == '\t')) name.remove_prefix(1);
        while (!name.empty() && (name.back() == ' ' || name.back() == '\t')) name.remove_suffix(1);
        return name;
    }

    void require_distinct(std::string_view where) const {
        std::map<std::string_view, std::string_view> trimmed;
        std::map<double, std::string_view> values;
        bool numbers = true;
        for (const auto& [name, number] : numbers_) {
            const auto [same, is_new] = trimmed.emplace(without_blanks(name), name);
            if (!is_new) {
                throw DataError(text(where, "the classes ", in_quotes(same->second), " and ", in_quotes(name),
                                     " differ by blanks alone"));
            }
            double value = 0;
            const auto [end, error] = number_from_chars(name.data(), name.data() + name.size(), value);
            numbers = numbers && error == std::errc() && end == name.data() + name.size();
        }
        for (const auto& [name, number] : numbers_) {
            if (!numbers) return;
            double value = 0;
            static_cast<void>(number_from_chars(name.data(), name.data() + name.size(), value));
            const auto [same, is_new] = values.emplace(value, name);
            if (is_new) continue;
            throw DataError(text(where, "the classes ", in_quotes(same->second), " and ", in_quotes(name),
                                 " are the same number; write it in one way"));
        }
    }

    const std::vector<std::string>* known_;
    std::map<std::string, std::int32_t, std::less<>> numbers_;
    std::map<std::int64_t, std::int32_t> values_;  ///< of the known classes, where all are whole numbers
};

/// The fields of the record that `records` stands at. Refers to its arguments.
class CsvFields {
public:
    CsvFields(const std::string& path, const std::vector<std::string>& header, const CsvRecords& records)
        : path_(path), header_(header), records_(records) {}

    void require_complete() const {
        require<DataError>(records_.size() == header_.size(), path_, ", line ", records_.line(), " has ",
                           records_.size(), records_.size() == 1 ? " field" : " fields", "; the first line has ",
                           header_.size());
    }

    [[nodiscard]] float number(std::size_t column) const {
        const std::string_view field = records_[column];
        const char *begin = field.data(), *const end = begin + field.size();
        if (field.size() > 1 && field[0] == '+' && field[1] != '-') ++begin;  // from_chars takes no plus sign
        float value = 0;
        const auto [stopped, error] = number_from_chars(begin, end, value);
        if (error == std::errc() && stopped == end && is_finite(value)) return value;
        if (field.empty()) fail(column, "there is no value");
        if (error == std::errc::invalid_argument || stopped != end) fail(column, in_quotes(field) + " is not a number");
        if (error == std::errc()) fail(column, in_quotes(field) + " is not finite");
        // Too large, or so close to 0 that its float is.
        double wide = 0;
        if (number_from_chars(begin, end, wide).ec == std::errc() && std::fabs(wide) < 1)
            return static_cast<float>(wide);
        fail(column, in_quotes(field) + " is outside the range of a 32-bit float");
    }

    /// The class; `classes_of` is the file that its number is taken from.
    [[nodiscard]] std::int32_t label(std::size_t column, ClassNumbers& classes, const std::string& classes_of) const {
        const std::string_view field = records_[column];
        if (field.empty()) fail(column, "there is no value");
        const std::int32_t number = classes.of(field);
        if (number >= 0) return number;
        if (classes.known() == nullptr)
            fail(column, text("there are more than ", ClassNumbers::max_classes, " classes"));
        fail(column, text("the class ", in_quotes(field), " is not one of ", classes_of, ", which are ",
                          quoted_list(*classes.known())));
    }

private:
    [[noreturn, gnu::cold]] void fail(std::size_t column, std::string_view what) const {
        throw DataError(text(path_, ", line ", records_.line(), ", column ", in_quotes(header_[column]), ": ", what));
    }

    const std::string& path_;
    const std::vector<std::string>& header_;
    const CsvRecords& records_;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
