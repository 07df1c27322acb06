// SPDX-License-Identifier: Apache-2.0
//
// CommonCentre: what the replicas of an asynchronous training have in common where they are divided between processes,
// in memory that all of these read and write: the centre and its moving averages, the turns, for each piece of the
// centre the ticket that passes it next, the results of the batches of the steps in flight, and the first error.
//
// Each process queues the same steps and computes the batches whose numbers are those of its replicas. Its own copy of
// the centre is that between two jobs. All begin a job together, after which process 0 has written the centre; one
// ends it when the batches of all are complete.
//
// A process that fails tells the others by a counter of failures, and goes on as they do when they find it: each gives
// up its steps and returns to the state of the last check. They meet again where the next job begins, or where they
// restore a state. One that fails once more before is a failure of its own, which ends that meeting.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <mutex>
#include <span>
#include <string_view>

#include <cupola/core/error.hpp>
#include <cupola/core/function_ref.hpp>
#include <cupola/core/process_number.hpp>
#include <cupola/ops/id_check.hpp>
#include <cupola/ops/loss_report.hpp>
#include <cupola/parallel/kinds/asynchronous_processes.hpp>
#include <cupola/parallel/kinds/impl/shared_event.hpp>
#include <cupola/parallel/replicas/peers.hpp>
#include <cupola/parallel/replicas/replica_placement.hpp>
#include <cupola/parallel/replicas/status.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

class CommonCentre {
public:
    struct Sizes {
        /// Those of a gradient, and those of a copy of the parameters.
        std::int64_t elements = 0, all_elements = 0;
        bool averages = false;
        std::size_t pieces = 0;
        /// The steps in flight, and the batches of a replica in one.
        std::int64_t steps = 1;
        int parts = 1;
        /// Those of StatusLayout.
        std::size_t losses = 0, regularized = 0, buffers = 0;
    };
    /// The numbers of turns, tickets and exchanges so far.
    struct Turns {
        std::int64_t turns = 0, tickets = 0, exchanges = 0;
    };
    /// A batch that is complete: the replica that has computed it, its turn, and how stale that replica was.
    struct Completed {
        std::int64_t replica = 0, turn = 0, staleness = -1;
    };

    /// `processes` and `placement` must outlive the object.
    [[gnu::cold]] CommonCentre(AsynchronousProcesses& processes, const ReplicaPlacement& placement, const Sizes& sizes);

    /// The size of the memory, which process 0 allocates.
    [[nodiscard]] std::size_t bytes() const { return bytes_; }
    [[nodiscard]] float* centre() const { return reinterpret_cast<float*>(memory_ + centre_); }
    [[nodiscard]] float* averages() const { return reinterpret_cast<float*>(memory_ + averages_); }

    // On the thread that uses the training. Those that wait return false if a process has failed.

    /// Where this process has no steps in flight, and all restore the same state: forgets all failures. Returns when
    /// all processes have called it.
    void restart(const ExchangeName& name) { static_cast<void>(restart(name, false)); }
    /// Begins a job, which no process does before all have called this. Process 0 then calls `fill`, which writes the
    /// centre. Throws InvalidArgument if a process begins at another step, or restores a state.
    [[nodiscard]] bool begin(std::int64_t step, FunctionRef<void()> fill);
    /// For `fill`: there are no steps before `step`, of which this is the number of turns.
    void clear(std::int64_t step, std::int64_t turns);
    /// Returns when all processes have called it.
    [[nodiscard]] bool meet(const ExchangeName& name);
    /// The same before all restore a state and after they have queued the steps before `step`, also after a failure.
    /// Throws InvalidArgument if a process begins a job.
    [[nodiscard]] bool meet_to_restore(std::int64_t step) { return meet_again({restore_name, step}, -1 - step); }
    /// Returns when all batches of a step are complete. Throws InvalidArgument if a process has not queued it and
    /// restores a state.
    [[nodiscard]] bool wait_for_step(std::int64_t step);
    /// Returns when every process has made the report of the step whose place in memory `step` takes.
    /// Throws InvalidArgument if a process restores a state before `step`.
    [[nodiscard]] bool wait_for_place(std::int64_t step);
    void set_reported(std::int64_t step) { set(reported_, step); }

    /// Whether a process has failed since give_up().
    [[nodiscard]] bool has_failed() const {
        return head().failures.load(std::memory_order_acquire) != given_up_.load(std::memory_order_relaxed);
    }
    /// The number of failures for which steps were given up.
    [[nodiscard]] std::int64_t given_up() const { return given_up_.load(std::memory_order_relaxed); }
    /// The steps in flight are given up: returns the error of the process that has failed.
    [[gnu::cold]] std::exception_ptr give_up();

    // Of a step that is complete.

    [[nodiscard]] Completed completed(std::int64_t step, int number) const { return record(step, number).batch; }
    [[nodiscard]] std::int64_t samples(std::int64_t step, int number, int part) const {
        std::int64_t samples = 0;
        std::memcpy(&samples, result_at(step, number, part), sizeof samples);
        return samples;
    }
    [[nodiscard]] BatchResult result(std::int64_t step, int number, int part) const {
        const std::byte* const at = result_at(step, number, part) + sizeof(std::int64_t);
        const auto* const report = reinterpret_cast<const LossReport*>(at);
        const std::byte* const id = at + (1 + sizes_.losses) * sizeof(LossReport);
        return {.report = report,
                .of_losses = report + 1,
                .bad_id = reinterpret_cast<const IdReport*>(id),
                .statistics = reinterpret_cast<const float*>(id + sizeof(IdReport))};
    }

    // On any thread.

    /// Tells the other processes of an error, unless another one has failed in the same steps.
    [[gnu::cold]] void fail(const std::exception_ptr& error);
    /// Wakes all that wait, in each process.
    [[gnu::cold]] void wake();

    // On the threads of the devices.

    /// Calls `draw` with the turns so far, which no other thread draws from.
    void draw(FunctionRef<void(Turns&)> draw) {
        lock(head().turns_lock, draw_name);
        const std::lock_guard held(head().turns_lock, std::adopt_lock);
        draw(head().turns);
    }
    /// Calls `update`, which updates the moving averages outside of an order.
    void update_averages(FunctionRef<void()> update) {
        lock(head().averages_lock, exchange_name);
        const std::lock_guard held(head().averages_lock, std::adopt_lock);
        update();
    }
    /// Waits until a ticket may pass a piece of the centre, or `is_stopped()`; false if a process has failed.
    [[nodiscard]] bool wait_for_piece(std::size_t piece, std::int64_t ticket, std::int64_t step,
                                      FunctionRef<bool()> is_stopped) {
        const std::atomic<std::int64_t>& passed = word(passed_, piece).value;
        return wait(word(passed_, piece).event, {exchange_name, step}, [&] {
            if (passed.load(std::memory_order_acquire) == ticket || is_stopped()) return true;
            require_queued(step);
            return false;
        });
    }
    void pass_piece(std::size_t piece, std::int64_t ticket) {
        word(passed_, piece).value.store(ticket + 1, std::memory_order_release);
        word(passed_, piece).event.notify();
    }
    /// The sums of squares of the regularised parameters, which batch 0 writes before it is complete.
    [[nodiscard]] double* regularization(std::int64_t step) const {
        return reinterpret_cast<double*>(memory_ + regularization_ + slot_of(step) * sizes_.regularized * 8);
    }
    void write(std::int64_t step, int number, int part, std::int64_t samples, const BatchResult& result);
    /// The last of a batch.
    void complete(std::int64_t step, int number, const Completed& batch);

private:
    static_assert(std::atomic<std::int64_t>::is_always_lock_free, "a lock would be of one process alone");
    struct Head {
        /// The failures so far, how many of them are forgotten, how often all have restarted, and have met since. The
        /// first changes with the lock of failures held, the others as well while all wait for each other.
        std::atomic<std::int64_t> failures, forgotten, restarts, meetings;
        SharedLock failures_lock, turns_lock, averages_lock;
        /// What processes wait for that is no piece of the centre.
        SharedEvent progress;
        std::int32_t failed;
        Turns turns;
        std::byte error[AsynchronousProcesses::error_bytes];
    };
    static constexpr std::size_t line = 64;
    /// On a cache line of its own, where the memory begins with one. The event is that of a piece.
    struct Word {
        std::atomic<std::int64_t> value;
        SharedEvent event;
        std::byte rest[line - sizeof(std::int64_t) - sizeof(SharedEvent)];
    };
    static_assert(sizeof(Word) == line);
    struct Record {
        /// The step of which this batch is complete.
        std::atomic<std::int64_t> step;
        Completed batch;
    };
    static constexpr std::string_view exchange_name = "the exchange with the centre", draw_name = "a turn of a replica",
                                      failure_name = "the error of another process",
                                      restore_name = "the state of the training";

    [[nodiscard]] Head& head() const { return *reinterpret_cast<Head*>(memory_); }
    [[nodiscard]] Word& word(std::size_t list, std::size_t i) const {
        return *(reinterpret_cast<Word*>(memory_ + list) + i);
    }
    /// Sets this process's word of a list.
    void set(std::size_t list, std::int64_t value) {
        word(list, process()).value.store(value, std::memory_order_release);
        head().progress.notify();
    }
    [[nodiscard]] std::size_t process() const { return static_cast<std::size_t>(placement_.process_number()); }
    [[nodiscard]] std::size_t process_count() const { return static_cast<std::size_t>(placement_.process_count()); }
    [[nodiscard]] std::size_t slot_of(std::int64_t step) const { return static_cast<std::size_t>(step % sizes_.steps); }
    [[nodiscard]] std::byte* record_at(std::int64_t step, int number) const {
        return memory_ + records_ +
               (slot_of(step) * static_cast<std::size_t>(placement_.replicas()) + static_cast<std::size_t>(number)) *
                   record_bytes_;
    }
    [[nodiscard]] Record& record(std::int64_t step, int number) const {
        return *reinterpret_cast<Record*>(record_at(step, number));
    }
    [[nodiscard]] std::byte* result_at(std::int64_t step, int number, int part) const {
        return record_at(step, number) + sizeof(Record) + static_cast<std::size_t>(part) * result_bytes_;
    }
    /// Whether all processes' words of a list are at least `value`.
    [[nodiscard]] bool all_at_least(std::size_t list, std::int64_t value) const {
        for (std::size_t p = 0; p < process_count(); ++p) {
            if (word(list, p).value.load(std::memory_order_acquire) < value) return false;
        }
        return true;
    }
    /// Returns when `is_done()`, which is looked at when the event is notified.
    void sleep_until(SharedEvent& event, const ExchangeName& name, FunctionRef<bool()> is_done);
    /// The same, also when a process has failed: then false.
    [[nodiscard]] bool wait(SharedEvent& event, const ExchangeName& name, FunctionRef<bool()> is_done);
    void lock(SharedLock& of, std::string_view name) {
        sleep_until(of.released(), {name}, [&] { return of.try_lock(); });
    }
    /// Throws InvalidArgument if a process restores a state before a step, so that it never queues that.
    void require_queued(std::int64_t step) const {
        for (std::size_t p = 0; p < process_count(); ++p) {
            const std::int64_t purpose = word(purposes_, p).value.load(std::memory_order_acquire);
            if (purpose < 0 && -1 - purpose <= step) [[unlikely]]
                fail_apart(purpose, p, step, process());
        }
    }
    /// What two processes do that should do the same.
    [[noreturn, gnu::cold]] static void fail_apart(std::int64_t purpose, std::size_t process, std::int64_t of_other,
                                                   std::size_t other);
    /// Meets the others, also after a failure: all to begin with step `purpose`, or to restore a state before step n,
    /// as -1 - n.
    [[nodiscard]] bool meet_again(const ExchangeName& name, std::int64_t purpose);
    /// Restarts with all processes. With `ends_with_failure` false if one fails meanwhile, which then is not here yet.
    [[nodiscard]] bool restart(const ExchangeName& name, bool ends_with_failure);

    AsynchronousProcesses& processes_;
    const ReplicaPlacement& placement_;
    Sizes sizes_;
    /// Places in the memory: words of each process, words of each piece, and the rest.
    std::size_t met_ = 0, restarted_ = 0, purposes_ = 0, reported_ = 0, all_given_up_ = 0, passed_ = 0, records_ = 0,
                regularization_ = 0, centre_ = 0, averages_ = 0;
    std::size_t record_bytes_ = 0, result_bytes_ = 0, bytes_ = 0;
    std::byte* memory_ = nullptr;
    /// How often this process has met the others since it has restarted, and how often it has.
    std::int64_t meetings_ = 0, restarts_ = 0;
    std::atomic<std::int64_t> given_up_ = 0;
};

/// The other processes of a training with a common centre.
class CommonPeers final : public Peers {
public:
    explicit CommonPeers(AsynchronousProcesses& processes) : processes_(processes) {}
    /// Before the first step.
    void bind(const CommonCentre& common) { common_ = &common; }

    [[nodiscard]] bool any() const override { return true; }
    [[nodiscard]] BatchResult result_of(std::int64_t step, int replica, int part) override {
        return common_->result(step, replica, part);
    }
    void gather(const ExchangeName& name, std::byte* blocks, std::size_t bytes) override {
        processes_.gather(name, blocks, bytes);
    }

private:
    AsynchronousProcesses& processes_;
    const CommonCentre* common_ = nullptr;
};

inline CommonCentre::CommonCentre(AsynchronousProcesses& processes, const ReplicaPlacement& placement,
                                  const Sizes& sizes)
    : processes_(processes), placement_(placement), sizes_(sizes) {
    static_assert(sizeof(Record) % 8 == 0 && sizeof(LossReport) % 8 == 0 && sizeof(IdReport) % 8 == 0);
    const auto aligned = [](std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; };
    result_bytes_ = aligned(sizeof(std::int64_t) + (1 + sizes.losses) * sizeof(LossReport) + sizeof(IdReport) +
                                sizes.buffers * sizeof(float),
                            8);
    record_bytes_ = aligned(sizeof(Record) + static_cast<std::size_t>(sizes.parts) * result_bytes_, line);
    const auto place = [&](std::size_t size) {
        const std::size_t at = bytes_;
        bytes_ += aligned(size, line);
        return at;
    };
    const auto steps = static_cast<std::size_t>(sizes.steps);
    place(sizeof(Head));
    met_ = place(process_count() * sizeof(Word));
    restarted_ = place(process_count() * sizeof(Word));
    purposes_ = place(process_count() * sizeof(Word));
    reported_ = place(process_count() * sizeof(Word));
    all_given_up_ = place(process_count() * sizeof(Word));
    passed_ = place(sizes.pieces * sizeof(Word));
    records_ = place(steps * static_cast<std::size_t>(placement.replicas()) * record_bytes_);
    regularization_ = place(steps * sizes.regularized * sizeof(double));
    centre_ = place(static_cast<std::size_t>(sizes.all_elements) * sizeof(float));
    averages_ = place(sizes.averages ? static_cast<std::size_t>(sizes.elements) * sizeof(float) : 0);
    memory_ = processes.share(bytes_);
}

inline void CommonCentre::sleep_until(SharedEvent& event, const ExchangeName& name, FunctionRef<bool()> is_done) {
    constexpr int polls_before_sleep = 100;
    int polls = 0;
    // The processes look between two calls whether another one is lost.
    processes_.wait(name, [&] {
        const std::uint32_t changes = event.changes();
        if (is_done()) return true;
        if (++polls > polls_before_sleep) event.wait(changes);
        return false;
    });
}

inline bool CommonCentre::wait(SharedEvent& event, const ExchangeName& name, FunctionRef<bool()> is_done) {
    bool failed = false;
    sleep_until(event, name, [&] {
        if (is_done()) return true;
        failed = has_failed();
        return failed;
    });
    return !failed;
}

inline void CommonCentre::wake() {
    head().progress.notify();
    for (std::size_t i = 0; i < sizes_.pieces; ++i) word(passed_, i).event.notify();
}

inline void CommonCentre::fail(const std::exception_ptr& error) {
    {
        lock(head().failures_lock, failure_name);
        const std::lock_guard held(head().failures_lock, std::adopt_lock);
        if (!has_failed()) {
            head().failed = static_cast<std::int32_t>(process());
            processes_.write_error(error, head().error);
            head().failures.fetch_add(1, std::memory_order_release);
        }
    }
    wake();
}

inline std::exception_ptr CommonCentre::give_up() {
    lock(head().failures_lock, failure_name);
    const std::lock_guard held(head().failures_lock, std::adopt_lock);
    // Exactly the failures whose last error is read here: a later one is another error.
    const std::int64_t failures = head().failures.load(std::memory_order_relaxed);
    given_up_.store(failures, std::memory_order_relaxed);
    word(all_given_up_, process()).value.store(failures, std::memory_order_release);
    return processes_.read_error(head().error, static_cast<int>(head().failed));
}

inline bool CommonCentre::meet(const ExchangeName& name) {
    const std::int64_t next = ++meetings_;
    const auto has_met = [&] { return head().meetings.load(std::memory_order_acquire) >= next; };
    const auto all_here = [&] { return process() == 0 && all_at_least(met_, next); };
    set(met_, next);
    // Process 0 alone decides, with the lock of failures held, so that all meet or none does.
    while (!has_met()) {
        sleep_until(head().progress, name, [&] { return has_met() || all_here() || has_failed(); });
        lock(head().failures_lock, failure_name);
        const std::lock_guard held(head().failures_lock, std::adopt_lock);
        if (has_met()) break;
        if (has_failed()) return false;
        if (all_here()) {
            head().meetings.store(next, std::memory_order_release);
            head().progress.notify();
        }
    }
    return true;
}

inline bool CommonCentre::meet_again(const ExchangeName& name, std::int64_t purpose) {
    if (has_failed()) return false;
    if (head().forgotten.load(std::memory_order_relaxed) != given_up() && !restart(name, true)) return false;
    set(purposes_, purpose);
    if (!meet(name)) return false;
    for (std::size_t p = 1; p < process_count(); ++p) {
        const std::int64_t first = word(purposes_, 0).value.load(std::memory_order_acquire),
                           other = word(purposes_, p).value.load(std::memory_order_acquire);
        if (first != other) fail_apart(first, 0, other, p);
    }
    return true;
}

inline void CommonCentre::fail_apart(std::int64_t purpose, std::size_t process, std::int64_t of_other,
                                     std::size_t other) {
    const auto does = [](std::int64_t what) {
        return what < 0 ? text("restores a state before step ", -1 - what) : text("trains step ", what);
    };
    throw InvalidArgument(text("process ", process, " ", does(purpose), ", and process ", other, " ", does(of_other),
                               ": all processes queue the same steps, and restore the same state after the same ones"));
}

inline bool CommonCentre::restart(const ExchangeName& name, bool ends_with_failure) {
    const std::int64_t next = restarts_ + 1;
    const auto has_restarted = [&] { return head().restarts.load(std::memory_order_acquire) >= next; };
    // One that sleeps here may not have given up the last failure yet, which it would lose.
    const auto all_here = [&] {
        return process() == 0 && all_at_least(restarted_, next) &&
               (!ends_with_failure || all_at_least(all_given_up_, head().failures.load(std::memory_order_acquire)));
    };
    set(restarted_, next);
    while (!has_restarted()) {
        const auto ends = [&] { return ends_with_failure && has_failed(); };
        sleep_until(head().progress, name, [&] { return has_restarted() || all_here() || ends(); });
        lock(head().failures_lock, failure_name);
        const std::lock_guard held(head().failures_lock, std::adopt_lock);
        if (all_here() && !ends()) {
            const std::int64_t failures = head().failures.load(std::memory_order_relaxed);
            for (std::size_t p = 0; p < process_count(); ++p) {
                word(met_, p).value.store(0, std::memory_order_relaxed);
                word(all_given_up_, p).value.store(failures, std::memory_order_relaxed);
            }
            head().meetings.store(0, std::memory_order_relaxed);
            head().forgotten.store(failures, std::memory_order_relaxed);
            head().restarts.store(next, std::memory_order_release);
            head().progress.notify();
        } else if (!has_restarted() && ends()) {
            // All are here only while none has given this up.
            word(restarted_, process()).value.store(restarts_, std::memory_order_relaxed);
            return false;
        }
    }
    restarts_ = next;
    meetings_ = 0;
    // Not those of a process that has gone on meanwhile and failed.
    given_up_.store(head().forgotten.load(std::memory_order_relaxed), std::memory_order_relaxed);
    return true;
}

inline bool CommonCentre::begin(std::int64_t step, FunctionRef<void()> fill) {
    const ExchangeName name{"the beginning of asynchronous steps", step};
    if (!meet_again(name, step)) return false;
    if (process() == 0) fill();
    return meet(name);
}

inline void CommonCentre::clear(std::int64_t step, std::int64_t turns) {
    head().turns = {.turns = turns};
    for (std::size_t i = 0; i < sizes_.pieces; ++i) word(passed_, i).value.store(0, std::memory_order_relaxed);
    for (std::size_t p = 0; p < process_count(); ++p)
        word(reported_, p).value.store(step - 1, std::memory_order_relaxed);
    for (std::int64_t s = 0; s < sizes_.steps; ++s) {
        for (int k = 0; k < placement_.replicas(); ++k) record(s, k).step.store(-1, std::memory_order_relaxed);
    }
}

inline bool CommonCentre::wait_for_step(std::int64_t step) {
    return wait(head().progress, {"the batches of the other processes", step}, [&] {
        for (int k = 0; k < placement_.replicas(); ++k) {
            if (record(step, k).step.load(std::memory_order_acquire) == step) continue;
            require_queued(step);
            return false;
        }
        return true;
    });
}

inline bool CommonCentre::wait_for_place(std::int64_t step) {
    return wait(head().progress, {"the reports of the other processes", step - sizes_.steps}, [&] {
        if (all_at_least(reported_, step - sizes_.steps)) return true;
        require_queued(step);
        return false;
    });
}

inline void CommonCentre::write(std::int64_t step, int number, int part, std::int64_t samples,
                                const BatchResult& result) {
    std::byte* at = result_at(step, number, part);
    const auto append = [&](const void* from, std::size_t bytes) {
        if (bytes != 0) std::memcpy(at, from, bytes);
        at += bytes;
    };
    append(&samples, sizeof samples);
    append(result.report, sizeof(LossReport));
    append(result.of_losses, sizes_.losses * sizeof(LossReport));
    append(result.bad_id, sizeof(IdReport));
    append(result.statistics, sizes_.buffers * sizeof(float));
}

inline void CommonCentre::complete(std::int64_t step, int number, const Completed& batch) {
    record(step, number).batch = batch;
    record(step, number).step.store(step, std::memory_order_release);
    head().progress.notify();
}

}}}  // namespace cupola::CUPOLA_ABI::impl
