// SPDX-License-Identifier: Apache-2.0
//
// NcclAllReduce without NCCL, among the devices of one process: a sum is a piece of each stream's work that is done
// when all streams have come to it. See device/cuda.hpp in this folder.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <cupola/core/monotonic_seconds.hpp>
#include <cupola/device/cuda.hpp>
#include <cupola/parallel/nccl_all_reduce.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

class HostGroup {
public:
    HostGroup(const NcclAllReduce& policy, int devices, const std::vector<int>&)
        : policy_(policy), ranks_(std::make_shared<std::vector<Rank>>(static_cast<std::size_t>(devices))) {
        policy.check(devices);
        require(policy.processes == 1, "there is no NCCL here, and so one process, not ", policy.processes);
    }
    void start() {}

    void sum(int device, std::span<float> values, const cudaStream_t& stream, std::int64_t) {
        const std::lock_guard guard(OnHost::lock);
        Rank& mine = (*ranks_)[static_cast<std::size_t>(device)];
        mine.stream = stream.get();
        stream->queue_waiting([ranks = ranks_, failed = failed_, device, values, number = ++mine.queued] {
            Rank& rank = (*ranks)[static_cast<std::size_t>(device)];
            rank.values = values;
            rank.reached = number;
            add(*ranks, number);
            for (Rank& other : *ranks) {
                while (rank.done < number && other.stream != nullptr && other.stream->run_for_another(1) != 0)
                    add(*ranks, number);
            }
            return rank.done >= number || *failed;
        });
    }
    void wait(int device, cudaEvent_t event, std::int64_t step) {
        const double start = monotonic_seconds();
        try {
            while (cudaEventQuery(event) != cudaSuccess) {
                require<DeviceError>(!*failed_ && monotonic_seconds() - start < policy_.step_seconds, "device ", device,
                                     " waits in vain for the sum of step ", step);
                HostStream::pause();
            }
        } catch (...) {
            *failed_ = true;
            throw;
        }
    }
    void break_off(int, std::int64_t, const std::string&) { *failed_ = true; }
    [[nodiscard]] bool failed() const { return *failed_; }
    void finish() {}

private:
    struct Rank {
        HostStream* stream = nullptr;
        std::int64_t queued = 0, reached = 0, done = 0;
        std::span<float> values;
    };
    static void add(std::vector<Rank>& ranks, std::int64_t number) {
        for (const Rank& rank : ranks) {
            if (rank.reached < number || rank.done >= number) return;
        }
        for (std::size_t i = 0; i < ranks[0].values.size(); ++i) {
            float sum = 0;
            for (const Rank& rank : ranks) sum += rank.values[i];
            for (const Rank& rank : ranks) rank.values[i] = sum;
        }
        for (Rank& rank : ranks) rank.done = number;
    }

    NcclAllReduce policy_;
    /// As ncclCommAbort, a failure ends the sums that were queued.
    std::shared_ptr<std::atomic<bool>> failed_ = std::make_shared<std::atomic<bool>>(false);
    std::shared_ptr<std::vector<Rank>> ranks_;
};

template <>
struct GroupOf<NcclAllReduce, Cuda> {
    using Type = HostGroup;
};

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
