// SPDX-License-Identifier: Apache-2.0
//
// Tables of numbers and classes from CSV files, whose first line names the columns or is the first row.
//
//   const Table flowers = read_csv("iris.csv", {.label = "species"});          every other column is an input
//   const Table houses = read_csv("houses.csv", {.inputs = {"area", "rooms"}, .targets = {"price"}});
//   const Table test = read_csv("test.csv", houses);     the same columns and classes, or no targets
//   const Table seeds = read_csv("seeds.csv", {.label = "8", .header = false});    columns "1", "2" and so on
//
// The inputs of a row are the column "input" of a batch: floats of extents {their number}. The column "target" is the
// class, int32 of extents {1}, or the numbers of `targets`, floats of extents {their number}. Classes are numbered from
// 0 in their order: by value where all of them are whole numbers, and by their bytes otherwise. Whole numbers are
// compared by value: 1, 01 and +1 are one class, named by the shortest. All other classes are compared as they are
// written; those that differ by blanks at their ends alone (which quotes keep), and equal numbers in a column of
// numbers (1 and 1.0), are an error.
//
// The syntax is RFC 4180's (data/impl/csv_records.hpp). A field of a column that is used must have a value; a number is
// finite and has decimal digits and a point: 12, -0.5, 1e-3. Columns that are not used may contain anything. Memory is
// that of the numbers, at most three times as much while they are read, and the longest record's.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/extents.hpp>
#include <cupola/data/impl/csv_fields.hpp>
#include <cupola/data/impl/csv_records.hpp>
#include <cupola/tensor/batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// One target of several: the column `name` of a batch.
struct CsvTarget {
    std::string name = "target";
    /// The columns of the file: numbers, or with `classes` the one that contains the class.
    std::vector<std::string> columns{};
    bool classes = false;
};

/// Which columns of the file are used, and for what: one of `label`, `targets` and `named_targets`.
struct CsvOptions {
    /// The columns of numbers that are the input, in this order. If empty: all that are neither targets nor ignored, in
    /// the file's order.
    std::vector<std::string> inputs{};
    /// The column that contains the class.
    std::string label{};
    /// The columns of numbers to predict.
    std::vector<std::string> targets{};
    /// Several targets, for a network with several outputs.
    std::vector<CsvTarget> named_targets{};
    /// The character between fields; not a quote or a line end.
    char separator = ',';
    /// Whether the first line names the columns. With false it is a row, and the columns are "1", "2" and so on. If not
    /// set, it names them, and a line that seems to be a row is an error.
    std::optional<bool> header{};
    /// Columns that are not inputs where `inputs` is empty: an index, a text. "" is every column without a name.
    std::vector<std::string> ignored{};
};

/// The rows of a CSV file: a data set.
class Table {
public:
    [[nodiscard]] const std::string& name() const { return path_; }
    [[nodiscard]] std::int64_t size() const { return rows_; }
    [[nodiscard]] Shape sample_shape() const { return {static_cast<std::int64_t>(options_.inputs.size())}; }
    [[nodiscard]] std::span<const float> sample(std::int64_t i) const {
        const std::size_t width = options_.inputs.size();
        return std::span(inputs_).subspan(static_cast<std::size_t>(i) * width, width);
    }
    /// The targets in the order of the options; none where the file has none.
    [[nodiscard]] Columns target_columns() const;
    /// False for a file that lacks the targets of the training that it was read for.
    [[nodiscard]] bool has_targets() const { return has_targets_; }
    [[nodiscard]] const void* target(std::int64_t i, std::size_t c) const {
        const auto row = static_cast<std::size_t>(i);
        if (options_.named_targets[c].classes) return targets_[c].labels.data() + row;
        return targets_[c].numbers.data() + row * options_.named_targets[c].columns.size();
    }

    /// The names of all columns of the file; "1", "2" and so on without a header.
    [[nodiscard]] const std::vector<std::string>& header() const { return header_.names(); }
    /// The options of the table, with every input by its name and every target in `named_targets`.
    [[nodiscard]] const CsvOptions& options() const { return options_; }
    /// The texts of the classes of a target: element k is class k. Empty for numbers. Throws InvalidArgument for a name
    /// that no target has.
    [[nodiscard]] const std::vector<std::string>& classes(std::string_view target = "target") const {
        const auto found = std::ranges::find(options_.named_targets, target, &CsvTarget::name);
        require(found != options_.named_targets.end(), "the table of ", path_, " has no target ",
                impl::in_quotes(target));
        return targets_[static_cast<std::size_t>(found - options_.named_targets.begin())].classes;
    }

private:
    friend Table read_csv(const std::string& path, const CsvOptions& options);
    friend Table read_csv(const std::string& path, const Table& training);

    struct Target {
        std::vector<std::string> classes;
        std::vector<float> numbers;
        std::vector<std::int32_t> labels;
    };

    Table(const std::string& path, const CsvOptions& options, const Table* training);
    void check_options() const;
    [[nodiscard]] std::size_t place_of(const std::string& column) const;
    [[nodiscard]] bool ignores(const std::string& column) const {
        return std::ranges::find(options_.ignored, column) != options_.ignored.end();
    }
    void require_columns_of(const Table& training);
    void choose_columns(const Table* training);
    [[nodiscard]] bool first_line_may_be_row() const;
    void require_names() const;
    [[noreturn]] void throw_row_as_header() const;
    void read_rows(impl::CsvRecords& records, const Table* training);

    std::string path_;
    CsvOptions options_;
    impl::CsvHeader header_;
    std::int64_t rows_ = 0;
    bool has_targets_ = true;
    std::vector<float> inputs_;
    std::vector<Target> targets_;  ///< one per element of options_.named_targets
};

/// Reads a table. Throws InvalidArgument for options that contradict each other; DataError with the file, the line and
/// the column for a file that is in UTF-16, is empty, has no rows or no such column, a column twice, an input without a
/// name (.ignored), a first line that seems to be a row (.header), a row with another number of fields than the first
/// line, a field that has no value or no number where one is needed, or classes that cannot be told apart.
[[nodiscard]] inline Table read_csv(const std::string& path, const CsvOptions& options) {
    return {path, options, nullptr};
}

/// Reads a table with the inputs, the targets and the numbers of the classes of another one, to evaluate what was
/// trained on that. A file without any of the targets' columns has inputs alone (`has_targets()`), for a Predictor.
/// Throws DataError also if the columns differ, other than in their order, or a class is unknown.
[[nodiscard]] inline Table read_csv(const std::string& path, const Table& training) {
    return {path, training.options(), &training};
}

inline Columns Table::target_columns() const {
    Columns result;
    if (!has_targets_) return result;
    for (const CsvTarget& target : options_.named_targets) {
        if (target.classes) {
            result.push_back({target.name, ElementType::int32, {1}});
        } else {
            result.push_back({target.name, ElementType::float32, {static_cast<std::int64_t>(target.columns.size())}});
        }
    }
    return result;
}

inline Table::Table(const std::string& path, const CsvOptions& options, const Table* training)
    : path_(path), options_(options) {
    check_options();
    impl::CsvRecords records(path, options.separator);
    const bool names_columns = options.header.value_or(true);
    require<DataError>(records.next(), path, " is empty",
                       names_columns ? ": its first line must name the columns" : "");
    std::vector<std::string> names;
    for (std::size_t i = 0; i < records.size(); ++i) names.emplace_back(records[i]);
    for (const std::string& name : names) {
        const std::size_t end = name.find('\r');
        require<DataError>(end == std::string::npos || name.substr(end).starts_with("\r\n"), path,
                           " has lines that end with a carriage return alone; they must end with a line feed");
    }
    for (std::size_t i = 0; i < names.size() && !names_columns; ++i) names[i] = text(i + 1);
    header_ = impl::CsvHeader(path, std::move(names));
    if (training != nullptr) require_columns_of(*training);
    choose_columns(training);
    if (!options_.header) require_names();
    read_rows(records, training);
}

inline void Table::check_options() const {
    const int kinds = (options_.label.empty() ? 0 : 1) + (options_.targets.empty() ? 0 : 1) +
                      (options_.named_targets.empty() ? 0 : 1);
    require(kinds == 1, "the target of ", path_, " must be given by one of label, targets and named_targets, not ",
            kinds == 0 ? "none" : "several", " of them");
    const char separator = options_.separator;
    require(separator != '"' && separator != '\n' && separator != '\r' && separator != '\0', "the separator of ", path_,
            " cannot be a quote, a line end or a zero byte");
    require(options_.named_targets.size() < max_columns, path_, " can have at most ", max_columns - 1, " targets, not ",
            options_.named_targets.size());
    for (std::size_t t = 0; t < options_.named_targets.size(); ++t) {
        const CsvTarget& target = options_.named_targets[t];
        require(!target.name.empty() && target.name != input_column, "a target of ", path_, " cannot have the name ",
                impl::in_quotes(target.name));
        require(target.classes ? target.columns.size() == 1 : !target.columns.empty(), "the target ",
                impl::in_quotes(target.name), " of ", path_, " has ", target.columns.size(), " columns; ",
                target.classes ? "classes are in 1 column" : "numbers need at least 1");
        for (std::size_t other = 0; other < t; ++other) {
            require(options_.named_targets[other].name != target.name, path_, " has two targets named ",
                    impl::in_quotes(target.name));
        }
    }
}

inline std::size_t Table::place_of(const std::string& column) const {
    const std::size_t place = header_.find(column);
    if (place == impl::CsvHeader::none) {
        const bool other_separator = header().size() == 1 && header()[0].find_first_of(";\t|") != std::string::npos;
        throw DataError(text(path_, " has no column ", impl::in_quotes(column), "; its columns are ",
                             impl::quoted_list(header()),
                             other_separator ? "; the option .separator names another character than ','" : ""));
    }
    require<DataError>(!column.empty() || std::ranges::count(header(), column) == 1, path_,
                       " has several columns without a name, and one of them is used");
    return place;
}

/// Ignored columns may be missing, and so may the targets, if all of them are. Without a header a missing column is
/// always the last one, so it must be a target.
inline void Table::require_columns_of(const Table& training) {
    const auto is_here = [this](const std::string& name) { return header_.find(name) != impl::CsvHeader::none; };
    std::vector<std::string> targets;
    for (const CsvTarget& target : options_.named_targets)
        targets.insert(targets.end(), target.columns.begin(), target.columns.end());
    has_targets_ = std::ranges::any_of(targets, is_here);
    for (const std::string& name : training.header()) {
        const bool may_be_missing = (ignores(name) && options_.header.value_or(true)) ||
                                    (!has_targets_ && std::ranges::find(targets, name) != targets.end());
        if (is_here(name) || may_be_missing) continue;
        throw DataError(text(path_, " has no column ", impl::in_quotes(name), ", which ", training.path_,
                             " has; its columns are ", impl::quoted_list(header())));
    }
    for (const std::string& name : header()) {
        if (training.header_.find(name) != impl::CsvHeader::none || ignores(name)) continue;
        // A table that was read without targets may be followed by one that has them.
        if (std::ranges::find(targets, name) != targets.end()) continue;
        throw DataError(
            text(path_, " has a column ", impl::in_quotes(name), ", which ", training.path_, " does not have"));
    }
}

/// Replaces what the options leave out by the names of columns.
inline void Table::choose_columns(const Table* training) {
    if (!options_.label.empty()) {
        options_.named_targets = {{.columns = {std::exchange(options_.label, {})}, .classes = true}};
    } else if (!options_.targets.empty()) {
        options_.named_targets = {{.columns = std::exchange(options_.targets, {})}};
    }
    std::vector<bool> used(header().size());
    const auto use = [&](const std::string& column) {
        const std::size_t place = place_of(column);
        if (used[place])
            throw InvalidArgument(text("the column ", impl::in_quotes(column), " of ", path_, " is used twice"));
        used[place] = true;
    };
    if (has_targets_) {
        for (const CsvTarget& target : options_.named_targets) std::ranges::for_each(target.columns, use);
    }
    std::ranges::for_each(options_.inputs, use);
    for (const std::string& column : options_.ignored) {
        const std::size_t place = header_.find(column);
        if (place == impl::CsvHeader::none) {
            if (training == nullptr) (void)place_of(column);  // throws
            continue;
        }
        if (used[place])
            throw InvalidArgument(text("the column ", impl::in_quotes(column), " of ", path_, " is used and ignored"));
    }
    if (!options_.inputs.empty()) return;
    for (std::size_t i = 0; i < used.size(); ++i) {
        const std::string& name = header()[i];
        if (used[i] || ignores(name)) continue;
        require<DataError>(!name.empty(), path_, ": column ", i + 1,
                           " has no name, as an index that pandas writes, and would be an input; .ignored = {\"\"} "
                           "leaves such columns out");
        options_.inputs.push_back(name);
    }
    require<DataError>(!options_.inputs.empty(), path_,
                       " has no column beside its targets: ", impl::quoted_list(header()));
}

/// Whether the first line has a number in each column that needs one. Otherwise it can only be names.
inline bool Table::first_line_may_be_row() const {
    bool numbers = std::ranges::all_of(options_.inputs, impl::looks_like_number);
    for (const CsvTarget& target : options_.named_targets) {
        if (has_targets_ && !target.classes)
            numbers = numbers && std::ranges::all_of(target.columns, impl::looks_like_number);
    }
    return numbers;
}

/// Names may be numbers: the pixels 0 to 783, years. They are then whole and ascending, unlike those of a row.
inline void Table::require_names() const {
    if (!first_line_may_be_row()) return;
    std::vector<bool> used(header().size());
    for (const std::string& column : options_.inputs) used[place_of(column)] = true;
    for (const CsvTarget& target : options_.named_targets) {
        for (const std::string& column : target.columns) {
            if (has_targets_) used[place_of(column)] = true;
        }
    }
    std::optional<std::int64_t> before;
    for (std::size_t i = 0; i < used.size(); ++i) {
        const std::string& name = header()[i];
        if (!used[i] || !impl::looks_like_number(name)) continue;
        const std::optional<std::int64_t> number = impl::whole_number(name);
        if (!number || (before && *number <= *before)) throw_row_as_header();
        before = number;
    }
}

inline void Table::throw_row_as_header() const {
    throw DataError(text(
        path_, ": the first line seems to be a row and not the names of the columns: ", impl::quoted_list(header()),
        "; .header = false reads it as a row and calls the columns \"1\", \"2\" and on, .header = true "
        "takes it as names"));
}

inline void Table::read_rows(impl::CsvRecords& records, const Table* training) {
    const impl::CsvFields fields(path_, header(), records);
    const auto places_of = [this](const std::vector<std::string>& columns) {
        std::vector<std::size_t> places;
        places.reserve(columns.size());
        for (const std::string& column : columns) places.push_back(place_of(column));
        return places;
    };
    const std::vector<std::size_t> inputs = places_of(options_.inputs);
    std::vector<std::vector<std::size_t>> targets;
    std::vector<impl::ClassNumbers> classes;
    targets_.resize(options_.named_targets.size());
    for (std::size_t t = 0; t < targets_.size(); ++t) {
        if (training != nullptr) targets_[t].classes = training->targets_[t].classes;
        if (!has_targets_) continue;
        targets.push_back(places_of(options_.named_targets[t].columns));
        classes.emplace_back(training == nullptr ? nullptr : &training->targets_[t].classes);
    }
    const bool first_is_row = !options_.header.value_or(true);
    for (bool more = first_is_row || records.next(); more; more = records.next()) {
        ++rows_;
        fields.require_complete();
        for (const std::size_t column : inputs) inputs_.push_back(fields.number(column));
        for (std::size_t t = 0; t < targets.size(); ++t) {
            if (options_.named_targets[t].classes) {
                targets_[t].labels.push_back(
                    fields.label(targets[t][0], classes[t], training ? training->path_ : path_));
            } else {
                for (const std::size_t column : targets[t]) targets_[t].numbers.push_back(fields.number(column));
            }
        }
    }
    require<DataError>(rows_ > 0, path_, " has a header and no rows");
    for (std::size_t t = 0; t < targets.size(); ++t) {
        if (!options_.named_targets[t].classes) continue;
        const std::vector<std::string>& columns = options_.named_targets[t].columns;
        const std::string where = text(path_, ", column ", impl::in_quotes(columns[0]), ": ");
        targets_[t].classes = classes[t].finish(targets_[t].labels, where);
        require<DataError>(targets_[t].classes.size() >= 2, where, "all rows have the class ",
                           impl::in_quotes(targets_[t].classes[0]), "; classification needs at least 2 classes");
        // The first row of a file without a header, whose class was taken for the name of the column.
        const bool is_class =
            training == nullptr && std::ranges::find(targets_[t].classes, columns[0]) != targets_[t].classes.end();
        if (is_class && !options_.header && first_line_may_be_row()) throw_row_as_header();
    }
}

}}  // namespace cupola::CUPOLA_ABI
