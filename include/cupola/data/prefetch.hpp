// SPDX-License-Identifier: Apache-2.0
//
// A bounded queue of whole batches: worker threads prepare them ahead of the replicas that train on them.
//
// The queue holds two batches per replica: the one it trains on and the next. Workers fill the oldest step first. A
// batch is a pure function of its step and replica, so it is the same for any number of workers; without workers, the
// call that requests a batch prepares it, with the threads of the calling device. After construction nothing is
// allocated.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/thread.hpp>
#include <cupola/data/batches.hpp>
#include <cupola/data/impl/batch_buffer.hpp>
#include <cupola/device/processors.hpp>
#include <cupola/tensor/batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

struct PrefetchOptions {
    /// Threads that prepare batches. They need processors: where the devices use all of them, choose 0.
    int workers = 0;
    /// The replicas whose batches are requested, [first_replica, first_replica + replicas): those of this process, if
    /// other processes have the rest. With 0 replicas, all from first_replica on.
    int first_replica = 0, replicas = 0;
};

/// The batches of `Source`, prepared ahead. Replicas call from their own threads, each for one step after another,
/// beginning at any step.
template <BatchSource Source>
class Prefetch {
public:
    /// Throws InvalidArgument for options that are out of range, and Error if a thread cannot be started.
    [[gnu::cold]] explicit Prefetch(Source source,
                                    PrefetchOptions options = {})  // misspelt? PrefetchOptions{...} names it
        : source_(std::move(source)), batch_size_(source_.batch_size()), replicas_(source_.replicas()) {
        require(options.workers >= 0 && options.workers <= max_workers, "the number of prefetch workers must be 0 to ",
                max_workers, ", not ", options.workers);
        first_ = options.first_replica;
        const int here = options.replicas == 0 ? replicas_ - first_ : options.replicas;
        require(first_ >= 0 && here >= 1 && here <= replicas_ - first_, "the replicas [", first_, ", ", first_ + here,
                ") are not among those of the batches, ", replicas_);
        const int ahead = options.workers == 0 ? 1 : 2;
        queues_.resize(static_cast<std::size_t>(here));
        for (Queue& queue : queues_) {
            for (int i = 0; i < ahead; ++i) queue.places.emplace_back(batch_size_, source_.columns());
        }
        try {
            for (int i = 0; i < options.workers; ++i) {
                const impl::ThreadPurpose purpose{"the preparation of batches", i, options.workers};
                workers_.emplace_back(purpose, [this] { work(); });
            }
        } catch (...) {  // no further threads: end those that run first
            stop();
            throw;
        }
    }
    Prefetch(const Prefetch&) = delete;
    Prefetch& operator=(const Prefetch&) = delete;
    /// Waits only for the few samples that each worker is preparing.
    ~Prefetch() { stop(); }

    [[nodiscard]] const Source& source() const { return source_; }
    [[nodiscard]] std::int64_t batch_size() const { return batch_size_; }
    [[nodiscard]] int replicas() const { return replicas_; }
    [[nodiscard]] std::int64_t samples_per_epoch() const
        requires requires(const Source& source) { source.samples_per_epoch(); }
    {
        return source_.samples_per_epoch();
    }
    [[nodiscard]] Columns columns() const { return source_.columns(); }
    [[nodiscard]] Shape sample_shape() const { return input_shape_of(source_.columns()); }
    [[nodiscard]] int workers() const { return static_cast<int>(workers_.size()); }

    /// The batch of a step and replica; valid until this replica requests its next step. Throws the exception of the
    /// preparation, and InvalidArgument for a step that is neither this replica's current nor its next.
    template <class Context>
    BatchView operator()(std::int64_t step, int replica, Context& context) {
        require(replica >= 0 && replica < replicas_, "replica ", replica,
                " is out of range: the number of replicas is ", replicas_);
        const int last = first_ + static_cast<int>(queues_.size());
        require(replica >= first_ && replica < last, "replica ", replica, " is none of those of this process, [",
                first_, ", ", last, ")");
        Queue& queue = queues_[static_cast<std::size_t>(replica - first_)];
        std::unique_lock lock(mutex_);
        if (!started_) start_at(step);
        require((queue.holds && step == queue.asked) || step == queue.asked + 1, "replica ", replica,
                " requested the batch of step ", step, "; its next one is step ", queue.asked + 1,
                " (another training, or one that was set back, needs a Prefetch of its own)");
        Slot& slot = queue.slot_of(step);
        if (step != queue.asked) {
            if (queue.holds) queue.slot_of(queue.asked).state = State::empty;
            queue.holds = true;
            queue.asked = step;
            if (!workers_.empty()) space_.notify_all();
        }
        if (workers_.empty() && slot.state == State::empty) {
            lock.unlock();
            impl::fill_with_team(context, batch_size_, [&](std::int64_t begin, std::int64_t end) {
                source_.fill(step, replica, begin, end, slot.buffer.span());
            });
            slot.step = step;
            slot.state = State::full;
        } else {
            ready_.wait(lock, [&] { return slot.state == State::full && slot.step == step; });
            if (slot.error) std::rethrow_exception(slot.error);
        }
        return slot.buffer.view(batch_size_);
    }

private:
    static constexpr int max_workers = 1024;
    enum class State { empty, filling, full };
    struct Slot {
        Slot(std::int64_t batch_size, const Columns& columns) : buffer(batch_size, columns) {}
        impl::BatchBuffer buffer;
        State state = State::empty;
        std::int64_t step = -1;
        std::exception_ptr error;
    };
    /// One replica's batches: the one it holds, and the next.
    struct Queue {
        std::vector<Slot> places;
        bool holds = false;                 ///< whether it has requested a step yet
        std::int64_t asked = -1, next = 0;  ///< the last step that it requested; the first that no worker has taken
        Slot& slot_of(std::int64_t step) { return places[static_cast<std::size_t>(step + 1) % places.size()]; }
    };

    void start_at(std::int64_t step) {
        require(step >= 0, "a step must be at least 0, not ", step);
        started_ = true;
        for (Queue& queue : queues_) {
            queue.asked = step - 1;
            queue.next = step;
        }
        space_.notify_all();
    }

    /// The queue whose next batch is the oldest of those that have room; null if none has.
    [[nodiscard]] Queue* queue_with_room() {
        Queue* best = nullptr;
        if (!started_) return best;
        for (Queue& queue : queues_) {
            if (queue.slot_of(queue.next).state != State::empty) continue;
            if (best == nullptr || queue.next < best->next) best = &queue;
        }
        return best;
    }

    void work() {
        impl::leave_place();
        std::unique_lock lock(mutex_);
        while (true) {
            Queue* room = nullptr;
            space_.wait(lock, [&] { return stopping_ || (room = queue_with_room()) != nullptr; });
            if (stopping_) return;
            Queue& queue = *room;
            const int replica = first_ + static_cast<int>(room - queues_.data());
            const std::int64_t step = queue.next++;
            Slot& slot = queue.slot_of(step);
            slot.state = State::filling;
            slot.step = step;
            lock.unlock();
            std::exception_ptr error = fill(step, replica, slot.buffer);
            lock.lock();
            slot.error = std::move(error);
            slot.state = State::full;
            ready_.notify_all();
        }
    }

    [[nodiscard]] std::exception_ptr fill(std::int64_t step, int replica, const impl::BatchBuffer& buffer) const {
        try {
            for (std::int64_t begin = 0; begin < batch_size_ && !stopping_; begin += impl::samples_per_piece) {
                const std::int64_t end = std::min(batch_size_, begin + impl::samples_per_piece);
                source_.fill(step, replica, begin, end, buffer.span());
            }
        } catch (...) {
            return std::current_exception();
        }
        return nullptr;
    }

    void stop() {
        {
            const std::scoped_lock lock(mutex_);
            stopping_ = true;
        }
        space_.notify_all();
        workers_.clear();  // joins
    }

    Source source_;
    std::int64_t batch_size_;
    int replicas_, first_ = 0;
    std::vector<Queue> queues_;
    std::mutex mutex_;
    std::condition_variable space_, ready_;
    bool started_ = false;
    std::atomic<bool> stopping_ = false;
    std::vector<impl::Thread> workers_;
};

}}  // namespace cupola::CUPOLA_ABI
