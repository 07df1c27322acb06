// SPDX-License-Identifier: Apache-2.0
//
// ProcessPeers: the other processes of a training whose policy spans processes. In each step they exchange the records
// of their replicas and, with synchronised batch normalisation, the sums of the statistics.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>

#include <cupola/parallel/replicas/peers.hpp>
#include <cupola/parallel/replicas/replica_placement.hpp>
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
    void compare(std::int64_t step, const ComparedHashes& hashes, const std::exception_ptr& error) override;
    void gather(const ExchangeName& name, std::byte* blocks, std::size_t bytes) override {
        processes_.gather(name, blocks, bytes);
    }
    void exchange_texts(std::int64_t step, std::span<std::string> of_replicas) override;

private:
    Processes& processes_;
    const ReplicaPlacement& placement_;
    ReplicaRecords records_;
    ProcessGather sums_;
    bool made_sums_ = false;
};

}}}  // namespace cupola::CUPOLA_ABI::impl

#ifdef CUPOLA_DECL
#include <cupola/processes/agreement/process_peers.ipp>
#endif
