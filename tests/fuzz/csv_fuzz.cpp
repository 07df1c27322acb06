// SPDX-License-Identifier: Apache-2.0
//
// The reader of CSV files on any bytes: a table or one error message, and memory in proportion to the file. The first byte
// chooses the options. What is read is written again, every field in quotes, and must be read as the same table.
#include <cupola/data/csv.hpp>

#include "../standard.hpp"
#include "support.hpp"

namespace {

std::string quoted(std::string_view field) {
    std::string result = "\"";
    for (const char c : field) result += c == '"' ? "\"\"" : std::string(1, c);
    return result + '"';
}

std::string number(float value) {
    char digits[32];
    std::snprintf(digits, sizeof digits, "%.9g", static_cast<double>(value));
    return digits;
}

/// The inputs alone, for a table without targets.
std::string written_inputs(const cupola::Table& table) {
    const char separator = table.options().separator;
    std::string result;
    for (const std::string& name : table.options().inputs)
        result += (result.empty() ? "" : std::string(1, separator)) + quoted(name);
    for (std::int64_t i = 0; i < table.size(); ++i) {
        std::string row;
        for (const float value : table.sample(i))
            row += (row.empty() ? "\n" : std::string(1, separator)) + number(value);
        result += row;
    }
    return result;
}

/// The columns of the table that are used, with their targets last.
std::string written(const cupola::Table& table, bool classes) {
    std::string result;
    for (const std::string& name : table.options().inputs) result += quoted(name) + ",";
    result += quoted(table.options().named_targets[0].columns[0]) + "\r\n";
    for (std::int64_t i = 0; i < table.size(); ++i) {
        for (const float value : table.sample(i)) result += quoted(number(value)) + ",";
        const void* target = table.target(i, 0);
        if (classes) {
            result += quoted(table.classes()[static_cast<std::size_t>(*static_cast<const std::int32_t*>(target))]);
        } else {
            result += number(*static_cast<const float*>(target));
        }
        result += "\r\n";
    }
    return result;
}

bool same(const cupola::Table& a, const cupola::Table& b, bool classes) {
    if (a.size() != b.size() || a.classes() != b.classes() || a.sample_shape() != b.sample_shape()) return false;
    for (std::int64_t i = 0; i < a.size(); ++i) {
        if (std::memcmp(a.sample(i).data(), b.sample(i).data(), a.sample(i).size_bytes()) != 0) return false;
        if (std::memcmp(a.target(i, 0), b.target(i, 0), 4) != 0) return false;
    }
    return classes == !a.classes().empty();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static fuzz::InputFile input(fuzz::folder() + "/table.csv"), again(fuzz::folder() + "/again.csv");
    if (size == 0) return 0;
    const bool classes = (data[0] & 1) != 0, named = (data[0] & 2) != 0;
    cupola::CsvOptions options;
    if (classes) {
        options.label = "y";
    } else {
        options.targets = {"y"};
    }
    if (named) options.inputs = {"b", "a"};
    options.separator = (data[0] & 4) != 0 ? ';' : ',';
    if ((data[0] & 8) != 0) {
        options.header = false;
        (classes ? options.label : options.targets[0]) = "3";
        if (named) options.inputs = {"2", "1"};
    }
    if ((data[0] & 16) != 0) options.ignored = {""};
    input.hold(data + 1, size - 1);
    std::optional<cupola::Table> table;
    const bool good = fuzz::answers(200 * size + (1 << 20), [&] { table = cupola::read_csv(input.path(), options); });
    if (!good) return 0;
    // The same file as a table for evaluation is the same table.
    if (!same(*table, cupola::read_csv(input.path(), *table), classes)) fuzz::fail("another table at evaluation", "");
    const bool all_used = table->header().size() == table->options().inputs.size() + 1;
    if (all_used && options.header.value_or(true)) {
        const std::string inputs = written_inputs(*table);
        again.hold(reinterpret_cast<const std::uint8_t*>(inputs.data()), inputs.size());
        const cupola::Table untargeted = cupola::read_csv(again.path(), *table);
        bool equal = !untargeted.has_targets() && untargeted.size() == table->size();
        for (std::int64_t i = 0; equal && i < table->size(); ++i)
            equal =
                std::memcmp(untargeted.sample(i).data(), table->sample(i).data(), table->sample(i).size_bytes()) == 0;
        if (!equal) fuzz::fail("other inputs without targets", inputs);
    }
    const std::string text = written(*table, classes);
    again.hold(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
    options.separator = ',';
    options.header = true;
    options.ignored.clear();
    if (!same(*table, cupola::read_csv(again.path(), options), classes)) fuzz::fail("another table when written", text);
    return 0;
}
