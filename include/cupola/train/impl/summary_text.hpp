// SPDX-License-Identifier: Apache-2.0
//
// Names and values as a Markdown table.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

[[nodiscard, gnu::cold]] inline std::string markdown_cell(const std::string& words) {
    std::string result;
    for (const char c : words) {
        if (c == '|') result += '\\';
        result += c == '\n' ? ' ' : c;
    }
    return result;
}

[[nodiscard, gnu::cold]] inline std::string markdown_table(
    const std::vector<std::pair<std::string, std::string>>& rows) {
    std::string table = "| name | value |\n|---|---|\n";
    for (const auto& [name, value] : rows)
        table += text("| ", markdown_cell(name), " | ", markdown_cell(value), " |\n");
    return table;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
