// SPDX-License-Identifier: Apache-2.0
//
// NcclRanks: the ranks of one process, and how they fail together:
//
// - NCCL may report an error before a rank's heartbeat is known to have stopped: errors are checked first.
// - After a failure only ncclCommAbort is called, for every rank of the process: a rank that is not aborted would make
//   the others hang. Each waiting thread then ends with the same error.
// - With a folder, a process that waits for other processes in vain writes their ranks to its file there and exits
//   within 1 s of the deadline, without aborting.
// - ncclCommAbort itself can hang: NVIDIA requires that every rank calls it, in one group if a thread has several
//   ranks, and some versions wait for ranks that no longer exist. It runs in a separate thread, while no lock is held
//   that another thread of the process waits for. If it has not returned by its deadline, the process ends with the
//   error's message: nothing else ends an NCCL kernel.
//
// The DeviceError names the replica that reports it, its rank, the step, the collective, and the ranks whose heartbeats
// have stopped.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nccl.h>

#include <cupola/core/error.hpp>
#include <cupola/processes/nccl_environment.hpp>
#include <cupola/processes/watch/heartbeats.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// One of this process's ranks. Each rank uses one GPU; `replica` is the first replica on it.
struct NcclRank {
    int rank = 0;
    int device = 0;
    int replica = 0;
};

struct NcclLimits {
    /// The deadlines for the start of all ranks, and for each wait of a step.
    double start_seconds = 120, step_seconds = 60;
    /// A heartbeat that has not changed for this time counts as stopped.
    double heartbeat_seconds = 5;
    /// The deadline for ncclCommAbort after a failure, and for the device's remaining work. When it passes, the process
    /// ends.
    double abort_seconds = 20;
    /// The folder for the file of a process that exits because of others, and the number of this process.
    std::string folder{};
    int process = 0;
    /// The environment through which the survivors agree to continue, or null.
    NcclEnvironment* environment = nullptr;
};

/// The current work of a rank, for error messages. A negative step means no step.
struct NcclWork {
    std::string_view name;
    std::int64_t step = -1;
};

/// The base class of NcclCommunicators: the ranks, and the first failure of any of them. `Calls` is the table of
/// functions of nccl_calls.hpp. One thread per rank may call the members, each for its own rank.
template <class Calls>
class NcclRanks {
protected:
    NcclRanks(int ranks, const std::vector<NcclRank>& mine, Heartbeats& beats, const NcclLimits& limits, Calls calls)
        : ranks_(ranks), heartbeats_(beats), limits_(limits), calls_(std::move(calls)) {
        require(!mine.empty() && beats.ranks() == ranks, "communicators of ", mine.size(), " of ", ranks,
                " ranks with heartbeats of ", beats.ranks());
        for (const NcclRank& rank : mine) {
            require(rank.rank >= 0 && rank.rank < ranks, "rank ", rank.rank, " is none of ", ranks);
            mine_.emplace_back(rank, beats);
        }
    }

    struct Member {
        Member(const NcclRank& of, const Heartbeats& beats) : place(of), watch(beats, 0) {}
        NcclRank place;
        ncclComm_t communicator = nullptr;
        ncclResult_t status = ncclSuccess;
        HeartbeatWatch watch;
        /// The deadline of the current wait, and the time at which the rank last checked for an agreement.
        double deadline = 0, last_checked = 0;
        std::mutex call_mutex;  // held while NCCL is called with this communicator, which another thread may abort
    };

    [[nodiscard]] bool failed() const { return failed_.load(std::memory_order_acquire); }
    /// After a failure: whether the abort has returned.
    [[nodiscard]] bool aborted() const { return aborted_.load(std::memory_order_acquire); }
    [[nodiscard, gnu::cold]] std::string failure() {
        const std::lock_guard guard(failure_mutex_);
        return message_;
    }

    /// Whether a failure's message reports the other ranks' heartbeats: no, yes, or yes after watching them first.
    enum class PeerHeartbeats { ignored, watched, to_watch };

    /// Throws the error of a call that failed.
    void check(Member& member, const NcclWork& work, const char* call, ncclResult_t status) {
        if (status == ncclSuccess || status == ncclInProgress) [[likely]]
            return;
        std::string message = text("NCCL's ", call, " failed with ", calls_.error_string(status));
        call_unless_failed(member, [&] {
            const char* const more = member.communicator != nullptr ? calls_.last_error(member.communicator) : nullptr;
            if (more != nullptr && *more != '\0') message += text(" (", more, ')');
            return status;
        });
        // These errors are caused by this rank. For any other error NCCL does not name the rank that caused it, if
        // there are other processes.
        const bool own = status == ncclInvalidArgument || status == ncclInvalidUsage ||
                         status == ncclUnhandledCudaError || mine_.size() == static_cast<std::size_t>(ranks_);
        fail(member, work, message, own ? PeerHeartbeats::ignored : PeerHeartbeats::to_watch);
    }
    /// Throws the error for work that has reached its deadline.
    [[noreturn, gnu::cold]] void expire(Member& member, const NcclWork& work, double seconds) {
        fail(member, work, text("it is not done after ", seconds, " s"), PeerHeartbeats::watched);
    }

    /// During a wait: fails if another process has noticed the loss of a process.
    void check_agreement_requested(Member& member, const NcclWork& work, double now) {
        if (limits_.environment == nullptr || work.step < 0 || now - member.last_checked < seconds_between_checks)
            return;
        member.last_checked = now;
        if (limits_.environment->agreement_requested())
            fail(member, work, "another process has noticed a loss", PeerHeartbeats::watched);
    }

    /// Calls NCCL for a rank, unless the process has failed: its communicator then is, or will be, aborted.
    template <class Call>
    ncclResult_t call_unless_failed(Member& member, Call call) {
        {
            const std::lock_guard guard(member.call_mutex);
            if (!failed()) [[likely]]
                return call();
        }
        throw_first();
    }
    /// Throws the process's error if there is one.
    void check_alive() {
        if (failed()) [[unlikely]]
            throw_first();
    }
    /// Stores the first failure of the process, aborts its communicators, and throws.
    [[noreturn, gnu::cold]] void fail(Member& member, const NcclWork& work, const std::string& what,
                                      PeerHeartbeats peers = PeerHeartbeats::ignored) {
        {
            const std::lock_guard guard(failure_mutex_);
            if (failed()) throw_message();
            const double start = calls_.now();
            double now = start;
            member.watch.update(now);
            const bool exits = peers != PeerHeartbeats::ignored && exits_on_peer_failure();
            // An error may be reported shortly before the deadline.
            const double watched = exits ? std::clamp(member.deadline - start, min_watch_seconds, heartbeat_seconds())
                                         : limits_.heartbeat_seconds;
            while (peers == PeerHeartbeats::to_watch && now - start < watched) {
                // This thread beats for all ranks, since other threads of this process may be waiting for it.
                for (const Member& each : mine_) heartbeats_.beat(each.place.rank);
                calls_.pause();
                now = calls_.now();
                member.watch.update(now);
            }
            message_ = text(description_of(member, work), ": ", what);
            const double still = peers == PeerHeartbeats::to_watch ? watched : limits_.heartbeat_seconds;
            if (peers != PeerHeartbeats::ignored) message_ += "; " + stopped_text(member.watch, now, still);
            if (peers != PeerHeartbeats::ignored && work.step >= 0 && limits_.environment != nullptr)
                agree_on_survivors(std::max(member.deadline, calls_.now()));
            failed_.store(true, std::memory_order_release);
            if (exits && survivors_.empty()) {
                calls_.exit_on_peer_failure(
                    limits_.process, limits_.folder,
                    text("process ", limits_.process, ": ", message_, missing_text(member.watch, now, still)));
            }
        }
        // Without the lock, so that the other threads receive the error meanwhile. message_ does not change any more.
        abort_all();
        aborted_.store(true, std::memory_order_release);
        throw_message();
    }

    int ranks_;
    Heartbeats& heartbeats_;
    NcclLimits limits_;
    Calls calls_;
    std::deque<Member> mine_;

private:
    /// The minimum time after which a heartbeat counts as stopped: less than the second that a process has after a
    /// deadline.
    static constexpr double min_watch_seconds = 0.5;
    static constexpr double seconds_between_checks = 0.05;
    [[nodiscard]] double heartbeat_seconds() const { return std::max(min_watch_seconds, limits_.heartbeat_seconds); }
    [[nodiscard]] bool exits_on_peer_failure() const {
        return !limits_.folder.empty() && mine_.size() < static_cast<std::size_t>(ranks_);
    }
    /// "; missing: process 0, 2": the processes whose ranks' heartbeats have stopped.
    [[nodiscard, gnu::cold]] std::string missing_text(const HeartbeatWatch& watch, double now, double seconds) const {
        std::string list;
        int last = -1;
        for (const int rank : watch.stopped(now, seconds)) {
            const int process = rank / static_cast<int>(mine_.size());
            if (process == limits_.process || process == last) continue;
            list += text(list.empty() ? "" : ", ", process);
            last = process;
        }
        return list.empty() ? "; none is missing" : "; missing: process " + list;
    }
    [[nodiscard, gnu::cold]] std::string description_of(const Member& member, const NcclWork& work) const {
        std::string result =
            text("replica ", member.place.replica, " (rank ", member.place.rank, " of ", ranks_, ") in ", work.name);
        if (work.step >= 0) result += text(" of step ", work.step);
        return result;
    }
    /// Throws the error of the rank that failed first. Must not be called with a rank's `call_mutex` locked, since
    /// fail() waits for it.
    [[noreturn, gnu::cold]] void throw_first() {
        const std::lock_guard guard(failure_mutex_);
        throw_message();
    }
    /// Called after `failed_` is set; the message no longer changes then.
    [[noreturn, gnu::cold]] void throw_message() const {
        if (!survivors_.empty()) throw ProcessLost(message_, since_);
        throw DeviceError(message_);
    }
    /// If a process is lost, agrees with the others on the survivors. Each of them arrives at the latest by `deadline`,
    /// that of the failed wait: until then it may compute, and once it waits it notices that others agree.
    [[gnu::cold]] void agree_on_survivors(double deadline) {
        since_ = calls_.now();
        const std::string unable = calls_.cannot_shrink();
        std::string why = unable;
        if (unable.empty()) {
            survivors_ = limits_.environment->agree(
                deadline - since_ + limits_.abort_seconds,
                [&] {
                    for (const Member& each : mine_) heartbeats_.beat(each.place.rank);
                },
                why);
        }
        if (survivors_.empty()) message_ += "; the others do not go on: " + why;
    }
    /// The ranks of the processes that are lost.
    [[nodiscard]] std::vector<int> lost_ranks() const {
        const int devices = static_cast<int>(mine_.size());
        std::vector<int> ranks;
        for (int rank = 0; rank < ranks_; ++rank) {
            if (std::find(survivors_.begin(), survivors_.end(), rank / devices) == survivors_.end())
                ranks.push_back(rank);
        }
        return ranks;
    }
    static void abort_together(Calls& calls, const std::vector<ncclComm_t>& communicators) {
        calls.group_start();
        for (const ncclComm_t communicator : communicators) calls.abort(communicator);
        calls.group_end();
    }
    /// One pause of a wait that began at `start`. Ends the process with `message` after `seconds`.
    static void pause_until(Calls& calls, double start, double seconds, std::string_view message, const char* call) {
        if (calls.now() - start >= seconds) {
            calls.end_process(
                text(message, "; ", call, " had not returned ", seconds, " s later, and this process was ended"));
        }
        calls.pause();
    }
    /// Runs `aborts`, which calls the function named `call`, in a separate thread, and returns when it has returned.
    /// Ends the process with `message` at the deadline.
    template <class Aborts>
    [[gnu::cold]] static void run_until(Calls& calls, double start, double seconds, std::string_view message,
                                        const char* call, Aborts aborts) {
        const auto done = std::make_shared<std::atomic<bool>>(false);
        try {
            calls.run_detached([aborts, done]() mutable {
                aborts();
                done->store(true, std::memory_order_release);
            });
        } catch (const Error& error) {
            // Other threads wait for the abort.
            calls.end_process(text(message, "; ", error.what(), ", and this process was ended"));
        }
        while (!done->load(std::memory_order_acquire)) pause_until(calls, start, seconds, message, call);
    }
    /// Waits until the last call of a communicator is no longer in progress, and returns its result.
    [[nodiscard]] static ncclResult_t wait_until_done(Calls& calls, ncclComm_t of) {
        for (;;) {
            ncclResult_t state = ncclSuccess;
            if (const ncclResult_t asked = calls.state(of, &state); asked != ncclSuccess) return asked;
            if (state != ncclInProgress) return state;
            calls.pause();
        }
    }
    /// Aborts this process's communicators together, or shrinks them first if there are survivors. Returns when NCCL
    /// has done so, or ends the process.
    [[gnu::cold]] void abort_all() {
        const double start = calls_.now();
        const auto pause_until_deadline = [&](const char* call) {
            pause_until(calls_, start, limits_.abort_seconds, message_, call);
        };
        struct Abort {
            explicit Abort(const Calls& with) : calls(with) {}
            Calls calls;
            std::vector<ncclComm_t> communicators, shrunk;
            std::vector<int> devices, lost;
            bool shrinks = false;
            std::string error;
            void shrink() {
                // A communicator whose last call is in progress cannot be shrunk. The error of that call is irrelevant
                // here.
                for (const ncclComm_t each : communicators) static_cast<void>(wait_until_done(calls, each));
                ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
                config.blocking = 0;
                shrunk.resize(communicators.size());
                int before = 0;
                calls.device(&before);
                calls.group_start();
                ncclResult_t status = ncclSuccess;
                for (std::size_t i = 0; i < shrunk.size(); ++i) {
                    calls.set_device(devices[i]);
                    const ncclResult_t called = calls.shrink(communicators[i], lost, &shrunk[i], &config);
                    if (called != ncclSuccess && called != ncclInProgress) status = called;
                }
                const ncclResult_t closed = calls.group_end();
                if (closed != ncclSuccess && closed != ncclInProgress) status = closed;
                calls.set_device(before);
                // The call is in progress on the old communicators, and the new ones are null until it ends; querying
                // the state of null is an error.
                for (std::size_t i = 0; i < shrunk.size() && status == ncclSuccess; ++i) {
                    status = wait_until_done(calls, communicators[i]);
                    if (status == ncclSuccess) status = wait_until_done(calls, shrunk[i]);
                }
                if (status != ncclSuccess) error = calls.error_string(status);
            }
        };
        const auto abort = std::make_shared<Abort>(calls_);
        for (Member& each : mine_) {
            while (!each.call_mutex.try_lock()) pause_until_deadline("a call of NCCL by another thread");
            if (each.communicator != nullptr) {
                abort->communicators.push_back(std::exchange(each.communicator, nullptr));
                abort->devices.push_back(each.place.device);
            }
            each.call_mutex.unlock();
        }
        if (abort->communicators.empty()) return;
        abort->shrinks = !survivors_.empty();
        if (abort->shrinks) abort->lost = lost_ranks();
        run_until(calls_, start, limits_.abort_seconds, message_,
                  abort->shrinks ? "NCCL's ncclCommShrink" : "NCCL's ncclCommAbort", [abort] {
                      if (abort->shrinks) abort->shrink();
                      abort_together(abort->calls, abort->communicators);
                  });
        if (!abort->shrinks) return;
        if (!abort->error.empty()) {
            calls_.end_process(
                text(message_, "; NCCL's ncclCommShrink failed with ", abort->error, ", and this process was ended"));
        }
        limits_.environment->store_communicators(
            {abort->shrunk.begin(), abort->shrunk.end()},
            [calls = calls_, seconds = limits_.abort_seconds](const std::vector<void*>& made) mutable {
                std::vector<ncclComm_t> communicators;
                communicators.reserve(made.size());
                for (void* const each : made) communicators.push_back(static_cast<ncclComm_t>(each));
                run_until(calls, calls.now(), seconds, "the training did not go on with the processes that are left",
                          "NCCL's ncclCommAbort",
                          [calls, communicators]() mutable { abort_together(calls, communicators); });
            },
            survivors_);
    }

    std::atomic<bool> failed_ = false, aborted_ = false;
    std::mutex failure_mutex_;
    std::string message_;
    /// The processes that continue; empty if this one does not.
    std::vector<int> survivors_;
    double since_ = 0;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
