// SPDX-License-Identifier: Apache-2.0
//
// The comparison of what has to be the same in all processes of a training: options, data, and what the bits of a result
// depend on.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/parallel/impl/process_gather.hpp>
#include <cupola/parallel/processes.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

/// Throws InvalidArgument, on every process, unless all have the same settings, which are names and texts. The message names
/// the first one that differs: "process 2 has another batch_size than process 0: 64, not 128". `what` is what has settings.
[[gnu::cold]] inline void require_same_settings(Processes& processes,
                                                std::span<const std::pair<std::string, std::string>> settings) {
    // One text, in which no part begins with a tab or ends a line.
    std::string joined;
    for (const auto& [name, value] : settings) {
        const std::size_t begin = joined.size();
        joined.append(name).append(1, '\t').append(value);
        std::replace(joined.begin() + static_cast<std::ptrdiff_t>(begin), joined.end(), '\n', ' ');
        joined += '\n';
    }
    const std::vector<std::string> all = gathered_texts(processes, {"the comparison of settings"}, joined);
    for (std::size_t p = 1; p < all.size(); ++p) {
        if (all[p] == all[0]) continue;
        std::string_view first = all[0], other = all[p];
        const auto next_line = [](std::string_view& rest) {
            const std::string_view line = rest.substr(0, rest.find('\n'));
            rest.remove_prefix(std::min(rest.size(), line.size() + 1));
            return line;
        };
        std::string_view line_of_first, line_of_other;
        while (line_of_first == line_of_other) {
            line_of_first = next_line(first);
            line_of_other = next_line(other);
        }
        const auto name_of = [](std::string_view line) { return line.substr(0, line.find('\t')); };
        const auto value_of = [&](std::string_view line) {
            return line.substr(std::min(line.size(), name_of(line).size() + 1));
        };
        const std::string_view name = name_of(line_of_first);
        require(name == name_of(line_of_other), "process ", p, " has the setting ", name_of(line_of_other),
                " where process 0 has ", name, ": the processes of a training must be started with the same program");
        throw InvalidArgument(text("process ", p, " has another ", name, " than process 0: ", value_of(line_of_other),
                                   ", not ", value_of(line_of_first)));
    }
}

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
