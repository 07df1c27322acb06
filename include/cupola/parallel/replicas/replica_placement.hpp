// SPDX-License-Identifier: Apache-2.0
//
// ReplicaPlacement: which process and which of its devices has which replicas, and which replicas have parameters of
// their own. Replicas are numbered over all processes, and placed in contiguous blocks, in order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <cupola/core/abi.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

class ReplicaPlacement {
public:
    /// `own_parameters`: whether each replica, and not each device, has its own parameters. This process is number
    /// `process` of `processes`, of which each has at least one replica and none more than one beyond another's.
    ReplicaPlacement(int replicas, int devices, bool own_parameters, int processes = 1, int process = 0)
        : replicas_(replicas),
          devices_(devices),
          processes_(processes),
          process_(process),
          own_parameters_(own_parameters) {}

    /// The replicas of all processes.
    [[nodiscard]] int replicas() const { return replicas_; }
    [[nodiscard]] int process_count() const { return processes_; }
    [[nodiscard]] int process_number() const { return process_; }
    /// The first replica of a process; for the number of processes, the number of replicas.
    [[nodiscard]] int first_replica_of_process(int process) const {
        return static_cast<int>(static_cast<std::int64_t>(replicas_) * process / processes_);
    }
    [[nodiscard]] int replicas_of_process(int process) const {
        return first_replica_of_process(process + 1) - first_replica_of_process(process);
    }
    /// The process that has a replica: the last whose first replica is not behind it.
    [[nodiscard]] int process_of(int replica) const {
        return static_cast<int>(((static_cast<std::int64_t>(replica) + 1) * processes_ - 1) / replicas_);
    }
    /// The replicas of this process, and the largest number of a process.
    [[nodiscard]] int replicas_here() const { return replicas_of_process(process_); }
    [[nodiscard]] int max_replicas_per_process() const { return (replicas_ + processes_ - 1) / processes_; }
    /// The devices of this process.
    [[nodiscard]] int device_count() const { return devices_; }
    [[nodiscard]] bool is_here(int replica) const {
        return replica >= first_replica(0) && replica < first_replica(devices_);
    }

    /// The first replica of a device; for device_count(), the end of this process's replicas.
    [[nodiscard]] int first_replica(int device) const { return first_of(process_, device); }
    [[nodiscard]] int replicas_of(int device) const { return first_replica(device + 1) - first_replica(device); }
    /// The largest number of replicas of a device.
    [[nodiscard]] int max_replicas_per_device() const { return (replicas_here() + devices_ - 1) / devices_; }
    /// The device of a replica, in its process: every process has the same number of devices.
    [[nodiscard]] int device_of(int replica) const {
        const int process = process_of(replica);
        int device = 0;
        while (first_of(process, device + 1) <= replica) ++device;
        return device;
    }
    /// The number of a replica among those of its device.
    [[nodiscard]] int local(int replica) const { return replica - first_of(process_of(replica), device_of(replica)); }
    /// The number of a replica's batch among those of its device in a step.
    [[nodiscard]] std::size_t batch_number(int replica, int part) const {
        const int process = process_of(replica), device = device_of(replica);
        const int on_device = first_of(process, device + 1) - first_of(process, device);
        return static_cast<std::size_t>(part * on_device + local(replica));
    }

    // The copies of the parameters, of their averages and of the optimiser's state. Those of a device are numbered from
    // 0.

    [[nodiscard]] int copies(int device) const { return own_parameters_ ? replicas_of(device) : 1; }
    /// The largest number of copies on a device.
    [[nodiscard]] int max_copies_per_device() const { return own_parameters_ ? max_replicas_per_device() : 1; }
    /// The copy that a replica uses, on its device.
    [[nodiscard]] int copy_of(int replica) const { return own_parameters_ ? local(replica) : 0; }
    /// The replica whose state a copy is; 0 where all copies are equal.
    [[nodiscard]] int replica_of_copy(int device, int copy) const {
        return own_parameters_ ? first_replica(device) + copy : 0;
    }

    struct ColumnRange {
        std::int64_t begin, end;
    };
    /// The part of `all` columns of an average that a device computes. Columns are divided between processes and
    /// devices in whole cache lines, so that no two devices write the same line.
    [[nodiscard]] ColumnRange columns_of(int device, std::int64_t all) const {
        const std::int64_t first = edge_of(process_, all), units = edge_of(process_ + 1, all) - first;
        const auto edge = [&](int d) { return std::min(all, (first + units * d / devices_) * unit); };
        return {edge(device), edge(device + 1)};
    }
    /// The part of some contiguous columns.
    [[nodiscard]] ColumnRange columns_of(int device, ColumnRange columns) const {
        const auto [begin, end] = columns_of(device, columns.end - columns.begin);
        return {columns.begin + begin, columns.begin + end};
    }
    /// The part that the devices of a process compute.
    [[nodiscard]] ColumnRange columns_of_process(int process, std::int64_t all) const {
        return {std::min(all, edge_of(process, all) * unit), std::min(all, edge_of(process + 1, all) * unit)};
    }
    [[nodiscard]] ColumnRange columns_of_process(int process, ColumnRange columns) const {
        const auto [begin, end] = columns_of_process(process, columns.end - columns.begin);
        return {columns.begin + begin, columns.begin + end};
    }

private:
    /// The first replica of a device of a process; for device_count(), the end of the process's replicas.
    [[nodiscard]] int first_of(int process, int device) const {
        return first_replica_of_process(process) +
               static_cast<int>(static_cast<std::int64_t>(replicas_of_process(process)) * device / devices_);
    }
    static constexpr std::int64_t unit = 1024;
    /// The first column of a process, in units.
    [[nodiscard]] std::int64_t edge_of(int process, std::int64_t all) const {
        return (all + unit - 1) / unit * process / processes_;
    }

    int replicas_, devices_, processes_, process_;
    bool own_parameters_;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
