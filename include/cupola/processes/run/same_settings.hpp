// SPDX-License-Identifier: Apache-2.0
//
// The comparison of the settings that must be equal in all processes of a training: options, data, and everything else
// on which the bits of a result depend.
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
#include <cupola/processes/agreement/process_gather.hpp>
#include <cupola/processes/processes.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Pairs of a name and a value, both as text.
using Settings = std::span<const std::pair<std::string, std::string>>;

/// The settings as one text, with one line per setting: name, tab, value.
[[nodiscard, gnu::cold]] inline std::string joined_settings(Settings settings) {
    std::string joined;
    for (const auto& [name, value] : settings) {
        const std::size_t begin = joined.size();
        joined.append(name).append(1, '\t').append(value);
        std::replace(joined.begin() + static_cast<std::ptrdiff_t>(begin), joined.end(), '\n', ' ');
        joined += '\n';
    }
    return joined;
}

/// The first process whose settings differ from those of process 0, and the first setting that differs: its name and
/// value in both processes.
struct SettingDifference {
    std::size_t process = 0;
    std::string_view name, name_in_first, value, value_in_first;
};

/// `all` contains the processes' joined_settings(), to which the result refers.
[[nodiscard, gnu::cold]] inline std::optional<SettingDifference> first_setting_difference(
    const std::vector<std::string>& all) {
    const auto next_line = [](std::string_view& rest) {
        const std::string_view line = rest.substr(0, rest.find('\n'));
        rest.remove_prefix(std::min(rest.size(), line.size() + 1));
        return line;
    };
    const auto name_of = [](std::string_view line) { return line.substr(0, line.find('\t')); };
    const auto value_of = [&](std::string_view line) {
        return line.substr(std::min(line.size(), name_of(line).size() + 1));
    };
    for (std::size_t p = 1; p < all.size(); ++p) {
        if (all[p] == all[0]) continue;
        std::string_view first = all[0], other = all[p], line_of_first, line_of_other;
        while (line_of_first == line_of_other) {
            line_of_first = next_line(first);
            line_of_other = next_line(other);
        }
        return SettingDifference{p, name_of(line_of_other), name_of(line_of_first), value_of(line_of_other),
                                 value_of(line_of_first)};
    }
    return {};
}

/// Throws InvalidArgument, on every process, unless all have the same settings. The message names the first difference:
/// "process 2 has another batch_size than process 0: 64, not 128".
[[gnu::cold]] inline void require_same_settings(ProcessGroup& processes, Settings settings, std::int64_t step = -1) {
    const std::vector<std::string> all =
        gathered_texts(processes, {"the comparison of settings", step}, joined_settings(settings));
    const std::optional<SettingDifference> other = first_setting_difference(all);
    if (!other) return;
    const int number = processes.number_at_start(static_cast<int>(other->process)),
              first = processes.number_at_start(0);
    require(other->name == other->name_in_first, "process ", number, " has the setting ", other->name,
            " where process ", first, " has ", other->name_in_first,
            ": the processes of a training must be started with the same program");
    throw InvalidArgument(text("process ", number, " has another ", other->name, " than process ", first, ": ",
                               other->value, ", not ", other->value_in_first));
}

}}}  // namespace cupola::CUPOLA_ABI::impl
