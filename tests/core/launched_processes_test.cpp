// SPDX-License-Identifier: Apache-2.0
//
// The warning of a training of one process that a launcher has started beside others.
#include <cupola/core/launched_processes.hpp>

#include "../test.hpp"

namespace {

using Variables = std::map<std::string, std::string>;

auto reader(const Variables& variables) {
    return [&](const char* name) -> const char* {
        const auto found = variables.find(name);
        return found == variables.end() ? nullptr : found->second.c_str();
    };
}

}  // namespace

TEST_CASE("the first of several processes that train alone says so") {
    const auto warning = [](const Variables& variables) { return impl::warning_of_lone_processes(reader(variables)); };
    for (const auto& [count, number] :
         {std::pair{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"}, std::pair{"PMI_SIZE", "PMI_RANK"},
          std::pair{"MPI_LOCALNRANKS", "MPI_LOCALRANKID"}, std::pair{"SLURM_STEP_NUM_TASKS", "SLURM_PROCID"},
          std::pair{"WORLD_SIZE", "RANK"}}) {
        const std::string expected = std::string("warning: the launcher has started 2 processes (") + count +
                                     "), and each of them trains alone: ";
        CHECK(warning({{count, "2"}, {number, "0"}}).starts_with(expected));
        CHECK(warning({{count, "2"}}).starts_with(expected));  // which one this is cannot be known
        CHECK(warning({{count, "2"}, {number, "1"}}).empty());
        CHECK(warning({{count, "1"}, {number, "0"}}).empty());
    }
    CHECK(warning({}).empty());
    // The script of a SLURM job is one process.
    CHECK(warning({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}).empty());
}
