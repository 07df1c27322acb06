// SPDX-License-Identifier: Apache-2.0
//
// NCCL's communicators of the GPUs of one process, among those of all processes of a training, such that no wait can
// hang:
//
//  - All calls are non-blocking. After each, NCCL is polled until it is no longer "in progress", before the next call.
//  - Each wait has a deadline; during the wait this rank's heartbeat continues and the others' are watched.
//  - NCCL's own error may come before a rank's heartbeat is known to have stopped: the error is checked first.
//  - After a failure only ncclCommAbort is called, for every rank of the process: a rank that is not aborted would make
//    the others hang. Each waiting thread then ends with the same error.
//  - ncclCommAbort itself can hang: NVIDIA requires that every rank calls it, a thread with several ranks in one group, and
//    some versions wait for ranks that no longer exist. It runs in its own thread. If it has not returned at its
//    deadline, the process ends with the error's message: nothing else ends a kernel of NCCL.
//
// The DeviceError names the replica that reports it, its rank, the step, the collective, and the ranks whose heartbeats
// stopped. `Calls` is the table of functions, so that all of this is tested without a GPU.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cupola/core/error.hpp>
#include <cupola/device/wait_until.hpp>
#include <cupola/parallel/impl/communicator_id.hpp>
#include <cupola/parallel/impl/heartbeats.hpp>
#include <cupola/parallel/impl/nccl_calls.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

/// One of this process's ranks. A rank is a GPU, and `replica` is the first replica on it.
struct NcclRank {
    int rank = 0;
    int device = 0;
    int replica = 0;
};

struct NcclLimits {
    /// The deadlines of the common start of the ranks, and of each wait of a step.
    double start_seconds = 120, step_seconds = 60;
    /// A heartbeat that has not changed for this time has stopped.
    double heartbeat_seconds = 5;
    /// The deadline of ncclCommAbort after a failure, and of the device's remaining work; after it the process ends.
    double abort_seconds = 20;
};

/// The current work of a rank, for the error's message. A step below 0 means no step.
struct NcclWork {
    std::string_view name;
    std::int64_t step = -1;
};

/// sum() and wait() may be called by one thread per rank, each for its own rank; start() and finish() by one thread.
template <class Calls = NcclCalls>
class NcclCommunicators {
public:
    NcclCommunicators(int ranks, const std::vector<NcclRank>& mine, Heartbeats& beats, const NcclLimits& limits = {},
                      Calls calls = {})
        : ranks_(ranks), beats_(beats), limits_(limits), calls_(std::move(calls)) {
        require(!mine.empty() && beats.ranks() == ranks, "communicators of ", mine.size(), " of ", ranks,
                " ranks with heartbeats of ", beats.ranks());
        for (const NcclRank& rank : mine) {
            require(rank.rank >= 0 && rank.rank < ranks, "rank ", rank.rank, " is none of ", ranks);
            mine_.emplace_back(rank, beats);
        }
    }
    NcclCommunicators(const NcclCommunicators&) = delete;
    NcclCommunicators& operator=(const NcclCommunicators&) = delete;
    ~NcclCommunicators() {
        try {
            finish();
        } catch (const DeviceError&) {  // the ranks are aborted; no thread waits for them any more
        }
    }

    /// Makes the id that all ranks start with. Rank 0's process must live until the others have started.
    [[nodiscard]] CommunicatorId make_id() {
        static_assert(sizeof(ncclUniqueId) == communicator_id_bytes);
        ncclUniqueId id{};
        const ncclResult_t status = calls_.make_id(&id);
        require<DeviceError>(status == ncclSuccess, "NCCL's ncclGetUniqueId failed with ", calls_.meaning(status));
        CommunicatorId result;
        std::memcpy(result.data(), &id, sizeof id);
        return result;
    }

    /// Makes the communicators, together with all other ranks of the training.
    void start(const CommunicatorId& id) {
        ncclUniqueId number{};
        std::memcpy(&number, id.data(), sizeof number);
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 0;
        const NcclWork work{"the start of the communicator"};
        for (Member& member : mine_) member.watch.restart(calls_.now());
        int before = 0;
        cudaError_t status = calls_.device(&before);
        check(mine_[0], work, "ncclGroupStart", calls_.group_start());
        // A group that was opened is closed in every case.
        std::size_t failing = mine_.size();
        for (std::size_t i = 0; i < mine_.size() && failing == mine_.size(); ++i) {
            Member& member = mine_[i];
            if (status == cudaSuccess) status = calls_.set_device(member.place.device);
            if (status == cudaSuccess)
                member.status = calls_.init_rank(&member.communicator, ranks_, number, member.place.rank, &config);
            if (status != cudaSuccess || (member.status != ncclSuccess && member.status != ncclInProgress)) failing = i;
        }
        const ncclResult_t ended = calls_.group_end();
        calls_.set_device(before);
        if (failing < mine_.size()) {
            if (status != cudaSuccess)
                fail(mine_[failing], work, text("CUDA's cudaSetDevice failed with ", cudaGetErrorString(status)));
            check(mine_[failing], work, "ncclCommInitRankConfig", mine_[failing].status);
        }
        check(mine_[0], work, "ncclGroupEnd", ended);
        started_ = true;
        for (Member& member : mine_) synchronize(member, work, limits_.start_seconds, true);
    }

    /// Queues data[i] = the sum of all ranks' data[i] on `stream`, for the `index`-th of this process's ranks.
    void sum(std::size_t index, float* data, std::size_t count, cudaStream_t stream, const NcclWork& work) {
        Member& member = mine_[index];
        member.watch.restart(calls_.now());
        check(member, work, "ncclAllReduce",
              while_alive(member, [&] { return calls_.sum(data, count, member.communicator, stream); }));
        synchronize(member, work, limits_.step_seconds);
    }

    /// Waits until `event`, which was recorded behind `work`, is complete.
    void wait(std::size_t index, cudaEvent_t event, const NcclWork& work) {
        Member& member = mine_[index];
        Wait wait(*this, member, work, limits_.step_seconds);
        while (!happened(member, event, work)) wait.turn();
    }

    /// Whether `event` is complete, without waiting for it. Throws as a wait() that began at `since` does.
    [[nodiscard]] bool poll(std::size_t index, cudaEvent_t event, const NcclWork& work, double since) {
        Member& member = mine_[index];
        if (happened(member, event, work)) return true;
        check_alive();
        beats_.beat(member.place.rank);
        const double now = calls_.now();
        member.watch.look(now);
        if (now - since >= limits_.step_seconds) expire(member, work, limits_.step_seconds);
        return false;
    }
    /// Seconds of the clock that poll() uses.
    [[nodiscard]] double now() { return calls_.now(); }

    [[nodiscard]] bool failed() const { return failed_.load(std::memory_order_acquire); }

    /// Ends all sums, because this rank will not take part in them: its device failed elsewhere.
    [[gnu::cold]] void break_off(std::size_t index, const NcclWork& work, const std::string& why) {
        try {
            fail(mine_[index], work, why);
        } catch (const DeviceError&) {  // the waiting threads receive the error
        }
    }

    /// After a failure: waits until `event`, which was recorded behind sums that were broken off, is complete, so that the
    /// device uses no memory any more. The work of a device that failed has ended too. Ends the process if this takes
    /// longer than abort_seconds.
    [[gnu::cold]] void wait_for_broken_off(std::size_t index, cudaEvent_t event) {
        const double start = calls_.now();
        for (int turn = 0; calls_.query(event) == cudaErrorNotReady; ++turn) {
            if (turn < turns_before_sleep) continue;
            if (calls_.now() - start >= limits_.abort_seconds) {
                calls_.end_process(text(failure(), "; ", limits_.abort_seconds, " s later device ",
                                        mine_[index].place.device,
                                        " had not ended what was queued, and this process was ended"));
            }
            calls_.pause();
        }
    }

    /// Destroys the communicators, together with all other ranks; at the end of a training, or by the destructor.
    void finish() {
        if (!std::exchange(started_, false) || failed()) return;
        const NcclWork work{"the end of the communicator"};
        for (Member& member : mine_) check(member, work, "ncclCommFinalize", calls_.finalize(member.communicator));
        for (Member& member : mine_) synchronize(member, work, limits_.step_seconds, true);
        for (Member& member : mine_) {
            calls_.destroy(std::exchange(member.communicator, nullptr));
        }
    }

private:
    struct Member {
        Member(const NcclRank& of, const Heartbeats& beats) : place(of), watch(beats, 0) {}
        NcclRank place;
        ncclComm_t communicator = nullptr;
        ncclResult_t status = ncclSuccess;
        HeartbeatWatch watch;
        std::mutex calling;  // held while NCCL is called with this communicator, which another thread may abort
    };

    /// One wait of one rank.
    class Wait {
    public:
        /// `for_all`: the calling thread serves all ranks of the process.
        Wait(NcclCommunicators& all, Member& member, const NcclWork& work, double seconds, bool for_all = false)
            : all_(all), member_(member), work_(work), seconds_(seconds), start_(all.calls_.now()), for_all_(for_all) {
            member.watch.restart(start_);
        }
        /// Increments the heartbeat, checks for errors, and ends the wait by an error if there is one.
        void turn() {
            all_.check_alive();
            for (const Member& each : all_.mine_) {
                if (for_all_ || &each == &member_) all_.beats_.beat(each.place.rank);
            }
            const double now = all_.calls_.now();
            member_.watch.look(now);
            if (now - start_ >= seconds_) all_.expire(member_, work_, seconds_);
            if (++turns_ > turns_before_sleep) all_.calls_.pause();
        }

    private:
        NcclCommunicators& all_;
        Member& member_;
        const NcclWork& work_;
        double seconds_, start_;
        bool for_all_;
        int turns_ = 0;
    };

    [[nodiscard, gnu::cold]] std::string who(const Member& member, const NcclWork& work) const {
        std::string result =
            text("replica ", member.place.replica, " (rank ", member.place.rank, " of ", ranks_, ") in ", work.name);
        if (work.step >= 0) result += text(" of step ", work.step);
        return result;
    }

    [[nodiscard]] bool happened(Member& member, cudaEvent_t event, const NcclWork& work) {
        const cudaError_t status = calls_.query(event);
        if (status == cudaSuccess) {
            check_alive();  // an abort also ends work that was queued
            return true;
        }
        if (status != cudaErrorNotReady)
            fail(member, work, text("CUDA's cudaEventQuery failed with ", cudaGetErrorString(status)));
        [[maybe_unused]] const bool completed = is_completed(member, work);
        return false;
    }
    /// Whether NCCL has completed the last call; throws its error.
    [[nodiscard]] bool is_completed(Member& member, const NcclWork& work) {
        ncclResult_t state = ncclSuccess;
        check(member, work, "ncclCommGetAsyncError",
              while_alive(member, [&] { return calls_.state(member.communicator, &state); }));
        if (state == ncclInProgress) return false;
        check(member, work, "last call", state);
        return true;
    }
    void synchronize(Member& member, const NcclWork& work, double seconds, bool for_all = false) {
        Wait wait(*this, member, work, seconds, for_all);
        while (!is_completed(member, work)) wait.turn();
        beats_.beat(member.place.rank);
    }

    void check(Member& member, const NcclWork& work, const char* call, ncclResult_t status) {
        if (status == ncclSuccess || status == ncclInProgress) [[likely]]
            return;
        std::string message = text("NCCL's ", call, " failed with ", calls_.meaning(status));
        while_alive(member, [&] {
            const char* const more = member.communicator != nullptr ? calls_.last_error(member.communicator) : nullptr;
            if (more != nullptr && *more != '\0') message += text(" (", more, ')');
            return status;
        });
        // These errors are this rank's alone. For any other error NCCL does not name the rank that caused it, if there are
        // other processes.
        const bool own = status == ncclInvalidArgument || status == ncclInvalidUsage ||
                         status == ncclUnhandledCudaError || mine_.size() == static_cast<std::size_t>(ranks_);
        fail(member, work, message, own ? Others::no_matter : Others::to_be_watched);
    }
    [[noreturn, gnu::cold]] void expire(Member& member, const NcclWork& work, double seconds) {
        fail(member, work, text("it is not done after ", seconds, " s"), Others::watched);
    }

    /// Calls NCCL for a rank, unless the process has failed: then its communicator is aborted, or will be.
    template <class Call>
    ncclResult_t while_alive(Member& member, Call call) {
        {
            const std::lock_guard guard(member.calling);
            if (!failed()) [[likely]]
                return call();
        }
        throw_first();
    }
    void check_alive() {
        if (failed()) [[unlikely]]
            throw_first();
    }
    /// Throws the error of the rank that failed first. Not while holding a rank's `calling`, since fail() waits for it.
    [[noreturn, gnu::cold]] void throw_first() { throw DeviceError(failure()); }
    /// How the other ranks' heartbeats relate to a failure.
    enum class Others { no_matter, watched, to_be_watched };
    /// Reports the first failure of the process and aborts its communicators.
    [[noreturn, gnu::cold]] void fail(Member& member, const NcclWork& work, const std::string& what,
                                      Others others = Others::no_matter) {
        {
            const std::lock_guard guard(failing_);
            if (failed()) throw DeviceError(message_);
            const double start = calls_.now();
            double now = start;
            member.watch.look(now);
            while (others == Others::to_be_watched && now - start < limits_.heartbeat_seconds) {
                // Other threads of this process may be waiting for this one.
                for (const Member& each : mine_) beats_.beat(each.place.rank);
                calls_.pause();
                now = calls_.now();
                member.watch.look(now);
            }
            message_ = text(who(member, work), ": ", what);
            if (others != Others::no_matter)
                message_ += "; " + stopped_text(member.watch, now, limits_.heartbeat_seconds);
            failed_.store(true, std::memory_order_release);
            abort_all();
        }
        throw DeviceError(message_);
    }
    /// Aborts this process's communicators together. Returns when NCCL has done so, or ends the process.
    [[gnu::cold]] void abort_all() {
        const double start = calls_.now();
        const auto pause_until_deadline = [&](const char* call) {
            if (calls_.now() - start >= limits_.abort_seconds) {
                calls_.end_process(text(message_, "; ", call, " had not returned ", limits_.abort_seconds,
                                        " s later, and this process was ended"));
            }
            calls_.pause();
        };
        struct Abort {
            explicit Abort(const Calls& with) : calls(with) {}
            Calls calls;
            std::vector<ncclComm_t> communicators;
            std::atomic<bool> done = false;
        };
        const auto abort = std::make_shared<Abort>(calls_);
        for (Member& each : mine_) {
            while (!each.calling.try_lock()) pause_until_deadline("a call of NCCL by another thread");
            if (each.communicator != nullptr) abort->communicators.push_back(std::exchange(each.communicator, nullptr));
            each.calling.unlock();
        }
        if (abort->communicators.empty()) return;
        calls_.run_apart([abort] {
            abort->calls.group_start();
            for (const ncclComm_t communicator : abort->communicators) abort->calls.abort(communicator);
            abort->calls.group_end();
            abort->done.store(true, std::memory_order_release);
        });
        while (!abort->done.load(std::memory_order_acquire)) pause_until_deadline("NCCL's ncclCommAbort");
    }
    [[nodiscard, gnu::cold]] std::string failure() {
        const std::lock_guard guard(failing_);
        return message_;
    }

    int ranks_;
    Heartbeats& beats_;
    NcclLimits limits_;
    Calls calls_;
    std::deque<Member> mine_;
    bool started_ = false;
    std::atomic<bool> failed_ = false;
    std::mutex failing_;
    std::string message_;
};

/// The id of this training's communicator, for a process whose first rank is `first_rank`: from the environment; or from
/// the file, which rank 0's process writes and the others wait for; or, without either, made for this process alone.
template <class Calls>
[[nodiscard, gnu::cold]] CommunicatorId agree_on_id(NcclCommunicators<Calls>& communicators, int first_rank,
                                                    const std::string& path, double seconds, Calls calls = {}) {
    if (const auto id = communicator_id_of_environment()) return *id;
    if (!path.empty() && first_rank != 0) {
        return await_communicator_id(
            path, seconds, [&] { return calls.now(); }, [&] { calls.pause(); });
    }
    const CommunicatorId id = communicators.make_id();
    if (!path.empty()) write_communicator_id(path, id);
    return id;
}

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
