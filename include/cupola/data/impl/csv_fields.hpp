// SPDX-License-Identifier: Apache-2.0
//
// The fields of a CSV file as numbers and classes, with one message per mistake: file, line, column and text.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/data/impl/csv_records.hpp>

namespace cupola::inline CUPOLA_ABI::impl {

/// Names for a message: the first of them where there are many.
[[nodiscard, gnu::cold]] inline std::string quoted_list(const std::vector<std::string>& names) {
    constexpr std::size_t enough = 20;
    std::string result;
    for (std::size_t i = 0; i < std::min(enough, names.size()); ++i)
        result += (i == 0 ? "" : ", ") + in_quotes(names[i]);
    if (names.size() > enough) result += text(" and ", names.size() - enough, " more");
    return result;
}

/// The places of columns by name: a file may have so many that a search in their order would take long.
class CsvHeader {
public:
    CsvHeader() = default;
    /// Throws DataError for a name that comes twice.
    CsvHeader(const std::string& path, std::vector<std::string> names)
        : names_(std::move(names)), order_(names_.size()) {
        std::iota(order_.begin(), order_.end(), std::size_t{0});
        std::ranges::sort(order_, [&](std::size_t a, std::size_t b) {
            return names_[a] != names_[b] ? names_[a] < names_[b] : a < b;
        });
        for (std::size_t i = 1; i < order_.size(); ++i) {
            const std::size_t first = order_[i - 1], second = order_[i];
            if (names_[first] != names_[second]) continue;
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

/// The numbers of classes: of a training's table where there is one, and otherwise by order of appearance until finish().
class ClassNumbers {
public:
    static constexpr std::size_t most = 100'000;

    /// `known` is null, or the classes in the order of their numbers.
    explicit ClassNumbers(const std::vector<std::string>* known) : known_(known) {
        if (known == nullptr) return;
        for (const std::string& name : *known) numbers_.emplace(name, static_cast<std::int32_t>(numbers_.size()));
    }

    /// -1 for a class that is not known, or one too many.
    [[nodiscard]] std::int32_t of(std::string_view name) {
        const auto found = numbers_.find(name);
        if (found != numbers_.end()) return found->second;
        if (known_ != nullptr || numbers_.size() == most) return -1;
        return numbers_.emplace(name, static_cast<std::int32_t>(numbers_.size())).first->second;
    }
    /// The known classes; null where classes are numbered here.
    [[nodiscard]] const std::vector<std::string>* known() const { return known_; }

    /// Renumbers `labels` by the order of the classes, which it returns.
    [[nodiscard]] std::vector<std::string> finish(std::vector<std::int32_t>& labels) const {
        if (known_ != nullptr) return *known_;
        struct Class {
            std::int64_t value;
            std::string name;
            std::int32_t number;
        };
        std::vector<Class> classes;
        bool whole = true;
        for (const auto& [name, number] : numbers_) {  // sorted by its bytes
            std::int64_t value = 0;
            const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), value);
            whole = whole && error == std::errc() && end == name.data() + name.size();
            classes.push_back({value, name, number});
        }
        if (whole) std::ranges::stable_sort(classes, {}, &Class::value);
        std::vector<std::int32_t> renumbered(classes.size());
        std::vector<std::string> names;
        for (std::size_t i = 0; i < classes.size(); ++i) {
            renumbered[static_cast<std::size_t>(classes[i].number)] = static_cast<std::int32_t>(i);
            names.push_back(std::move(classes[i].name));
        }
        for (std::int32_t& label : labels) label = renumbered[static_cast<std::size_t>(label)];
        return names;
    }

private:
    const std::vector<std::string>* known_;
    std::map<std::string, std::int32_t, std::less<>> numbers_;
};

/// The fields of the record that `records` stands at. Refers to its arguments.
class CsvFields {
public:
    CsvFields(const std::string& path, const std::vector<std::string>& header, const CsvRecords& records)
        : path_(path), header_(header), records_(records) {}

    void require_complete() const {
        require<DataError>(records_.size() == header_.size(), path_, ", line ", records_.line(), " has ",
                           records_.size(), records_.size() == 1 ? " field" : " fields", "; the header has ",
                           header_.size());
    }

    [[nodiscard]] float number(std::size_t column) const {
        const std::string_view field = records_[column];
        const char *begin = field.data(), *const end = begin + field.size();
        if (field.size() > 1 && field[0] == '+' && field[1] != '-') ++begin;  // from_chars takes no plus sign
        float value = 0;
        const auto [stopped, error] = std::from_chars(begin, end, value);
        if (error == std::errc() && stopped == end && std::isfinite(value)) return value;
        if (field.empty()) fail(column, "there is no value");
        if (error == std::errc::invalid_argument || stopped != end) fail(column, in_quotes(field) + " is not a number");
        if (error == std::errc()) fail(column, in_quotes(field) + " is not finite");
        // Too large, or so close to 0 that its float is.
        double wide = 0;
        if (std::from_chars(begin, end, wide).ec == std::errc() && std::fabs(wide) < 1) return static_cast<float>(wide);
        fail(column, in_quotes(field) + " is outside the range of a 32-bit float");
    }

    /// The class; `classes_of` is the file that its number is taken from.
    [[nodiscard]] std::int32_t label(std::size_t column, ClassNumbers& classes, const std::string& classes_of) const {
        const std::string_view field = records_[column];
        if (field.empty()) fail(column, "there is no value");
        const std::int32_t number = classes.of(field);
        if (number >= 0) return number;
        if (classes.known() == nullptr) fail(column, text("there are more than ", ClassNumbers::most, " classes"));
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

}  // namespace cupola::inline CUPOLA_ABI::impl
