// SPDX-License-Identifier: Apache-2.0
//
// What load_parameters (io/load_parameters.hpp) is asked for, and what it reports.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/net/name_table.hpp>
#include <cupola/parallel/step_report.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

struct LoadOptions {
    /// Patterns: parameters and running statistics whose full names match one of them are loaded.
    std::vector<std::string> patterns{"*"};
    /// The beginning of the names in the file: with "backbone.", body.weight is the file's backbone.body.weight.
    std::string file_prefix{};
    /// The parameters of the file, or their moving averages; a frozen parameter has no average and is taken itself.
    Weights weights = Weights::trained;
    /// Whether anything that a pattern matches and that cannot be loaded is an error.
    bool require_all = false;
    /// What the parameters and running statistics are in the file, where it is not one of Cupola's names and layouts.
    NameTable names{};
};

/// Full names of parameters and running statistics, in the order of the network; `unused` in that of the file.
struct LoadReport {
    /// The beginning of the names in the file: as in the options, or in a file of torch.save "module." or "_orig_mod.".
    std::string file_prefix{};
    std::vector<std::string> loaded{};
    /// The file lacks it, or a part of it.
    std::vector<std::string> missing{};
    /// The file's tensor has other extents: "head.weight is 10 x 64 here and 100 x 64 in the file", with a prefix
    /// "head.weight is 10 x 64 here, and net.head.weight is 100 x 64 in the file".
    std::vector<std::string> other_extents{};
    /// No pattern matches these.
    std::vector<std::string> not_matched{};
    /// The file's other parameters and running statistics: those that are neither loaded nor of other extents.
    std::vector<std::string> unused{};

    /// Whether everything was loaded that the patterns match.
    [[nodiscard]] bool complete() const { return missing.empty() && other_extents.empty(); }
};

/// A line per kind that is not empty: "loaded 4: body.weight, body.bias, ...", with a prefix "loaded 4, each as net.
/// and its name: ...".
[[nodiscard]] inline std::string to_string(const LoadReport& report) {
    std::string result;
    const auto line = [&](const char* what, const std::vector<std::string>& names, bool has_prefix = false) {
        if (names.empty()) return;
        result += text(result.empty() ? "" : "\n", what, ' ', names.size());
        if (has_prefix && !report.file_prefix.empty())
            result += text(names.size() == 1 ? ", as " : ", each as ", report.file_prefix, " and its name");
        result += ": ";
        for (std::size_t i = 0; i < names.size(); ++i) result += text(i == 0 ? "" : ", ", names[i]);
    };
    line("loaded", report.loaded, true);
    line("not in the file", report.missing, true);
    line("of other extents", report.other_extents);
    line("matched by no pattern", report.not_matched);
    line("in the file and not used", report.unused);
    return result;
}

}}  // namespace cupola::CUPOLA_ABI
