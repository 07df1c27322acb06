// SPDX-License-Identifier: Apache-2.0
//
// What launchers say of their processes, and which of them is believed.
#include "../../test.hpp"

#include <cupola/processes/watch/launcher_variables.hpp>

#include "throws_with.hpp"

namespace {

using Variables = std::map<std::string, std::string>;

auto reader(const Variables& variables) {
    return [&](const char* name) -> const char* {
        const auto found = variables.find(name);
        return found == variables.end() ? nullptr : found->second.c_str();
    };
}
impl::LaunchedProcess launched(const Variables& variables) {
    const auto read = reader(variables);
    return impl::launched_process(read);
}
std::string refused(const Variables& variables) {
    return message_of<InvalidArgument>([&] { static_cast<void>(launched(variables)); });
}

}  // namespace

TEST_CASE("without a launcher a process is alone, also in the script of a SLURM job") {
    for (const Variables& variables :
         {Variables{}, Variables{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_LOCALID", "0"}}}) {
        const impl::LaunchedProcess process = launched(variables);
        CHECK(process.number == 0);
        CHECK(process.count == 1);
        CHECK(process.local_number == -1);
        CHECK(process.number_variable.empty());
    }
}

TEST_CASE("torchrun, Open MPI, PMIx, PMI and SLURM say number, count and the number on the machine") {
    const auto check = [](const Variables& variables, const std::string& description, int local) {
        const impl::LaunchedProcess process = launched(variables);
        CHECK(process.description() == description);
        CHECK(process.local_number == local);
    };
    check({{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "0"}}, "process 1 of 4, from RANK and WORLD_SIZE", 0);
    check({{"RANK", "1"}, {"WORLD_SIZE", "4"}}, "process 1 of 4, from RANK and WORLD_SIZE", -1);
    // In the script of a SLURM job all processes of mpirun have its SLURM_PROCID.
    check({{"OMPI_COMM_WORLD_RANK", "3"},
           {"OMPI_COMM_WORLD_SIZE", "4"},
           {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
           {"PMIX_RANK", "3"},
           {"SLURM_PROCID", "0"},
           {"SLURM_NTASKS", "8"},
           {"SLURM_LOCALID", "0"}},
          "process 3 of 4, from OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE", 1);
    check({{"PMIX_RANK", "2"}, {"SLURM_PROCID", "2"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_LOCALID", "1"}},
          "process 2 of 4, from PMIX_RANK and SLURM_STEP_NUM_TASKS", 1);
    check({{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "2"}},
          "process 2 of 4, from PMI_RANK and PMI_SIZE", 2);
    check({{"SLURM_PROCID", "3"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_LOCALID", "1"}},
          "process 3 of 4, from SLURM_PROCID and SLURM_STEP_NUM_TASKS", 1);
    // srun --mpi=pmi2 sets the number on the machine in SLURM's own variable alone.
    check({{"PMI_RANK", "3"},
           {"PMI_SIZE", "4"},
           {"SLURM_PROCID", "3"},
           {"SLURM_STEP_NUM_TASKS", "4"},
           {"SLURM_LOCALID", "1"}},
          "process 3 of 4, from PMI_RANK and PMI_SIZE", 1);
    // The processes of an mpirun have SLURM's variables of the one that started them on their machine.
    check({{"PMI_RANK", "1"},
           {"PMI_SIZE", "8"},
           {"SLURM_PROCID", "1"},
           {"SLURM_STEP_NUM_TASKS", "2"},
           {"SLURM_LOCALID", "0"}},
          "process 1 of 8, from PMI_RANK and PMI_SIZE", -1);
}

TEST_CASE("launchers that agree, and one inside the job of another, are believed") {
    CHECK(launched({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}})
              .number == 1);
    // torchrun in the processes of srun or mpirun, one per machine.
    CHECK(launched({{"TORCHELASTIC_RUN_ID", "none"},
                    {"RANK", "5"},
                    {"WORLD_SIZE", "8"},
                    {"PMI_RANK", "1"},
                    {"PMI_SIZE", "2"},
                    {"SLURM_PROCID", "1"},
                    {"SLURM_STEP_NUM_TASKS", "2"}})
              .description() == "process 5 of 8, from RANK and WORLD_SIZE");
    // mpirun in an interactive job, whose shell is the only process of an srun.
    CHECK(launched({{"OMPI_COMM_WORLD_RANK", "2"},
                    {"OMPI_COMM_WORLD_SIZE", "4"},
                    {"PMI_RANK", "0"},
                    {"PMI_SIZE", "1"},
                    {"SLURM_PROCID", "0"},
                    {"SLURM_STEP_NUM_TASKS", "1"}})
              .description() == "process 2 of 4, from OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE");
}

TEST_CASE(
    "half a pair, what is no number, a number that is too large and contradictions are rejected by name and value") {
    CHECK(refused({{"RANK", "1"}}) ==
          "the environment variable RANK is \"1\", but WORLD_SIZE is not set: a launcher sets both");
    CHECK(
        refused({{"OMPI_COMM_WORLD_SIZE", "4"}}) ==
        "the environment variable OMPI_COMM_WORLD_SIZE is \"4\", but OMPI_COMM_WORLD_RANK is not set: a launcher sets "
        "both");
    CHECK(refused({{"PMIX_RANK", "1"}}) ==
          "the environment variable PMIX_RANK is \"1\", but SLURM_STEP_NUM_TASKS is not set: a launcher sets both");
    CHECK(refused({{"PMI_RANK", "1"}}) ==
          "the environment variable PMI_RANK is \"1\", but PMI_SIZE is not set: a launcher sets both");
    CHECK(refused({{"SLURM_STEP_NUM_TASKS", "4"}}) ==
          "the environment variable SLURM_STEP_NUM_TASKS is \"4\", but SLURM_PROCID is not set: a launcher sets both");
    CHECK(refused({{"RANK", "one"}, {"WORLD_SIZE", "2"}}) ==
          "the environment variable RANK is \"one\", not a whole number of at least 0");
    CHECK(refused({{"RANK", "-1"}, {"WORLD_SIZE", "2"}}) ==
          "the environment variable RANK is \"-1\", not a whole number of at least 0");
    CHECK(refused({{"RANK", ""}, {"WORLD_SIZE", "2"}}) ==
          "the environment variable RANK is \"\", not a whole number of at least 0");
    CHECK(refused({{"RANK", "1"}, {"WORLD_SIZE", "0"}}) ==
          "the environment variable WORLD_SIZE is \"0\", not a whole number of at least 1");
    CHECK(refused({{"RANK", "1"}, {"WORLD_SIZE", "2x"}}) ==
          "the environment variable WORLD_SIZE is \"2x\", not a whole number of at least 1");
    CHECK(refused({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "a"}}) ==
          "the environment variable LOCAL_RANK is \"a\", not a whole number of at least 0");
    CHECK(refused({{"PMI_RANK", "4"}, {"PMI_SIZE", "4"}}) ==
          "the environment variable PMI_RANK is 4, which is not below PMI_SIZE, 4");
    CHECK(
        refused({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "4"}}) ==
        "the environment variables of two launchers contradict each other: RANK is 0 of WORLD_SIZE 1, and "
        "OMPI_COMM_WORLD_RANK is 1 of OMPI_COMM_WORLD_SIZE 4; unset those of the one that has not started this process");
}

TEST_CASE("the address of process 0 is that of MASTER_ADDR and MASTER_PORT, beside torchrun's own store") {
    const auto address = [](const Variables& variables) {
        const auto read = reader(variables);
        return impl::launched_address(read);
    };
    const auto wrong = [&](const Variables& variables) {
        return message_of<InvalidArgument>([&] { static_cast<void>(address(variables)); });
    };
    CHECK(address({}).empty());
    CHECK(address({{"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29500"}}) == "node1:29500");
    CHECK(address({{"MASTER_ADDR", "::1"}, {"MASTER_PORT", "29500"}}) == "[::1]:29500");
    CHECK(address({{"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29500"}, {"TORCHELASTIC_USE_AGENT_STORE", "True"}}) ==
          "node1:29501");
    CHECK(address({{"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29500"}, {"TORCHELASTIC_USE_AGENT_STORE", "False"}}) ==
          "node1:29500");
    CHECK(wrong({{"MASTER_ADDR", "node1"}}) ==
          "the environment variable MASTER_ADDR is \"node1\", but MASTER_PORT is not set: both are needed");
    CHECK(wrong({{"MASTER_PORT", "1"}}) ==
          "the environment variable MASTER_PORT is \"1\", but MASTER_ADDR is not set: both are needed");
    CHECK(wrong({{"MASTER_ADDR", "a"}, {"MASTER_PORT", "many"}}) ==
          "the environment variable MASTER_PORT is \"many\", not a whole number of at least 1");
    CHECK(wrong({{"MASTER_ADDR", "a"}, {"MASTER_PORT", "65536"}}) ==
          "the environment variable MASTER_PORT is \"65536\", and a port is at most 65535");
}

TEST_CASE("a job is named as its launcher names it") {
    const auto job = [](const Variables& variables) {
        const auto read = reader(variables);
        return impl::launched_job(read);
    };
    CHECK(job({}).empty());
    CHECK(job({{"SLURM_JOB_ID", "7"}}) == "SLURM_JOB_ID 7");
    CHECK(job({{"SLURM_JOB_ID", "7"}, {"TORCHELASTIC_RUN_ID", "a"}}) == "TORCHELASTIC_RUN_ID a");
}
