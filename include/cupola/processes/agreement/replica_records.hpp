// SPDX-License-Identifier: Apache-2.0
//
// ReplicaRecords: the data that a process sends about its replicas in each step: the hash of their parameters; the
// samples, the losses and the batch statistics of each batch; or the error because of which it left the step. From the
// records of all processes each one computes the same report, the same weights and the same running statistics.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/ops/id_check.hpp>
#include <cupola/ops/loss_report.hpp>
#include <cupola/parallel/replicas/replica_placement.hpp>
#include <cupola/parallel/replicas/status.hpp>
#include <cupola/processes/agreement/process_gather.hpp>
#include <cupola/processes/processes.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The header of each block that processes exchange within a step.
struct StepBlockHeader {
    std::int64_t step = 0;
    /// 1 if the process has left the step; and the message of its error.
    std::int32_t failed = 0;
    char message[500] = {};
};

/// Writes the header of this process's block; `error` is null if it has not failed.
inline void write_block_header(std::byte* block, std::int64_t step, const std::exception_ptr& error) {
    StepBlockHeader header{.step = step, .failed = error ? 1 : 0};
    if (error) {
        std::string_view message = "unknown error";
        try {
            std::rethrow_exception(error);
        } catch (const std::exception& cause) {
            message = cause.what();
            message.copy(header.message, sizeof header.message - 1);
        } catch (...) {
            message.copy(header.message, sizeof header.message - 1);
        }
    }
    std::memcpy(block, &header, sizeof header);
}

/// Throws DeviceError if another process has left the step, and InvalidArgument if one is in another step.
inline void require_all_in_step(const ProcessGather& gather, const Processes& processes, std::int64_t step) {
    for (int p = 0; p < processes.count(); ++p) {
        StepBlockHeader header;
        std::memcpy(&header, gather.of(p), sizeof header);
        if (p == processes.number()) continue;
        require(header.step == step, "process ", processes.number_at_start(p), " makes step ", header.step,
                " where process ", processes.number_at_start(processes.number()), " makes step ", step);
        if (header.failed == 0) continue;
        throw DeviceError(
            text("process ", processes.number_at_start(p), " failed in step ", step, ": ", header.message));
    }
}

/// The hashes of the parameters and of the running statistics with which a process computes a step.
struct ProcessHashes {
    std::uint64_t parameters = 0, statistics = 0;
    /// A device whose parameters differ from those of the first device of the process, or -1.
    std::int64_t other_device = -1;
};

class ReplicaRecords {
public:
    /// `parts`, `losses` and `buffers` are those of StatusLayout.
    [[gnu::cold]] ReplicaRecords(Processes& processes, const ReplicaPlacement& placement, int parts, std::size_t losses,
                                 std::int64_t buffers)
        : placement_(placement),
          parts_(parts),
          reports_(1 + losses),
          id_(sizeof(std::int64_t) + reports_ * sizeof(LossReport)),
          statistics_(id_ + sizeof(IdReport)),
          buffers_(static_cast<std::size_t>(buffers)),
          bytes_((statistics_ + buffers_ * sizeof(float) + 7) / 8 * 8),
          gather_(processes, head + static_cast<std::size_t>(placement.max_replicas_per_process() * parts) * bytes_) {}

    [[nodiscard]] ProcessGather& gather() { return gather_; }

    /// Writes the record of a batch of one of this process's replicas.
    void write(int replica, int part, std::int64_t samples, const BatchResult& result) {
        std::byte* const record = gather_.mine() + place(placement_.process_of(replica), replica, part);
        std::memcpy(record, &samples, sizeof samples);
        if (samples == 0) return;
        std::byte* const reports = record + sizeof samples;
        std::memcpy(reports, result.report, sizeof(LossReport));
        std::memcpy(reports + sizeof(LossReport), result.of_losses, (reports_ - 1) * sizeof(LossReport));
        std::memcpy(record + id_, result.bad_id, sizeof(IdReport));
        if (buffers_ != 0) std::memcpy(record + statistics_, result.statistics, buffers_ * sizeof(float));
    }

    void write(const ProcessHashes& hashes) {
        std::memcpy(gather_.mine() + sizeof(StepBlockHeader), &hashes, sizeof hashes);
    }
    [[nodiscard]] ProcessHashes hashes(int process) const {
        ProcessHashes hashes;
        std::memcpy(&hashes, gather_.of(process) + sizeof(StepBlockHeader), sizeof hashes);
        return hashes;
    }

    // The records that another process wrote. `replica` counts over all processes.

    [[nodiscard]] std::int64_t samples(int replica, int part) const {
        std::int64_t samples = 0;
        std::memcpy(&samples, record_of(replica, part), sizeof samples);
        return samples;
    }
    [[nodiscard]] BatchResult result(int replica, int part) const {
        const std::byte* const record = record_of(replica, part);
        const auto* const report = reinterpret_cast<const LossReport*>(record + sizeof(std::int64_t));
        return {.report = report,
                .of_losses = report + 1,
                .bad_id = reinterpret_cast<const IdReport*>(record + id_),
                .statistics = reinterpret_cast<const float*>(record + statistics_)};
    }

private:
    static constexpr std::size_t head = sizeof(StepBlockHeader) + sizeof(ProcessHashes);

    [[nodiscard]] std::size_t place(int process, int replica, int part) const {
        const int here = replica - placement_.first_replica_of_process(process);
        return head + static_cast<std::size_t>(here * parts_ + part) * bytes_;
    }
    [[nodiscard]] const std::byte* record_of(int replica, int part) const {
        const int process = placement_.process_of(replica);
        return gather_.of(process) + place(process, replica, part);
    }

    ReplicaPlacement placement_;
    int parts_ = 1;
    std::size_t reports_ = 1, id_ = 0, statistics_ = 0, buffers_ = 0, bytes_ = 0;
    ProcessGather gather_;
};

static_assert(sizeof(StepBlockHeader) % 8 == 0 && sizeof(LossReport) % 8 == 0 && sizeof(IdReport) % 8 == 0);

/// Throws ReplicasDiffer unless all processes have the same hashes. The message names the processes that differ from
/// the majority; without a majority it contains the hash of each process.
[[gnu::cold]] inline void require_same_hashes(const std::vector<ProcessHashes>& all, const Processes& processes,
                                              std::int64_t step) {
    const auto name_of = [&](std::size_t p) { return processes.number_at_start(static_cast<int>(p)); };
    for (std::size_t p = 0; p < all.size(); ++p) {
        if (all[p].other_device < 0) continue;
        throw ReplicasDiffer(
            text("in step ", step, " the parameters of device ", all[p].other_device, " of process ", name_of(p),
                 " differ from those of its device 0: a device computed a different result, or its memory has changed"),
            step, static_cast<int>(all[p].other_device));
    }
    const auto require_same = [&](std::string_view what, std::uint64_t ProcessHashes::*hash) {
        const auto equal_to = [&](std::size_t p) { return std::ranges::count(all, all[p].*hash, hash); };
        const auto most = static_cast<std::ptrdiff_t>(all.size());
        std::size_t common = 0;
        while (common < all.size() && 2 * equal_to(common) <= most) ++common;
        const bool has_majority = common < all.size();
        if (has_majority && equal_to(common) == most) return;
        std::string list;
        int others = 0;
        for (std::size_t p = 0; p < all.size(); ++p) {
            if (has_majority && all[p].*hash == all[common].*hash) continue;
            ++others;
            list += text(list.empty() ? "" : ", ", name_of(p));
            if (has_majority) continue;
            char digits[20];
            std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(all[p].*hash));
            list += text(" (hash ", digits, ')');
        }
        const std::string which = text(others == 1 ? "process " : "processes ", list);
        throw ReplicasDiffer(text("in step ", step, " the ", what, " of ", which, " differ",
                                  has_majority ? text(" from those of the other ", equal_to(common)) : std::string(),
                                  ": a process computed a different result, or its memory has changed"),
                             step, 0);
    };
    require_same("parameters", &ProcessHashes::parameters);
    require_same("running statistics", &ProcessHashes::statistics);
}

}}}  // namespace cupola::CUPOLA_ABI::impl
