// SPDX-License-Identifier: Apache-2.0
//
// Delayed: a device that runs `Host`'s operations later: three steps may be in flight, and queued work runs when its
// thread waits. This file contains all that a device needs for a training in addition to its operations.
#pragma once

#include <atomic>
#include <deque>
#include <thread>

#include <cupola/data/impl/batch_buffer.hpp>
#include <cupola/host.hpp>
#include <cupola/parallel/replicas/status.hpp>

#include "../standard.hpp"

class DelayedQueue;
struct Delayed : cupola::Host {
    static constexpr std::string_view name = "Delayed";
    static constexpr int max_steps_in_flight = 3;
    using Queue = DelayedQueue;
};

/// Delays the results of `Host`'s queue.
class DelayedQueue : public cupola::HostQueue {
public:
    DelayedQueue(cupola::HostContext& context, const cupola::QueueSizes& sizes)
        : HostQueue(context, sizes),
          sizes_(sizes),
          columns_(*sizes.columns),
          landed_(3 * sizes.status_bytes, "landed") {
        for (int r = 0; r < sizes.replicas; ++r) batches_.emplace_back(sizes_.batch_size, columns_);
    }
    std::byte* landed(std::int64_t step) { return landed_.data() + slot(step) * sizes_.status_bytes; }
    void land(std::int64_t step) {
        queue([this, step] { std::memcpy(landed(step), status(), sizes_.status_bytes); });
        finished_[slot(step)] = queued_;
    }
    bool finished(std::int64_t step) { return done(finished_[slot(step)]); }
    void mark() { mark_ = queued_; }
    bool reached() { return done(mark_); }
    cupola::BatchView take(int replica, const cupola::BatchView& batch) {
        const auto r = static_cast<std::size_t>(replica);
        queue([this, batch, r, healthy = &cupola::impl::step_status(status())->healthy] {
            if (*healthy == 0) return;
            for (std::size_t c = 0; c < columns_.size(); ++c) {
                const cupola::ColumnSpec& column = columns_[c];
                const std::size_t from = batch.columns().place_of(column.name);
                std::memcpy(batches_[r].span().data(c), batch.data(from),
                            static_cast<std::size_t>(batch.size) * column.bytes());
            }
        });
        return batches_[r].view(batch.size);
    }
    void write(auto* to, const auto& value) {
        queue([to, value] { *to = value; });
    }
    /// Work that other work queues is a part of it, as on a stream that runs in order.
    void queue(std::function<void()> work) {
        if (runs_) return work();
        work_.push_back(std::move(work));
        ++queued_;
    }
    void queue(Recording&, bool, std::function<void()> work) { queue(std::move(work)); }
    void synchronize() { (void)done(queued_); }

private:
    static std::size_t slot(std::int64_t step) { return static_cast<std::size_t>(step) % 3; }
    /// Runs the work that was queued before, if the calling thread is that of this queue.
    bool done(std::int64_t count) {
        for (; std::this_thread::get_id() == own_ && done_ < count; ++done_) {
            const std::function<void()> work = std::move(work_.front());
            work_.pop_front();
            runs_ = true;
            work();
            runs_ = false;
        }
        return done_ >= count;
    }
    cupola::QueueSizes sizes_;
    cupola::Columns columns_;
    cupola::HostArena landed_;
    std::vector<cupola::impl::BatchBuffer> batches_;
    std::deque<std::function<void()>> work_;
    std::array<std::int64_t, 3> finished_{};
    std::int64_t queued_ = 0, mark_ = 0;
    std::atomic<std::int64_t> done_ = 0;
    /// Whether work runs, which does not throw.
    bool runs_ = false;
    std::thread::id own_ = std::this_thread::get_id();
};
static_assert(cupola::QueueingDevice<Delayed>);
