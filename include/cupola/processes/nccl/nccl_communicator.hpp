// SPDX-License-Identifier: Apache-2.0
//
// NcclCommunicators: NCCL's communicators for the GPUs of one process, such that no wait can hang:
//
// - All calls are non-blocking. After each group of calls, NCCL is polled until it is no longer "in progress", before
//   the next call.
// - Each wait has a deadline; during the wait this rank's heartbeat continues and the others' are watched.
// - After a failure every waiting thread ends with the same error: nccl_ranks.hpp.
//
// In non-blocking mode NCCL starts a thread for each group, which takes an estimated 50 to 100 us of host time until
// the calls are on their streams. Blocking communicators do not need a thread. But a thread can then hang in a call,
// and NVIDIA's manual ("Fault Tolerance") allows an abort only while no thread is in a call, and so requires
// non-blocking communicators for programs that abort. Calls captured in a graph do not need a thread either, but
// ncclCommAbort waits until every graph with a call of the communicator is destroyed, and graphs of several GPUs of one
// process can deadlock ("Using NCCL with CUDA Graphs"). So the calls that a step can make together are in one group:
// see NcclBucketAllReduce.
//
// `Calls` is the table of functions, so that all of this can be tested without a GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cupola/core/error.hpp>
#include <cupola/device/wait_until.hpp>
#include <cupola/processes/nccl/communicator_id.hpp>
#include <cupola/processes/nccl/nccl_calls.hpp>
#include <cupola/processes/nccl/nccl_ranks.hpp>
#include <cupola/processes/watch/heartbeats.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// queue() and wait() may be called by one thread per rank, each for its own rank; start() and finish() by one thread.
template <class Calls = NcclCalls>
class NcclCommunicators : private NcclRanks<Calls> {
    using Ranks = NcclRanks<Calls>;
    using Ranks::aborted, Ranks::check, Ranks::check_alive, Ranks::check_agreement_requested, Ranks::expire,
        Ranks::fail, Ranks::failure, Ranks::call_unless_failed;
    using Ranks::heartbeats_, Ranks::calls_, Ranks::limits_, Ranks::mine_, Ranks::ranks_;
    using typename Ranks::Member;

public:
    NcclCommunicators(int ranks, const std::vector<NcclRank>& mine, Heartbeats& beats, const NcclLimits& limits = {},
                      Calls calls = {})
        : Ranks(ranks, mine, beats, limits, std::move(calls)) {}
    NcclCommunicators(const NcclCommunicators&) = delete;
    NcclCommunicators& operator=(const NcclCommunicators&) = delete;
    ~NcclCommunicators() {
        try {
            finish();
        } catch (const DeviceError&) {  // the ranks are aborted; no thread waits for them any more
        }
    }

    /// Creates the unique id with which all ranks start. Rank 0's process must live until the others have started.
    [[nodiscard]] CommunicatorId make_id() {
        static_assert(sizeof(ncclUniqueId) == communicator_id_bytes);
        ncclUniqueId id{};
        const ncclResult_t status = calls_.make_id(&id);
        require<DeviceError>(status == ncclSuccess, "NCCL's ncclGetUniqueId failed with ", calls_.error_string(status));
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
            if (status != cudaSuccess || fails(member.status)) failing = i;
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

    /// Uses existing communicators, one per rank of this process.
    void adopt(const std::vector<void*>& communicators) {
        require(communicators.size() == mine_.size(), "communicators of ", communicators.size(),
                " ranks for a process of ", mine_.size());
        for (std::size_t i = 0; i < communicators.size(); ++i)
            mine_[i].communicator = static_cast<ncclComm_t>(communicators[i]);
        started_ = true;
    }

    /// The group of calls of one rank, on one stream.
    class Group {
    public:
        /// All-reduce: values[i] = the sum of all ranks' values[i]. NCCL adds bfloat16 values in bfloat16.
        template <class Element>
        void sum(std::span<Element> values) {
            make("ncclAllReduce", [&] { return calls_.sum(values.data(), values.size(), among_, stream_); });
        }
        /// All-gather: `all` receives the bytes `mine` of each rank, in the order of the ranks.
        void gather(std::span<const std::byte> mine, std::span<std::byte> all) {
            make("ncclAllGather", [&] { return calls_.gather(mine.data(), all.data(), mine.size(), among_, stream_); });
        }

    private:
        friend class NcclCommunicators;
        Group(Calls& calls, ncclComm_t among, cudaStream_t stream) : calls_(calls), among_(among), stream_(stream) {}

        /// Makes no further call after one has failed.
        template <class Call>
        void make(const char* name, Call call) {
            if (fails(status_)) return;
            status_ = call();
            name_ = name;
        }

        Calls& calls_;
        ncclComm_t among_;
        cudaStream_t stream_;
        ncclResult_t status_ = ncclSuccess;
        const char* name_ = "";
    };

    /// Queues one group of calls for the `index`-th rank of this process: those that `calls(group)` makes, which must
    /// not throw. When this returns they are on `stream`.
    template <class MakeCalls>
    void queue(std::size_t index, cudaStream_t stream, const NcclWork& work, MakeCalls calls) {
        Member& member = begin_call(index);
        const char* call = "ncclGroupStart";
        const ncclResult_t status = call_unless_failed(member, [&] {
            if (const ncclResult_t opened = calls_.group_start(); fails(opened)) return opened;
            Group group(calls_, member.communicator, stream);
            calls(group);
            // A group that was opened is closed in every case.
            const ncclResult_t closed = calls_.group_end();
            call = fails(group.status_) ? group.name_ : "ncclGroupEnd";
            return fails(group.status_) ? group.status_ : closed;
        });
        check(member, work, call, status);
        synchronize(member, work, limits_.step_seconds);
    }

    /// Waits until `event`, which was recorded after `work`, is complete.
    void wait(std::size_t index, cudaEvent_t event, const NcclWork& work) {
        Member& member = mine_[index];
        Wait wait(*this, member, work, limits_.step_seconds);
        while (!is_complete(member, event, work)) wait.poll();
    }

    /// Whether `event` is complete, without waiting for it. Throws like a wait() that began at `since`.
    [[nodiscard]] bool poll(std::size_t index, cudaEvent_t event, const NcclWork& work, double since) {
        Member& member = mine_[index];
        member.deadline = since + limits_.step_seconds;
        if (is_complete(member, event, work)) return true;
        check_alive();
        heartbeats_.beat(member.place.rank);
        const double now = calls_.now();
        member.watch.update(now);
        check_agreement_requested(member, work, now);
        if (now - since >= limits_.step_seconds) expire(member, work, limits_.step_seconds);
        return false;
    }
    /// The time in seconds of the clock that poll() uses.
    [[nodiscard]] double now() { return calls_.now(); }

    using Ranks::failed;

    /// Aborts all sums, because this rank will not take part in them: its device failed elsewhere.
    [[gnu::cold]] void break_off(std::size_t index, const NcclWork& work, const std::string& why) {
        try {
            fail(mine_[index], work, why);
        } catch (const DeviceError&) {  // the waiting threads receive the error
        }
    }

    /// After a failure: waits until `event`, which was recorded after aborted sums, is complete, so that the device no
    /// longer uses their memory. The work of a device that failed has ended too. Ends the process if this takes longer
    /// than abort_seconds.
    [[gnu::cold]] void wait_for_broken_off(std::size_t index, cudaEvent_t event) {
        double start = calls_.now();
        for (int polls = 0; calls_.query(event) == cudaErrorNotReady; polls += polls < max_turns_before_sleep ? 1 : 0) {
            // The abort, in another thread, has its own deadline.
            if (failed() && !aborted()) start = calls_.now();
            const double waited = calls_.now() - start;
            if (waited >= limits_.abort_seconds) {
                calls_.end_process(text(failure(), "; ", limits_.abort_seconds, " s later device ",
                                        mine_[index].place.device,
                                        " had not ended what was queued, and this process was ended"));
            }
            back_off(polls, waited);
        }
    }

    /// Destroys the communicators, together with all other ranks; called at the end of a training or by the destructor.
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
    [[nodiscard]] static bool fails(ncclResult_t status) { return status != ncclSuccess && status != ncclInProgress; }

    /// One wait of one rank.
    class Wait {
    public:
        /// `for_all`: the calling thread waits for all ranks of the process.
        Wait(NcclCommunicators& all, Member& member, const NcclWork& work, double seconds, bool for_all = false)
            : all_(all), member_(member), work_(work), seconds_(seconds), start_(all.calls_.now()), for_all_(for_all) {
            member.watch.restart(start_);
            member.deadline = start_ + seconds;
        }
        /// Increments the heartbeat, checks for errors and throws them, and pauses.
        void poll() {
            all_.check_alive();
            for (const Member& each : all_.mine_) {
                if (for_all_ || &each == &member_) all_.heartbeats_.beat(each.place.rank);
            }
            const double now = all_.calls_.now();
            member_.watch.update(now);
            all_.check_agreement_requested(member_, work_, now);
            if (now - start_ >= seconds_) all_.expire(member_, work_, seconds_);
            polls_ += polls_ <= max_turns_before_sleep ? 1 : 0;
            all_.back_off(polls_ - 1, now - start_);
        }

    private:
        NcclCommunicators& all_;
        Member& member_;
        const NcclWork& work_;
        double seconds_, start_;
        bool for_all_;
        int polls_ = 0;
    };

    /// Pauses after an unsuccessful poll.
    void back_off(int polls, double waited) {
        if (sleeps_after(polls, waited)) return calls_.pause();
        if (polls >= turns_before_sleep) calls_.yield();
    }

    /// The member of a rank, with its deadline set for a call of a collective.
    [[nodiscard]] Member& begin_call(std::size_t index) {
        Member& member = mine_[index];
        const double now = calls_.now();
        member.watch.restart(now);
        member.deadline = now + limits_.step_seconds;
        return member;
    }
    [[nodiscard]] bool is_complete(Member& member, cudaEvent_t event, const NcclWork& work) {
        const cudaError_t status = calls_.query(event);
        if (status == cudaSuccess) {
            check_alive();  // an abort also ends work that was queued
            return true;
        }
        if (status != cudaErrorNotReady)
            fail(member, work, text("CUDA's cudaEventQuery failed with ", cudaGetErrorString(status)));
        [[maybe_unused]] const bool complete = is_call_complete(member, work);
        return false;
    }
    /// Whether NCCL has completed the last call. Throws its error.
    [[nodiscard]] bool is_call_complete(Member& member, const NcclWork& work) {
        ncclResult_t state = ncclSuccess;
        check(member, work, "ncclCommGetAsyncError",
              call_unless_failed(member, [&] { return calls_.state(member.communicator, &state); }));
        if (state == ncclInProgress) return false;
        check(member, work, "last call", state);
        return true;
    }
    void synchronize(Member& member, const NcclWork& work, double seconds, bool for_all = false) {
        Wait wait(*this, member, work, seconds, for_all);
        while (!is_call_complete(member, work)) wait.poll();
        heartbeats_.beat(member.place.rank);
    }

    bool started_ = false;
};

/// The unique id for a process whose first rank is `first_rank`: from the environment; or from the file, which rank 0's
/// process writes and the others wait for; or, with neither, created for this process alone.
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

}}}  // namespace cupola::CUPOLA_ABI::impl
