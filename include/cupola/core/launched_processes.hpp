// SPDX-License-Identifier: Apache-2.0
//
// The number of processes that a launcher has started, from its environment variables, and the warning for a training
// that uses only one of them. processes/watch/launcher_variables.hpp reads these variables for trainings in several
// processes.
#pragma once

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <cupola/core/error.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

struct LaunchedProcesses {
    /// The name and the value of the variable; empty and 1 if no launcher has set any.
    std::string_view variable{};
    int count = 1;
    /// The number of this process, from the corresponding variable; -1 if that is not an integer.
    int number = -1;
};

/// `value_of(name)` returns a variable's value or null, as std::getenv does. The variables of MPI's launchers have
/// precedence, because inside a job of another launcher the variables of that one are set too. A value that is not an
/// integer counts as not set.
template <class ValueOf>
[[nodiscard]] LaunchedProcesses launched_processes(ValueOf&& value_of) {
    const auto number_in = [&](const char* name) {
        const char* const value = value_of(name);
        if (value == nullptr) return -1;
        const std::string_view digits(value);
        int number = 0;
        const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
        return error == std::errc{} && end == digits.data() + digits.size() ? number : -1;
    };
    using Pair = std::pair<const char*, const char*>;
    for (const auto& [count_name, number_name] :
         {Pair{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"}, Pair{"PMI_SIZE", "PMI_RANK"},
          Pair{"MPI_LOCALNRANKS", "MPI_LOCALRANKID"}, Pair{"SLURM_STEP_NUM_TASKS", "SLURM_PROCID"},
          Pair{"WORLD_SIZE", "RANK"}}) {
        const int count = number_in(count_name);
        if (count >= 1) return {count_name, count, number_in(number_name)};
    }
    return {};
}

/// The warning for a training of this process alone if its launcher has started several; empty if it has not, and in
/// all processes except the first.
template <class ValueOf>
[[nodiscard, gnu::cold]] std::string warning_of_lone_processes(ValueOf&& value_of) {
    const LaunchedProcesses launched = launched_processes(value_of);
    if (launched.count == 1 || launched.number > 0) return {};
    return text("warning: the launcher has started ", launched.count, " processes (", launched.variable,
                "), and each of them trains alone: one training of all needs a policy for several processes, such as "
                "MpiConcatMean or NcclAllReduce; in cifar10_train --averaging chooses it");
}

/// Writes that warning to standard error, once per process, because a program may make many trainings, and a sweep
/// starts many processes on purpose.
[[gnu::cold]] inline void warn_of_lone_processes() {
    [[maybe_unused]] static const bool is_said = [] {
        const std::string warning =
            warning_of_lone_processes([](const char* name) -> const char* { return std::getenv(name); });
        if (!warning.empty()) std::fprintf(stderr, "%s\n", warning.c_str());
        return !warning.empty();
    }();
}

}}}  // namespace cupola::CUPOLA_ABI::impl
