// SPDX-License-Identifier: Apache-2.0
//
// The environment variables by which launchers describe the processes of a program.
#pragma once

#include <array>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <system_error>

#include <cupola/core/abi.hpp>
#include <cupola/core/error.hpp>
#include <cupola/core/function_ref.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// A process started by a launcher: its number (rank) and the number of processes (world size); its number on the
/// machine (local rank), -1 if unknown; and the variables that contain them, empty if no launcher has set any.
struct LaunchedProcess {
    int number = 0, count = 1, local_number = -1;
    std::string_view number_variable{}, count_variable{}, local_variable{};

    /// "process 1 of 4, from OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE"
    [[nodiscard, gnu::cold]] std::string description() const {
        return text("process ", number, " of ", count, ", from ", number_variable, " and ", count_variable);
    }
};

using ValueOfVariable = FunctionRef<const char*(const char*)>;

/// Parses the value of a variable: an integer, at least `least`. Throws InvalidArgument otherwise.
[[nodiscard, gnu::cold]] inline int launched_number(const char* name, std::string_view value, int least) {
    int number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    require(error == std::errc{} && end == value.data() + value.size() && number >= least, "the environment variable ",
            name, " is \"", value, "\", not a whole number of at least ", least);
    return number;
}

/// The variables of one launcher; `local` need not be set.
struct LauncherVariables {
    const char *number, *count, *local;
    /// The variables that identify the launcher: either one of the pair, which must then be complete, or a specific
    /// one.
    enum RecognizedBy : std::uint8_t { by_either, by_number, by_count } recognized;
    /// Whether its variables must agree with those of the launcher that is used. False for launchers inside whose job
    /// another launcher is often used, whose processes then inherit the variables of the process that started it.
    bool compared;
};

/// In this order: torchrun; mpirun of Open MPI; srun with PMIx, which sets no number of processes; mpirun of MPICH and
/// Intel MPI, and srun with PMI-2; srun. In the batch script of a SLURM job, which is one process, SLURM_PROCID is 0,
/// and all processes that an mpirun starts there inherit that; SLURM_STEP_NUM_TASKS is set by srun only.
inline constexpr std::array<LauncherVariables, 5> launchers{
    {{"RANK", "WORLD_SIZE", "LOCAL_RANK", LauncherVariables::by_either, true},
     {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", LauncherVariables::by_either, true},
     {"PMIX_RANK", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", LauncherVariables::by_number, false},
     {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", LauncherVariables::by_either, true},
     {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", LauncherVariables::by_count, false}}};

/// Adds the number on the machine by another launcher that gives the process the same number and count: beside the
/// variables of PMI-2, srun sets it in its own alone. The process that starts those of an mpirun has other numbers.
[[gnu::cold]] inline void add_local_number(LaunchedProcess& process, ValueOfVariable value_of) {
    const auto is = [&](const char* name, int value) {
        const char* const found = value_of(name);
        return found != nullptr && found == text(value);
    };
    for (const LauncherVariables& each : launchers) {
        if (!is(each.number, process.number) || !is(each.count, process.count)) continue;
        if (const char* const local = value_of(each.local)) {
            process.local_number = launched_number(each.local, local, 0);
            process.local_variable = each.local;
            return;
        }
    }
}

/// This process according to the first of `launchers` whose variables are set, or a single process if there is none.
/// torchrun's variables take precedence even inside another launcher's job. Throws InvalidArgument, which names
/// variable and value, for an incomplete pair, a value that is not an integer, a number that is not less than the
/// count, and variables of two launchers that contradict each other.
[[nodiscard, gnu::cold]] inline LaunchedProcess launched_process(ValueOfVariable value_of) {
    LaunchedProcess first;
    const bool by_torchrun = value_of("TORCHELASTIC_RUN_ID") != nullptr;
    for (const LauncherVariables& each : launchers) {
        const bool found = !first.number_variable.empty();
        if (found && (!each.compared || by_torchrun)) continue;
        const char *const number = value_of(each.number), *const count = value_of(each.count);
        if (number == nullptr && (count == nullptr || each.recognized == LauncherVariables::by_number)) continue;
        if (count == nullptr && each.recognized == LauncherVariables::by_count) continue;
        require(number != nullptr, "the environment variable ", each.count, " is \"", count == nullptr ? "" : count,
                "\", but ", each.number, " is not set: a launcher sets both");
        require(count != nullptr, "the environment variable ", each.number, " is \"", number, "\", but ", each.count,
                " is not set: a launcher sets both");
        LaunchedProcess process{.number = launched_number(each.number, number, 0),
                                .count = launched_number(each.count, count, 1),
                                .local_number = -1,
                                .number_variable = each.number,
                                .count_variable = each.count,
                                .local_variable = {}};
        require(process.number < process.count, "the environment variable ", each.number, " is ", process.number,
                ", which is not below ", each.count, ", ", process.count);
        if (found) {
            if (process.count == 1) continue;  // an interactive job, in which another launcher was called
            require(process.number == first.number && process.count == first.count,
                    "the environment variables of two launchers contradict each other: ", first.number_variable, " is ",
                    first.number, " of ", first.count_variable, ' ', first.count, ", and ", process.number_variable,
                    " is ", process.number, " of ", process.count_variable, ' ', process.count,
                    "; unset those of the one that has not started this process");
            continue;
        }
        if (const char* const local = value_of(each.local)) {
            process.local_number = launched_number(each.local, local, 0);
            process.local_variable = each.local;
        }
        first = process;
    }
    if (!first.number_variable.empty() && first.local_number < 0) add_local_number(first, value_of);
    return first;
}
[[nodiscard, gnu::cold]] inline LaunchedProcess launched_process() {
    return launched_process([](const char* name) -> const char* { return std::getenv(name); });
}

/// The launcher's name of the job, the same for all of its processes: "SLURM_JOB_ID 4711"; empty if it sets none.
[[nodiscard, gnu::cold]] inline std::string launched_job(ValueOfVariable value_of) {
    for (const char* const name : {"TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"}) {
        if (const char* const value = value_of(name)) return text(name, ' ', value);
    }
    return {};
}
[[nodiscard, gnu::cold]] inline std::string launched_job() {
    return launched_job([](const char* name) -> const char* { return std::getenv(name); });
}

/// The address at which process 0 listens: "host:port", from MASTER_ADDR and MASTER_PORT; empty if neither is set. If
/// torchrun's own store listens on that port, the next port is used.
[[nodiscard, gnu::cold]] inline std::string launched_address(ValueOfVariable value_of) {
    const char *const host = value_of("MASTER_ADDR"), *const port = value_of("MASTER_PORT");
    if (host == nullptr && port == nullptr) return {};
    require(host != nullptr && *host != '\0', "the environment variable MASTER_PORT is \"", port == nullptr ? "" : port,
            "\", but MASTER_ADDR is not set: both are needed");
    require(port != nullptr, "the environment variable MASTER_ADDR is \"", host,
            "\", but MASTER_PORT is not set: both are needed");
    int number = launched_number("MASTER_PORT", port, 1);
    const char* const store = value_of("TORCHELASTIC_USE_AGENT_STORE");
    if (store != nullptr && std::string_view(store) == "True") ++number;
    require(number <= 65535, "the environment variable MASTER_PORT is \"", port, "\", and a port is at most 65535");
    const bool has_colons = std::string_view(host).find(':') != std::string_view::npos;
    return text(has_colons ? "[" : "", host, has_colons ? "]:" : ":", number);
}
[[nodiscard, gnu::cold]] inline std::string launched_address() {
    return launched_address([](const char* name) -> const char* { return std::getenv(name); });
}

}}}  // namespace cupola::CUPOLA_ABI::impl
