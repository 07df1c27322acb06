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
// Each wait has a deadline, and the error names the missing ranks. Processes of one machine see each other's heartbeats
// through a file beside `id_file`; ranks of other machines cannot be seen, and the error says so.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include <cupola/core/error.hpp>
#include <cupola/parallel/averaging.hpp>

namespace cupola::inline CUPOLA_ABI {

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

    /// The number of processes that train together, and the number of this one among them.
    int processes = 1, process = 0;
    /// The file in which process 0 gives NCCL's id to the others, on a disk of this machine; its name must be new for
    /// each start. Process 0 removes it once all have started. With the environment variable it names only the file of
    /// heartbeats; over several machines, which is untested, only the variable is set. One process needs neither.
    std::string id_file{};
    /// The minimum size in bytes of a part of the gradient that is summed during the backward pass; 0 for one sum at its
    /// end. With more than two ranks the order of NCCL's additions, and so the last bits, depend on it.
    std::int64_t bucket_bytes = std::int64_t{1} << 20;
    /// How long the starts of the processes may lie apart, and how long a process may wait for the others in a step. The
    /// latter includes all work that only one of them does between two steps, such as an evaluation.
    double start_seconds = 120, step_seconds = 60;
    /// The error names each rank that has shown no progress for this time.
    double heartbeat_seconds = 5;
    /// How long NCCL may take to abort its sums after a failure. NCCL waits there for other ranks, possibly without end:
    /// after this time the process ends with the error's message on stderr and status 1.
    double abort_seconds = 20;

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

inline void NcclAllReduce::check(int devices) const {
    constexpr int limit = 1 << 20;
    require(processes >= 1 && processes <= limit, "NcclAllReduce averages over 1 to ", limit, " processes, not ",
            processes);
    require(devices >= 1 && devices <= limit / processes, "NcclAllReduce averages over 1 to ", limit, " ranks, not ",
            processes, processes == 1 ? " process with " : " processes with ", devices,
            devices == 1 ? " device each" : " devices each");
    require(process >= 0 && process < processes, "the process number in a training over ", processes,
            " processes must be 0 to ", processes - 1, ", not ", process);
    const char* const id = std::getenv(id_variable);
    require(processes == 1 || !id_file.empty() || (id != nullptr && *id != '\0'), "a training over ", processes,
            " processes must share NCCL's id: set id_file to the same new file in each, or set the environment "
            "variable ",
            id_variable);
    require(bucket_bytes >= 0, "NcclAllReduce's bucket_bytes must be 0 or more, not ", bucket_bytes);
    for (const auto& [what, seconds] :
         {std::pair{"start_seconds", start_seconds}, std::pair{"step_seconds", step_seconds},
          std::pair{"heartbeat_seconds", heartbeat_seconds}, std::pair{"abort_seconds", abort_seconds}}) {
        // The condition is false for a NaN too. An infinite wait is not offered.
        require(seconds > 0 && seconds <= 1e9, "NcclAllReduce's ", what,
                " must be more than 0 s and at most 1e9 s, not ", seconds, " s");
    }
    require(heartbeat_seconds < start_seconds && heartbeat_seconds < step_seconds,
            "a stopped heartbeat must be noticed during a wait: heartbeat_seconds, ", heartbeat_seconds,
            " s, must be less than start_seconds, ", start_seconds, " s, and step_seconds, ", step_seconds, " s");
}

}  // namespace cupola::inline CUPOLA_ABI
