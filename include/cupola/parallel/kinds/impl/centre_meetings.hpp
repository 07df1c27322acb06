// SPDX-License-Identifier: Apache-2.0
//
// CentreMeetings: where the processes of a common centre meet, and how each learns that another one has failed, in the
// memory that they share.
//
// A process that fails tells the others by a counter of failures, and goes on as they do when they find it: each gives
// up its steps and returns to the state of the last check. They meet again where the next job begins, or where they
// restore a state. One that fails once more before is a failure of its own, which ends that meeting.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <string_view>

#include <cupola/core/error.hpp>
#include <cupola/core/function_ref.hpp>
#include <cupola/core/process_number.hpp>
#include <cupola/parallel/kinds/asynchronous_processes.hpp>
#include <cupola/parallel/kinds/impl/shared_event.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

class CentreMeetings {
public:
    CentreMeetings(const CentreMeetings&) = delete;
    CentreMeetings& operator=(const CentreMeetings&) = delete;

    // On the thread that uses the training. Those that wait return false if a process has failed.

    /// Where this process has no steps in flight, and all have the same state: forgets the failures that all have given
    /// up. Returns when all processes have called it, or one has failed instead.
    [[nodiscard]] bool restart(const ExchangeName& name);
    /// Returns when a process has failed.
    void wait_for_failure(const ExchangeName& name) {
        sleep_until(progress(), name, [&] { return has_failed(); });
    }

    // The following return when all processes have called the same one with the same step. If one has called another
    // one, or with another step, all throw InvalidArgument.

    /// Before all accept the state before `step`.
    [[nodiscard]] bool meet_to_check(std::int64_t step) {
        return meet({"the check of the parameters", step}, {Purpose::check, step});
    }
    /// Before all restore a state and after they have queued the steps before `step`, also after a failure.
    /// `refuses`: whether this process refuses its state. The number of those that do is then refusals().
    [[nodiscard]] bool meet_to_restore(std::int64_t step, bool refuses = false) {
        return meet_again({"the state of the training", step}, {Purpose::restore, step, refuses});
    }
    /// Until this process comes to its next meeting.
    [[nodiscard]] int refusals() const { return meetings().refusals; }

    /// Whether a process has failed since give_up().
    [[nodiscard]] bool has_failed() const {
        return meetings().failures.load(std::memory_order_acquire) != given_up_.load(std::memory_order_relaxed);
    }
    /// The number of failures for which steps were given up.
    [[nodiscard]] std::int64_t given_up() const { return given_up_.load(std::memory_order_relaxed); }
    /// The steps in flight are given up: returns the error of the process that has failed.
    [[gnu::cold]] std::exception_ptr give_up();

protected:
    static constexpr std::size_t line = 64;
    /// On a cache line of its own, where the memory begins with one.
    struct Word {
        std::atomic<std::int64_t> value;
        SharedEvent event;
        std::byte rest[line - sizeof(std::int64_t) - sizeof(SharedEvent)];
    };
    static_assert(sizeof(Word) == line);

    /// Takes the places of its own from the beginning of the memory on. `processes` must outlive the object.
    CentreMeetings(AsynchronousProcesses& processes, ProcessNumber process) : processes_(processes), process_(process) {
        static_cast<void>(place(sizeof(Meetings)));
        for (std::size_t* const list : {&met_, &restarted_, &purposes_, &all_given_up_})
            *list = place(process_count() * sizeof(Word));
    }
    ~CentreMeetings() = default;

    /// A place in the memory for `bytes` bytes, before bind().
    [[nodiscard]] std::size_t place(std::size_t bytes) {
        const std::size_t at = bytes_;
        bytes_ += (bytes + line - 1) / line * line;
        return at;
    }
    [[nodiscard]] std::size_t placed_bytes() const { return bytes_; }
    /// Shares the memory, which has all places.
    [[gnu::cold]] void bind() { memory_ = processes_.share(bytes_); }
    [[nodiscard]] std::byte* memory() const { return memory_; }

    [[nodiscard]] std::size_t process() const { return static_cast<std::size_t>(process_.number); }
    [[nodiscard]] std::size_t process_count() const { return static_cast<std::size_t>(process_.count); }
    [[nodiscard]] Word& word(std::size_t list, std::size_t i) const {
        return *(reinterpret_cast<Word*>(memory_ + list) + i);
    }
    /// Sets this process's word of a list.
    void set(std::size_t list, std::int64_t value) {
        word(list, process()).value.store(value, std::memory_order_release);
        progress().notify();
    }
    /// Whether a process's word of a list is at least `value`.
    [[nodiscard]] bool is_at_least(std::size_t list, int process, std::int64_t value) const {
        return word(list, static_cast<std::size_t>(process)).value.load(std::memory_order_acquire) >= value;
    }
    template <class IsLate>
    [[nodiscard]] bool any_late(IsLate is_late) const {
        for (int p = 0; p < process_.count; ++p) {
            if (is_late(p)) return true;
        }
        return false;
    }

    /// What processes wait for that is no piece of the centre.
    [[nodiscard]] SharedEvent& progress() const { return meetings().progress; }
    /// Returns when `is_done()`, which is looked at when the event is notified.
    /// `waits_for(process)`: whether it waits for this one; it refers to nothing where that is not known.
    void sleep_until(SharedEvent& event, const ExchangeName& name, FunctionRef<bool()> is_done,
                     FunctionRef<bool(int)> waits_for = {});
    /// The same, also when a process has failed: then false.
    [[nodiscard]] bool wait(SharedEvent& event, const ExchangeName& name, FunctionRef<bool()> is_done,
                            FunctionRef<bool(int)> waits_for);
    void lock(SharedLock& of, std::string_view name) {
        sleep_until(of.released(), {name}, [&] { return of.try_lock(); });
    }

    /// Records an error, unless another process has failed in the same steps; the caller wakes those that wait.
    [[gnu::cold]] void record_failure(const std::exception_ptr& error);
    /// What a process does from a meeting on, before or with a step.
    struct Purpose {
        enum What : std::int64_t { train, check, restore };
        What what = train;
        std::int64_t step = 0;
        bool refuses = false;

        [[nodiscard]] bool is_that_of(const Purpose& other) const { return what == other.what && step == other.step; }
    };
    /// Returns when all processes have called it.
    [[nodiscard]] bool meet(const ExchangeName& name, Purpose purpose);
    /// The same, also after a failure.
    [[nodiscard]] bool meet_again(const ExchangeName& name, Purpose purpose);
    /// Throws InvalidArgument if a process checks or restores a state before a step, so that it does not queue that.
    void require_queued(std::int64_t step) const {
        for (std::size_t p = 0; p < process_count(); ++p) {
            const Purpose purpose = purpose_of(p);
            if (purpose.what != Purpose::train && purpose.step <= step) [[unlikely]]
                fail_apart(purpose, p, {Purpose::train, step}, process());
        }
    }

private:
    static_assert(std::atomic<std::int64_t>::is_always_lock_free, "a lock would be of one process alone");
    struct Meetings {
        /// The failures so far, how many of them are forgotten, how often all have restarted, and have met since. The
        /// first changes with the lock of failures held, the others as well while all wait for each other.
        std::atomic<std::int64_t> failures, forgotten, restarts, meetings;
        SharedLock failures_lock;
        SharedEvent progress;
        /// The first process that has come to the last meeting for another purpose than process 0; 0 if none has.
        std::int32_t apart;
        /// How many have come to it that refuse.
        std::int32_t refusals;
        std::int32_t failed;
        std::byte error[AsynchronousProcesses::error_bytes];
    };
    static constexpr std::string_view failure_name = "the error of another process";

    [[nodiscard]] Meetings& meetings() const { return *reinterpret_cast<Meetings*>(memory_); }
    static constexpr std::int64_t purposes = Purpose::restore + 1;
    [[nodiscard]] static std::int64_t value_of(Purpose purpose) {
        return 2 * (purposes * purpose.step + purpose.what) + (purpose.refuses ? 1 : 0);
    }
    [[nodiscard]] Purpose purpose_of(std::size_t process) const {
        const std::int64_t value = word(purposes_, process).value.load(std::memory_order_acquire);
        return {static_cast<Purpose::What>(value / 2 % purposes), value / 2 / purposes, value % 2 != 0};
    }
    /// What two processes do that should do the same.
    [[noreturn, gnu::cold]] static void fail_apart(Purpose purpose, std::size_t process, Purpose of_other,
                                                   std::size_t other);

    AsynchronousProcesses& processes_;
    ProcessNumber process_;
    std::size_t met_ = 0, restarted_ = 0, purposes_ = 0, all_given_up_ = 0, bytes_ = 0;
    std::byte* memory_ = nullptr;
    /// How often this process has met the others since it has restarted, and how often it has.
    std::int64_t meetings_ = 0, restarts_ = 0;
    std::atomic<std::int64_t> given_up_ = 0;
};

inline void CentreMeetings::sleep_until(SharedEvent& event, const ExchangeName& name, FunctionRef<bool()> is_done,
                                        FunctionRef<bool(int)> waits_for) {
    constexpr int polls_before_sleep = 100;
    int polls = 0;
    // The processes look between two calls whether another one is lost.
    const auto sleep_once = [&] {
        const std::uint32_t changes = event.changes();
        if (is_done()) return true;
        if (++polls > polls_before_sleep) event.wait(changes);
        return false;
    };
    processes_.wait(name, sleep_once, waits_for);
}

inline bool CentreMeetings::wait(SharedEvent& event, const ExchangeName& name, FunctionRef<bool()> is_done,
                                 FunctionRef<bool(int)> waits_for) {
    bool failed = false;
    const auto is_over = [&] {
        if (is_done()) return true;
        failed = has_failed();
        return failed;
    };
    sleep_until(event, name, is_over, waits_for);
    return !failed;
}

inline void CentreMeetings::record_failure(const std::exception_ptr& error) {
    lock(meetings().failures_lock, failure_name);
    const std::lock_guard held(meetings().failures_lock, std::adopt_lock);
    if (has_failed()) return;
    meetings().failed = static_cast<std::int32_t>(process());
    processes_.write_error(error, meetings().error);
    meetings().failures.fetch_add(1, std::memory_order_release);
}

inline std::exception_ptr CentreMeetings::give_up() {
    lock(meetings().failures_lock, failure_name);
    const std::lock_guard held(meetings().failures_lock, std::adopt_lock);
    // Exactly the failures whose last error is read here: a later one is another error.
    const std::int64_t failures = meetings().failures.load(std::memory_order_relaxed);
    given_up_.store(failures, std::memory_order_relaxed);
    word(all_given_up_, process()).value.store(failures, std::memory_order_release);
    return processes_.read_error(meetings().error, static_cast<int>(meetings().failed));
}

inline bool CentreMeetings::meet(const ExchangeName& name, Purpose purpose) {
    const std::int64_t next = ++meetings_;
    const auto has_met = [&] { return meetings().meetings.load(std::memory_order_acquire) >= next; };
    const auto is_late = [&](int p) { return !is_at_least(met_, p, next); };
    const auto all_here = [&] { return process() == 0 && !any_late(is_late); };
    const auto waits_for = [&](int p) { return is_late(p) || (p == 0 && !any_late(is_late)); };
    set(purposes_, value_of(purpose));
    set(met_, next);
    // Process 0 alone decides, with the lock of failures held, so that all meet or none does.
    while (!has_met()) {
        sleep_until(
            progress(), name, [&] { return has_met() || all_here() || has_failed(); }, waits_for);
        lock(meetings().failures_lock, failure_name);
        const std::lock_guard held(meetings().failures_lock, std::adopt_lock);
        if (has_met()) break;
        if (has_failed()) return false;
        if (all_here()) {
            meetings().apart = meetings().refusals = 0;
            for (std::size_t p = process_count(); p-- > 0;) {
                const Purpose other = purpose_of(p);
                if (!other.is_that_of(purpose)) meetings().apart = static_cast<std::int32_t>(p);
                if (other.refuses) ++meetings().refusals;
            }
            // All go on with the steps that they have queued, which some may do before others are awake.
            const bool restores_none = meetings().refusals == process_.count && meetings().apart == 0;
            for (std::size_t p = 0; restores_none && p < process_count(); ++p)
                word(purposes_, p).value.store(value_of({Purpose::train, purpose.step}), std::memory_order_relaxed);
            meetings().meetings.store(next, std::memory_order_release);
            progress().notify();
        }
    }
    // Both are as they are until all have come to the next meeting, or restart.
    if (const auto other = static_cast<std::size_t>(meetings().apart); other != 0) [[unlikely]]
        fail_apart(purpose_of(0), 0, purpose_of(other), other);
    return true;
}

inline bool CentreMeetings::meet_again(const ExchangeName& name, Purpose purpose) {
    if (has_failed()) return false;
    if (meetings().forgotten.load(std::memory_order_relaxed) != given_up() && !restart(name)) return false;
    return meet(name, purpose);
}

inline void CentreMeetings::fail_apart(Purpose purpose, std::size_t process, Purpose of_other, std::size_t other) {
    const auto does = [](Purpose of) {
        const std::string_view what[purposes] = {"trains step ", "checks the parameters before step ",
                                                 "restores a state before step "};
        return text(what[of.what], of.step);
    };
    throw InvalidArgument(text("process ", process, " ", does(purpose), ", and process ", other, " ", does(of_other),
                               ": all processes queue the same steps, and restore the same state after the same ones"));
}

inline bool CentreMeetings::restart(const ExchangeName& name) {
    const std::int64_t next = restarts_ + 1;
    const auto has_restarted = [&] { return meetings().restarts.load(std::memory_order_acquire) >= next; };
    // One that sleeps here may not have given up the last failure yet, which it would lose.
    const auto is_late = [&](int p) {
        return !is_at_least(restarted_, p, next) ||
               !is_at_least(all_given_up_, p, meetings().failures.load(std::memory_order_acquire));
    };
    const auto all_here = [&] { return process() == 0 && !any_late(is_late); };
    const auto waits_for = [&](int p) { return is_late(p) || (p == 0 && !any_late(is_late)); };
    set(restarted_, next);
    while (!has_restarted()) {
        sleep_until(
            progress(), name, [&] { return has_restarted() || all_here() || has_failed(); }, waits_for);
        lock(meetings().failures_lock, failure_name);
        const std::lock_guard held(meetings().failures_lock, std::adopt_lock);
        if (all_here() && !has_failed()) {
            const std::int64_t failures = meetings().failures.load(std::memory_order_relaxed);
            for (std::size_t p = 0; p < process_count(); ++p) {
                word(met_, p).value.store(0, std::memory_order_relaxed);
                word(all_given_up_, p).value.store(failures, std::memory_order_relaxed);
            }
            meetings().meetings.store(0, std::memory_order_relaxed);
            meetings().forgotten.store(failures, std::memory_order_relaxed);
            meetings().restarts.store(next, std::memory_order_release);
            progress().notify();
        } else if (!has_restarted() && has_failed()) {
            // All are here only while none has given this up.
            word(restarted_, process()).value.store(restarts_, std::memory_order_relaxed);
            return false;
        }
    }
    restarts_ = next;
    meetings_ = 0;
    // Not those of a process that has gone on meanwhile and failed.
    given_up_.store(meetings().forgotten.load(std::memory_order_relaxed), std::memory_order_relaxed);
    return true;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
