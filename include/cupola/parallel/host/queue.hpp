// SPDX-License-Identifier: Apache-2.0
//
// The queue of `Host`: work is complete when the call that queues it returns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <cupola/core/function_ref.hpp>
#include <cupola/device/host.hpp>
#include <cupola/device/queue.hpp>
#include <cupola/tensor/batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

class HostQueue {
public:
    /// Empty: work that is queued in every step is not recorded.
    struct Recording {
        [[nodiscard]] std::string refused() const { return {}; }
    };

    HostQueue(HostContext&, const QueueSizes& sizes)
        : status_(sizes.status_bytes * static_cast<std::size_t>(1 + sizes.landed_steps), "the status of the steps"),
          landed_steps_(sizes.landed_steps) {}

    /// The memory to which a step writes its report and from which the host reads it.
    [[nodiscard]] std::byte* status() { return status_.data(); }
    /// The same or, if several steps are in flight, the copy of the step, which the caller that queues the steps makes.
    [[nodiscard]] std::byte* landed(std::int64_t step) {
        if (landed_steps_ == 0) return status_.data();
        const std::size_t bytes = status_.size() / static_cast<std::size_t>(1 + landed_steps_);
        return status_.data() + bytes * static_cast<std::size_t>(1 + step % landed_steps_);
    }
    void land(std::int64_t) {}
    [[nodiscard]] bool finished(std::int64_t) const { return true; }
    void mark() {}
    [[nodiscard]] bool reached() const { return true; }
    /// From now on `on_bucket` is called by mark_bucket(); it must outlive the queue's work.
    void call_on_bucket(FunctionRef<void(std::size_t bucket)> on_bucket) { on_bucket_ = on_bucket; }
    void mark_bucket(std::size_t bucket) {
        if (on_bucket_) on_bucket_(bucket);
    }

    /// Returns the batch itself, which is read in place.
    [[nodiscard]] BatchView take(int, const BatchView& batch) const { return batch; }
    [[nodiscard]] BatchView bring(const BatchView& batch) const { return batch; }
    template <class V>
    void write(V* to, const V& value) {
        *to = value;
    }

    template <class Work>
    void queue(Work&& work) {
        work();
    }
    template <class Work>
    void queue(Recording&, bool, Work&& work) {
        work();
    }
    /// The update's constants are passed as arguments of its calls.
    template <class Write>
    void set_constants(std::int64_t, const ConstantsVersions&, Write&&) {}
    /// `healthy` is evaluated when the work runs.
    template <class Work>
    static void update(const std::int32_t* healthy, Work&& work) {
        if (*healthy != 0) work();
    }

    template <class V>
    [[nodiscard]] static std::span<const V> on_host(HostContext&, const V* from, std::size_t count, std::vector<V>&) {
        return {from, count};
    }
    void synchronize() {}

private:
    HostArena status_;
    std::int64_t landed_steps_;
    FunctionRef<void(std::size_t)> on_bucket_{};
};

}}  // namespace cupola::CUPOLA_ABI
