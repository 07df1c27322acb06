// SPDX-License-Identifier: Apache-2.0
//
// OtherProcesses: what a step takes from the other processes of a training, without the type of their engine. A training
// whose policy does not span processes has no such object.
#pragma once

#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <utility>

#include <cupola/ops/id_check.hpp>
#include <cupola/ops/loss_report.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

class OtherProcesses {
public:
    OtherProcesses() = default;
    OtherProcesses(const OtherProcesses&) = delete;
    OtherProcesses& operator=(const OtherProcesses&) = delete;

    // The results of a batch of another process's replica, in the step whose rows were averaged last.

    [[nodiscard]] virtual const LossReport& report_of(int replica, int part) const = 0;
    [[nodiscard]] virtual const LossReport* reports_of_losses(int replica, int part) const = 0;
    [[nodiscard]] virtual const IdReport& bad_id_of(int replica, int part) const = 0;
    [[nodiscard]] virtual const float* statistics_of(int replica, int part) const = 0;

    // The members below are called on all processes, in the same order.

    /// Completes the sums of all replicas, `size` values each, and the list of those that have written theirs (null for the
    /// others). `error` is this process's, or null. Throws DeviceError if another process has one.
    virtual void exchange_sums(std::int64_t step, const std::exception_ptr& error, double* sums, std::size_t size,
                               std::span<const double*> contributions) = 0;
    /// Throws ReplicasDiffer unless all processes have parameters of the same hash, and the same running statistics. `differs`
    /// is a device whose parameters differ from those of the process's first, or -1.
    virtual void require_same_hashes(std::int64_t step, std::uint64_t parameters, std::span<const float> running,
                                     int differs) = 0;
    /// The largest of the processes' values.
    [[nodiscard]] virtual int largest(std::int64_t step, int value) = 0;
    /// Throws InvalidArgument, which names the first difference, unless all processes have the same names and texts.
    virtual void require_same(std::span<const std::pair<std::string, std::string>> settings) = 0;
    /// Completes one text per replica.
    virtual void exchange_texts(std::int64_t step, std::span<std::string> of_replicas) = 0;

protected:
    ~OtherProcesses() = default;
};

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
