// SPDX-License-Identifier: Apache-2.0
//
// ProcessPeers: the other processes of a training whose policy spans processes. In each step they exchange the records
// of their replicas and, with synchronised batch normalisation, the sums of the statistics.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <span>
#include <string>

#include <cupola/parallel/replicas/peers.hpp>
#include <cupola/parallel/replicas/replica_placement.hpp>
#include <cupola/processes/agreement/process_checks.hpp>
#include <cupola/processes/agreement/process_gather.hpp>
#include <cupola/processes/agreement/replica_records.hpp>
#include <cupola/processes/processes.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

class ProcessPeers final : public Peers {
public:
    /// `processes` and `placement` must outlive the object; the other arguments are those of StatusLayout.
    [[gnu::cold]] ProcessPeers(Processes& processes, const ReplicaPlacement& placement, int parts, std::size_t losses,
                               std::int64_t buffers)
        : processes_(processes), placement_(placement), records_(processes, placement, parts, losses, buffers) {}

    [[nodiscard]] ReplicaRecords& records() { return records_; }

    [[nodiscard]] bool any() const override { return true; }
    [[nodiscard]] BatchResult result_of(std::int64_t, int replica, int part) override {
        return records_.result(replica, part);
    }
    [[nodiscard]] bool exchanges_sums() const override { return true; }
    void exchange_sums(std::int64_t step, const std::exception_ptr& error, double* sums, std::size_t size,
                       std::span<const double*> contributions) override;
    [[gnu::cold]] void compare(std::int64_t step, const ComparedHashes& hashes,
                               const std::exception_ptr& error) override {
        compare_processes(processes_, step, hashes, error);
    }
    [[gnu::cold]] void exchange_texts(std::int64_t step, std::span<std::string> of_replicas) override {
        exchange_texts_of_replicas(processes_, placement_, step, of_replicas);
    }

private:
    Processes& processes_;
    const ReplicaPlacement& placement_;
    ReplicaRecords records_;
    ProcessGather sums_;
    bool made_sums_ = false;
};

inline void ProcessPeers::exchange_sums(std::int64_t step, const std::exception_ptr& error, double* sums,
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

}}}  // namespace cupola::CUPOLA_ABI::impl
