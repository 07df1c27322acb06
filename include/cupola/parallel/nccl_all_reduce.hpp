// SPDX-License-Identifier: Apache-2.0
//
// NcclAllReduce: one sum over the replicas' gradient arenas by NCCL, on the devices of one process or of several:
//
//   mean = (sum over all ranks of the sum over their replicas of n_i g_i) / (sum of n_i)
//
// A rank is a device of a process, and each process has the same number of them: rank = process * devices + device.
// The gradients of replicas that share a device are added there first. The policy needs devices that NCCL supports; on
// `Host` it is rejected at compile time, and `ConcatMean` averages there. The implementation for `Cuda` is in
// <cupola/nccl.hpp>, which a program includes beside <cupola/cuda.hpp>.
//
// Several processes are started by torchrun, mpirun, srun or by hand. The replicas of a training are those of all processes,
// whose number P divides it: process p has the replicas [p R / P, (p + 1) R / P). Each process reports all replicas, in order.
//
// Each wait has a deadline, and the error names the missing ranks. Processes of one machine see each other's heartbeats
// through a file; ranks of other machines cannot be seen, and the error says so.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include <cupola/core/error.hpp>
#include <cupola/core/finite.hpp>
#include <cupola/parallel/averaging.hpp>
#include <cupola/processes/nccl_environment.hpp>
#include <cupola/processes/watch/launcher_variables.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

/// The sums of a process's devices. Incomplete here; <cupola/nccl.hpp> defines it, and only that header needs NCCL.
template <class Device, class Element = float>
class NcclCollective;

}  // namespace impl

struct NcclAllReduce {
    static constexpr std::string_view name = "NcclAllReduce";
    template <class Device>
    using Collective = impl::NcclCollective<Device>;
    /// That of Compressed<NcclAllReduce, Element>: the sums are of that type, and so is the memory for them.
    template <class Device, class Element>
    using CompressedCollective = impl::NcclCollective<Device, Element>;
    /// The program that starts the processes may set this variable to the id of ncclGetUniqueId, in hexadecimal digits.
    static constexpr const char* id_variable = "CUPOLA_NCCL_ID";

    /// The number of processes that train together, and the number of this one among them. With 0 processes both are those
    /// that the launcher's environment variables say, or 1 and 0 without a launcher: RANK and WORLD_SIZE,
    /// OMPI_COMM_WORLD_RANK and ..._SIZE, PMIX_RANK and SLURM_STEP_NUM_TASKS, PMI_RANK and PMI_SIZE, or SLURM_PROCID and
    /// SLURM_STEP_NUM_TASKS; the first pair that is set.
    int processes = 0, process = 0;
    /// The file in which process 0 gives NCCL's id to the others, on a disk of this machine; its name must be new for
    /// each start. Process 0 removes it once all have started. With the environment variable it names only the file of
    /// heartbeats. One process needs neither this nor an address.
    std::string id_file{};
    /// "host:port" of process 0, which waits there for the others and gives them NCCL's id. Empty, without an id_file and
    /// without the environment variable: that of MASTER_ADDR and MASTER_PORT.
    std::string address{};
    /// The folder for the file `process-<number>.fault`; it must exist. If it is given, a process whose wait for others of
    /// several processes ends in an error writes the step, the operation and the missing ranks there and to standard error, and
    /// ends with the exit status 75, within 1 s of the deadline. Otherwise a DeviceError is thrown.
    std::string folder{};
    /// The minimum size in bytes of a part of the gradient that is summed during the backward pass; 0 for one sum at its
    /// end. With more than two ranks the order of NCCL's additions, and so the last bits, depend on it.
    std::int64_t bucket_bytes = std::int64_t{1} << 20;
    /// The most groups of calls of NCCL that a device makes per step. Each takes its thread of the host about 50 to 100
    /// us; more of them sum a larger part of the gradient during the backward pass, which helps where its sum takes
    /// long: large networks, slow links. With one, the whole gradient is summed at the end of the backward pass. It
    /// changes the last bits as bucket_bytes does.
    int max_groups = 2;
    /// How long the starts of the processes may lie apart, and how long a process may wait for the others in a step. The
    /// latter includes all work that only one of them does between two steps, such as an evaluation.
    double start_seconds = 120, step_seconds = 60;
    /// The error names each rank that has shown no progress for this time.
    double heartbeat_seconds = 5;
    /// How long NCCL may take to abort its sums after a failure. NCCL waits there for other ranks, possibly without end:
    /// after this time the process ends with the error's message on stderr and status 1.
    double abort_seconds = 20;
    /// The environment of a training that goes on with fewer replicas when a process is lost; null for one that ends.
    /// `processes` and `process` are then those that are left, and a step may take abort_seconds more.
    NcclEnvironment* environment = nullptr;

    /// The same with the processes, the number of this one and the address that the launcher's environment variables say,
    /// where they are not given. Throws InvalidArgument, which names them, for variables that contradict each other, whose
    /// number is missing or not a number, or is not below the number of processes.
    [[nodiscard, gnu::cold]] NcclAllReduce as_launched() const;

    /// "process 1 of 4, from RANK and WORLD_SIZE": what as_launched() takes from the environment variables; empty without
    /// a launcher. Throws as it does.
    [[nodiscard, gnu::cold]] static std::string launcher() {
        const impl::LaunchedProcess launched = impl::launched_process();
        return launched.number_variable.empty() ? std::string() : launched.description();
    }
    /// CudaOptions::first_gpu for a process of `devices` devices that sees `gpus` GPUs: where it sees more than it uses, the
    /// processes that the launcher has started on this machine have consecutive GPUs, by LOCAL_RANK,
    /// OMPI_COMM_WORLD_LOCAL_RANK, MPI_LOCALRANKID or SLURM_LOCALID. Throws InvalidArgument if there are too few.
    [[nodiscard, gnu::cold]] static int first_gpu(int devices, int gpus) {
        const impl::LaunchedProcess launched = impl::launched_process();
        if (gpus <= devices || launched.local_number <= 0) return 0;
        const std::int64_t first = std::int64_t{devices} * launched.local_number;
        require(first + devices <= gpus, "the environment variable ", launched.local_variable, " is ",
                launched.local_number, ", so this process uses the GPUs ", first, " to ", first + devices - 1,
                ", and it sees ", gpus, " GPUs: start fewer processes per machine, or let each use fewer devices");
        return static_cast<int>(first);
    }

    /// Throws InvalidArgument if a number is invalid for a training with `devices` devices per process.
    [[gnu::cold]] void check(int devices) const;

    template <class Device>
    static consteval CompileTimeMessage diagnostic() {
        CompileTimeMessage message;
        if constexpr (!supports<Device>()) {
            message << "NcclAllReduce needs a device that NCCL supports, and " << Device::name
                    << " is not one: use ConcatMean instead";
        } else if constexpr (!requires { sizeof(Collective<Device>); }) {
            message << "NcclAllReduce on " << Device::name << " needs #include <cupola/nccl.hpp>";
        }
        return message;
    }

private:
    template <class Device>
    static consteval bool supports() {
        if constexpr (requires { Device::has_nccl; }) return Device::has_nccl;
        return false;
    }
};

inline NcclAllReduce NcclAllReduce::as_launched() const {
    NcclAllReduce result = *this;
    if (environment != nullptr) {
        require(processes == 0 || processes == environment->count(), "an NcclAllReduce of ", processes,
                " processes has an environment of ", environment->count());
        result.processes = environment->count();
        result.process = environment->number();
    } else if (processes == 0) {
        require(process == 0, "the process number ", process, " needs the number of processes");
        const impl::LaunchedProcess launched = impl::launched_process();
        result.processes = launched.count;
        result.process = launched.number;
    }
    const bool found = result.processes == 1 || !id_file.empty() || !address.empty();
    if (!found && std::getenv(id_variable) == nullptr) result.address = impl::launched_address();
    return result;
}

inline void NcclAllReduce::check(int devices) const {
    if (processes == 0) return as_launched().check(devices);
    constexpr int limit = 1 << 20;
    require(processes >= 1 && processes <= limit, "NcclAllReduce averages over 1 to ", limit, " processes, not ",
            processes);
    require(devices >= 1 && devices <= limit / processes, "NcclAllReduce averages over 1 to ", limit, " ranks, not ",
            processes, processes == 1 ? " process with " : " processes with ", devices,
            devices == 1 ? " device each" : " devices each");
    require(process >= 0 && process < processes, "the process number in a training over ", processes,
            " processes must be 0 to ", processes - 1, ", not ", process);
    const char* const id = std::getenv(id_variable);
    require(
        processes == 1 || !id_file.empty() || !address.empty() || (id != nullptr && *id != '\0'), "a training over ",
        processes,
        " processes must share NCCL's id: set id_file to the same new file in each, or address to the host and a port "
        "of process 0, or set the environment variables MASTER_ADDR and MASTER_PORT, or ",
        id_variable);
    require(id_file.empty() || address.empty(), "NcclAllReduce has the id_file ", id_file, " and the address ", address,
            ": process 0 gives NCCL's id by one of them");
    require(bucket_bytes >= 0, "NcclAllReduce's bucket_bytes must be 0 or more, not ", bucket_bytes);
    require(max_groups >= 1 && max_groups <= 1000, "NcclAllReduce's max_groups must be 1 to 1000, not ", max_groups);
    for (const auto& [what, seconds] :
         {std::pair{"start_seconds", start_seconds}, std::pair{"step_seconds", step_seconds},
          std::pair{"heartbeat_seconds", heartbeat_seconds}, std::pair{"abort_seconds", abort_seconds}}) {
        // An infinite wait is not offered.
        require(impl::is_finite(seconds) && seconds > 0 && seconds <= 1e9, "NcclAllReduce's ", what,
                " must be more than 0 s and at most 1e9 s, not ", seconds, " s");
    }
    require(heartbeat_seconds < start_seconds && heartbeat_seconds < step_seconds,
            "a stopped heartbeat must be noticed during a wait: heartbeat_seconds, ", heartbeat_seconds,
            " s, must be less than start_seconds, ", start_seconds, " s, and step_seconds, ", step_seconds, " s");
}

}}  // namespace cupola::CUPOLA_ABI
