// SPDX-License-Identifier: Apache-2.0
//
// The members of NcclAllReduce that determine the processes of a training, from the launcher's environment variables or
// from an NcclEnvironment, and check the policy's numbers. They do not need NCCL; <cupola/nccl.hpp> includes this
// header.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>

#include <cupola/core/error.hpp>
#include <cupola/core/finite.hpp>
#include <cupola/parallel/nccl_all_reduce.hpp>
#include <cupola/processes/nccl_environment.hpp>
#include <cupola/processes/watch/launcher_variables.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

struct NcclLaunch {
    [[nodiscard, gnu::cold]] static std::string launcher() {
        const LaunchedProcess launched = launched_process();
        return launched.number_variable.empty() ? std::string() : launched.description();
    }
    [[nodiscard, gnu::cold]] static int first_gpu(int devices, int gpus) {
        const LaunchedProcess launched = launched_process();
        if (gpus <= devices || launched.local_number <= 0) return 0;
        const std::int64_t first = std::int64_t{devices} * launched.local_number;
        require(first + devices <= gpus, "the environment variable ", launched.local_variable, " is ",
                launched.local_number, ", so this process uses the GPUs ", first, " to ", first + devices - 1,
                ", and it sees ", gpus, " GPUs: start fewer processes per machine, or let each use fewer devices");
        return static_cast<int>(first);
    }
    [[nodiscard, gnu::cold]] static NcclAllReduce as_launched(NcclAllReduce policy) {
        if (const NcclEnvironment* const environment = policy.environment) {
            require(policy.processes == 0 || policy.processes == environment->count(), "an NcclAllReduce of ",
                    policy.processes, " processes has an environment of ", environment->count());
            policy.processes = environment->count();
            policy.process = environment->number();
        } else if (policy.processes == 0) {
            require(policy.process == 0, "the process number ", policy.process, " needs the number of processes");
            const LaunchedProcess launched = launched_process();
            policy.processes = launched.count;
            policy.process = launched.number;
        }
        const bool found = policy.processes == 1 || !policy.id_file.empty() || !policy.address.empty();
        if (!found && std::getenv(NcclAllReduce::id_variable) == nullptr) policy.address = launched_address();
        return policy;
    }
    [[gnu::cold]] static void check(const NcclAllReduce& policy, int devices);
};

inline void NcclLaunch::check(const NcclAllReduce& policy, int devices) {
    if (policy.processes == 0) return check(as_launched(policy), devices);
    constexpr int limit = 1 << 20;
    require(policy.processes >= 1 && policy.processes <= limit, "NcclAllReduce averages over 1 to ", limit,
            " processes, not ", policy.processes);
    require(devices >= 1 && devices <= limit / policy.processes, "NcclAllReduce averages over 1 to ", limit,
            " ranks, not ", policy.processes, policy.processes == 1 ? " process with " : " processes with ", devices,
            devices == 1 ? " device each" : " devices each");
    require(policy.process >= 0 && policy.process < policy.processes, "the process number in a training over ",
            policy.processes, " processes must be 0 to ", policy.processes - 1, ", not ", policy.process);
    const char* const id = std::getenv(NcclAllReduce::id_variable);
    require(
        policy.processes == 1 || !policy.id_file.empty() || !policy.address.empty() || (id != nullptr && *id != '\0'),
        "a training over ", policy.processes,
        " processes must share NCCL's id: set id_file to the same new file in each, or address to the host and a port "
        "of process 0, or set the environment variables MASTER_ADDR and MASTER_PORT, or ",
        NcclAllReduce::id_variable);
    require(policy.id_file.empty() || policy.address.empty(), "NcclAllReduce has the id_file ", policy.id_file,
            " and the address ", policy.address, ": process 0 gives NCCL's id by one of them");
    require(policy.bucket_bytes >= 0, "NcclAllReduce's bucket_bytes must be 0 or more, not ", policy.bucket_bytes);
    require(policy.max_groups >= 1 && policy.max_groups <= 1000, "NcclAllReduce's max_groups must be 1 to 1000, not ",
            policy.max_groups);
    for (const auto& [what, seconds] :
         {std::pair{"start_seconds", policy.start_seconds}, std::pair{"step_seconds", policy.step_seconds},
          std::pair{"heartbeat_seconds", policy.heartbeat_seconds}, std::pair{"abort_seconds", policy.abort_seconds}}) {
        // Infinite waits are not supported.
        require(is_finite(seconds) && seconds > 0 && seconds <= 1e9, "NcclAllReduce's ", what,
                " must be more than 0 s and at most 1e9 s, not ", seconds, " s");
    }
    require(policy.heartbeat_seconds < policy.start_seconds && policy.heartbeat_seconds < policy.step_seconds,
            "a stopped heartbeat must be noticed during a wait: heartbeat_seconds, ", policy.heartbeat_seconds,
            " s, must be less than start_seconds, ", policy.start_seconds, " s, and step_seconds, ",
            policy.step_seconds, " s");
}

}}}  // namespace cupola::CUPOLA_ABI::impl
