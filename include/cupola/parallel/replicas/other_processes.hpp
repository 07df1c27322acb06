// SPDX-License-Identifier: Apache-2.0
//
// What a training takes from its other processes, without the type of their engine: OtherReplicas in a step, where the policy
// spans processes, and OtherProcesses between steps. A training of one process has neither.
#pragma once

#include <cstdint>
#include <exception>
#include <span>
#include <string>

#include <cupola/ops/id_check.hpp>
#include <cupola/ops/loss_report.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

class OtherReplicas {
public:
    OtherReplicas() = default;
    OtherReplicas(const OtherReplicas&) = delete;
    OtherReplicas& operator=(const OtherReplicas&) = delete;

    // The results of a batch of another process's replica, in the step whose rows were averaged last.

    [[nodiscard]] virtual const LossReport& report_of(int replica, int part) const = 0;
    [[nodiscard]] virtual const LossReport* reports_of_losses(int replica, int part) const = 0;
    [[nodiscard]] virtual const IdReport& bad_id_of(int replica, int part) const = 0;
    [[nodiscard]] virtual const float* statistics_of(int replica, int part) const = 0;

    /// Completes the sums of all replicas, `size` values each, and the list of those that have written theirs (null for the
    /// others); called on all processes. `error` is this process's, or null. Throws DeviceError if another process has one.
    virtual void exchange_sums(std::int64_t step, const std::exception_ptr& error, double* sums, std::size_t size,
                               std::span<const double*> contributions) = 0;

protected:
    ~OtherReplicas() = default;
};

/// What a process has after a step: the hash of its parameters and that of its running statistics, and a device whose parameters
/// differ from those of its first, or -1.
struct ComparedHashes {
    std::uint64_t parameters = 0, running = 0;
    std::int64_t differs = -1;
};

/// The members are called on all processes, in the same order.
class OtherProcesses {
public:
    OtherProcesses() = default;
    OtherProcesses(const OtherProcesses&) = delete;
    OtherProcesses& operator=(const OtherProcesses&) = delete;

    /// Compares what the processes have after a step: throws ReplicasDiffer unless all have the same, and then `error`, which all
    /// have, if there is one. A collective does so when the step is queued before which all have called this.
    virtual void compare(std::int64_t step, const ComparedHashes& hashes, const std::exception_ptr& error) = 0;
    /// Before a step is queued.
    virtual void begin_step(std::int64_t) {}
    /// What is to be compared is not valid any more.
    virtual void forget() {}
    /// Completes one text per replica.
    virtual void exchange_texts(std::int64_t step, std::span<std::string> of_replicas) = 0;

protected:
    ~OtherProcesses() = default;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
