// SPDX-License-Identifier: Apache-2.0
//
// Definitions of cupola/processes/agreement/process_peers.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <span>
#include <string>

#include <cupola/processes/agreement/process_checks.hpp>
#include <cupola/processes/agreement/process_gather.hpp>
#include <cupola/processes/agreement/process_peers.hpp>
#include <cupola/processes/agreement/replica_records.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

CUPOLA_DECL void ProcessPeers::exchange_sums(std::int64_t step, const std::exception_ptr& error, double* sums,
                                             std::size_t size, std::span<const double*> contributions) {
    const auto most = static_cast<std::size_t>(placement_.max_replicas_per_process());
    const std::size_t bytes_of_sums = size * sizeof(double), flags = most * sizeof(std::int64_t);
    if (!made_sums_) sums_ = ProcessGather(processes_, sizeof(StepBlockHeader) + flags + most * bytes_of_sums);
    made_sums_ = true;
    const auto first_of = [&](int p) { return static_cast<std::size_t>(placement_.first_replica_of_process(p)); };
    const auto replicas_of = [&](int p) { return static_cast<std::size_t>(placement_.replicas_of_process(p)); };
    const std::size_t mine = first_of(processes_.number()), here = replicas_of(processes_.number());
    write_block_header(sums_.mine(), step, error);
    for (std::size_t i = 0; i < here; ++i) {
        const std::int64_t there = contributions[mine + i] != nullptr ? 1 : 0;
        std::memcpy(sums_.mine() + sizeof(StepBlockHeader) + i * sizeof there, &there, sizeof there);
    }
    std::memcpy(sums_.mine() + sizeof(StepBlockHeader) + flags, sums + mine * size, here * bytes_of_sums);
    sums_.run({"the statistics of the batches", step});
    require_all_in_step(sums_, processes_, step);
    for (int p = 0; p < processes_.count(); ++p) {
        if (p == processes_.number()) continue;
        const std::byte* const from = sums_.of(p) + sizeof(StepBlockHeader);
        for (std::size_t i = 0; i < replicas_of(p); ++i) {
            std::int64_t there = 0;
            std::memcpy(&there, from + i * sizeof there, sizeof there);
            contributions[first_of(p) + i] = there != 0 ? sums + (first_of(p) + i) * size : nullptr;
        }
        std::memcpy(sums + first_of(p) * size, from + flags, replicas_of(p) * bytes_of_sums);
    }
}

CUPOLA_DECL void ProcessPeers::compare(std::int64_t step, const ComparedHashes& hashes,
                                       const std::exception_ptr& error) {
    compare_processes(processes_, step, hashes, error);
}

CUPOLA_DECL void ProcessPeers::exchange_texts(std::int64_t step, std::span<std::string> of_replicas) {
    exchange_texts_of_replicas(processes_, placement_, step, of_replicas);
}

}}}  // namespace cupola::CUPOLA_ABI::impl
