// SPDX-License-Identifier: Apache-2.0
//
// The cross-process checks between the steps of a training, made by gathers of any engine.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/parallel/replicas/peers.hpp>
#include <cupola/parallel/replicas/replica_placement.hpp>
#include <cupola/processes/agreement/process_gather.hpp>
#include <cupola/processes/processes.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Peers::compare() by a gather.
[[gnu::cold]] inline void compare_processes(ProcessGroup& processes, std::int64_t step, const ComparedHashes& hashes,
                                            const std::exception_ptr& error) {
    const auto all = gathered(processes, {"the hash of the parameters", step}, hashes);
    for (std::size_t p = 0; p < all.size(); ++p) {
        const int number = processes.number_at_start(static_cast<int>(p));
        if (all[p].differs >= 0)
            throw ReplicasDiffer(
                text("after step ", step, " the parameters of device ", all[p].differs, " of process ", number,
                     " differ from those of its device 0: a device computed a different result"),
                step, static_cast<int>(all[p].differs));
        const bool same = all[p].parameters == all[0].parameters;
        if (same && all[p].running == all[0].running) continue;
        throw ReplicasDiffer(text("after step ", step, " the ", same ? "running statistics" : "parameters",
                                  " of process ", number, " differ from those of process ",
                                  processes.number_at_start(0), ": a process computed a different result"),
                             step, 0);
    }
    if (error != nullptr) std::rethrow_exception(error);
}

/// Peers::exchange_texts() by a gather.
[[gnu::cold]] inline void exchange_texts_of_replicas(ProcessGroup& processes, const ReplicaPlacement& placement,
                                                     std::int64_t step, std::span<std::string> of_replicas) {
    std::string joined;
    for (int r = 0; r < placement.replicas(); ++r) {
        if (placement.is_here(r)) joined += of_replicas[static_cast<std::size_t>(r)] + '\n';
    }
    const std::vector<std::string> all = gathered_texts(processes, {"the search for what is not finite", step}, joined);
    for (int r = 0; r < placement.replicas(); ++r) {
        const int process = placement.process_of(r);
        std::string_view rest = all[static_cast<std::size_t>(process)];
        for (int i = placement.first_replica_of_process(process); i < r; ++i)
            rest.remove_prefix(std::min(rest.size(), rest.find('\n') + 1));
        of_replicas[static_cast<std::size_t>(r)] = std::string(rest.substr(0, rest.find('\n')));
    }
}

}}}  // namespace cupola::CUPOLA_ABI::impl
