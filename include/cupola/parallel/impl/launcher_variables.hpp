// SPDX-License-Identifier: Apache-2.0
//
// The number of processes that a launcher says it has started, by its environment variables.
#pragma once

#include <charconv>
#include <cstdlib>
#include <string>
#include <string_view>
#include <system_error>

#include <cupola/core/abi.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

struct LaunchedProcesses {
    /// The variable, and its value; empty and 1 if no launcher has set any.
    std::string_view variable{};
    int count = 1;
};

/// `value_of(name)` returns a variable's value or null, as std::getenv does. The variables of MPI's own launchers come first:
/// inside a job of another launcher that one's are there too. A value that is not a number counts as not set.
template <class ValueOf>
[[nodiscard]] LaunchedProcesses launched_processes(ValueOf&& value_of) {
    for (const char* const name :
         {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS", "SLURM_STEP_NUM_TASKS", "WORLD_SIZE"}) {
        const char* const value = value_of(name);
        if (value == nullptr) continue;
        const std::string_view digits(value);
        int count = 0;
        const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), count);
        if (error == std::errc{} && end == digits.data() + digits.size() && count >= 1) return {name, count};
    }
    return {};
}

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
