// SPDX-License-Identifier: Apache-2.0
//
// The waits, deadlines and errors of NCCL's communicators, by a table of functions that plays NCCL, CUDA and the clock:
// what it takes to test them without a GPU. And how ranks learn the communicator's number and of each other's
// heartbeats.
#include "../../test.hpp"

#include <cerrno>
#include <mutex>
#include <stdexcept>

#include <unistd.h>

#include <cupola/processes/nccl/nccl_communicator.hpp>

#include "../../child_process.hpp"
#include "../../temporary_folder.hpp"
#include "../../throws_with.hpp"

using namespace impl;

namespace {

/// Replaces the function that ends the process.
struct Ended : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// Replaces the function that ends a process because of others.
struct Left : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// The behavior of the fake NCCL, and its calls in order.
struct Script {
    std::vector<std::string> calls;
    std::map<ncclComm_t, int> in_progress;         // how often a rank is still in progress
    std::map<ncclComm_t, ncclResult_t> errors;     // what a rank's last call came to
    std::map<std::string, ncclResult_t> statuses;  // what a call returns at once
    std::map<cudaEvent_t, int> pending;            // how often an event has not happened yet; -1 is never
    std::map<int, ncclComm_t> made;
    std::map<ncclComm_t, ncclComm_t*> shrinks;  // where a rank's shrunken communicator will be
    std::string last_error;
    double time = 1000, pause = 0.5, poll = 0;  // of a pause, and of a question for the time
    int device = 7, sleeps = 0;
    std::atomic<int> yields = 0;
    bool abort_hangs = false, no_thread = false;
    std::function<void()> each_turn = [] {};

    [[nodiscard]] int count(const std::string& call) const {
        int result = 0;
        for (const std::string& each : calls) result += each == call ? 1 : 0;
        return result;
    }
    [[nodiscard]] std::size_t first(const std::string& call) const {
        for (std::size_t i = 0; i < calls.size(); ++i) {
            if (calls[i] == call) return i;
        }
        return calls.size();
    }
};

template <class T>
T handle(std::uintptr_t number) {
    return reinterpret_cast<T>(number);
}

struct FakeCalls {
    Script* script;

    ncclResult_t noted(const std::string& call) {
        script->calls.push_back(call);
        const auto found = script->statuses.find(call);
        return found == script->statuses.end() ? ncclSuccess : found->second;
    }
    static std::string of(ncclComm_t communicator) {
        return text(reinterpret_cast<std::uintptr_t>(communicator) - 100);
    }

    ncclResult_t make_id(ncclUniqueId* id) {
        id->internal[3] = 'x';
        return noted("make_id");
    }
    ncclResult_t group_start() { return noted("group_start"); }
    ncclResult_t group_end() { return noted("group_end"); }
    ncclResult_t init_rank(ncclComm_t* made, int ranks, const ncclUniqueId& id, int rank, ncclConfig_t* config) {
        CHECK(config->blocking == 0);
        CHECK(id.internal[3] == 'x');
        CHECK(rank < ranks);
        *made = handle<ncclComm_t>(100 + static_cast<std::uintptr_t>(rank));
        script->made[rank] = *made;
        return noted(text("init ", rank, " on ", script->device));
    }
    ncclResult_t state(ncclComm_t of, ncclResult_t* state) {
        if (of == nullptr) return ncclInvalidArgument;
        int& left = script->in_progress[of];
        *state = left == 0 ? script->errors[of] : ncclInProgress;
        if (left > 0) --left;
        if (*state == ncclSuccess) {
            if (const auto found = script->shrinks.find(of); found != script->shrinks.end()) {
                *found->second = handle<ncclComm_t>(reinterpret_cast<std::uintptr_t>(of) + 100);
                script->shrinks.erase(found);
            }
        }
        return ncclSuccess;
    }
    ncclResult_t sum(float*, std::size_t count, ncclComm_t among, cudaStream_t) {
        return noted(text("sum ", of(among), " of ", count));
    }
    ncclResult_t gather(const std::byte*, std::byte*, std::size_t bytes, ncclComm_t among, cudaStream_t) {
        return noted(text("gather ", of(among), " of ", bytes));
    }
    ncclResult_t finalize(ncclComm_t communicator) { return noted("finalize " + of(communicator)); }
    ncclResult_t destroy(ncclComm_t communicator) { return noted("destroy " + of(communicator)); }
    ncclResult_t abort(ncclComm_t communicator) { return noted("abort " + of(communicator)); }
    std::string cannot_shrink() { return {}; }
    /// As NCCL does: not while the last call is in progress, and `made` is null until this one has ended.
    ncclResult_t shrink(ncclComm_t of_, std::vector<int>& lost, ncclComm_t* made, ncclConfig_t* config) {
        CHECK(config->blocking == 0);
        std::string call = "shrink " + of(of_) + " without";
        for (const int rank : lost) call += text(' ', rank);
        if (script->in_progress[of_] > 0) return ncclInvalidArgument;
        *made = nullptr;
        script->shrinks[of_] = made;
        script->in_progress[of_] = 3;
        const ncclResult_t called = noted(call);
        return called == ncclSuccess ? ncclInProgress : called;
    }
    const char* error_string(ncclResult_t result) {
        if (result == ncclInvalidArgument) return "invalid argument";
        return result == ncclRemoteError ? "remote process exited" : "unhandled system error";
    }
    const char* last_error(ncclComm_t) { return script->last_error.c_str(); }
    cudaError_t device(int* device) {
        *device = script->device;
        return cudaSuccess;
    }
    cudaError_t set_device(int device) {
        script->device = device;
        return device < 100 ? cudaSuccess : cudaErrorInvalidDevice;
    }
    cudaError_t query(cudaEvent_t event) {
        int& left = script->pending[event];
        if (left > 0) --left;
        return left == 0 ? cudaSuccess : cudaErrorNotReady;
    }
    double now() { return script->time += script->poll; }
    /// A yield takes as long as the other processes of a busy machine run.
    void yield() { ++script->yields; }
    void pause() {
        ++script->sleeps;
        script->time += script->pause;
        if (script->sleeps > 1'000'000) throw std::runtime_error("a wait without end");
        script->each_turn();
    }
    void run_detached(const std::function<void()>& job) {
        noted("run_detached");
        if (script->no_thread) impl::throw_thread_error({.what = "the abort of the communicators"}, EAGAIN);
        if (!script->abort_hangs) job();
    }
    [[noreturn]] void end_process(const std::string& message) { throw Ended(message); }
    [[noreturn]] void exit_on_peer_failure(int process, const std::string& folder, const std::string& message) {
        throw Left(text(process, " to ", folder, ": ", message));
    }
};

/// Two of four ranks, on GPUs 2 and 5; the others beat as long as `others_beat` says.
struct Training {
    Script script;
    Heartbeats beats{4};
    NcclCommunicators<FakeCalls> communicators;

    explicit Training(const std::string& folder = {}, const std::vector<NcclRank>& mine = {{1, 2, 3}, {2, 5, 6}},
                      int process = 0, NcclEnvironment* environment = nullptr)
        : communicators(4, mine, beats,
                        NcclLimits{.start_seconds = 20,
                                   .step_seconds = 10,
                                   .heartbeat_seconds = 4,
                                   .abort_seconds = 7,
                                   .folder = folder,
                                   .process = process,
                                   .environment = environment},
                        FakeCalls{&script}) {
        script.each_turn = [this] {
            for (const int rank : {0, 2, 3}) beats.beat(rank);
        };
    }
    void start() { communicators.start(communicators.make_id()); }
};

/// One that has started; the calls of the start are forgotten.
struct Started : Training {
    Started() {
        start();
        script.calls.clear();
    }
};

const auto event = handle<cudaEvent_t>(9);
const NcclWork work{"the sum of the gradients", 57};

float no_values[11]{};

/// A group of one sum.
template <class Communicators>
void sum(Communicators& communicators, std::size_t index, std::size_t count, const NcclWork& of = work) {
    communicators.queue(index, nullptr, of, [&](auto& group) { group.sum(std::span<float>(no_values).first(count)); });
}

}  // namespace

TEST_CASE("ranks start in one group, each on its GPU, and are waited for") {
    Training training;
    training.script.in_progress = {{handle<ncclComm_t>(101), 3}, {handle<ncclComm_t>(102), 2}};
    training.start();
    CHECK(training.script.calls ==
          std::vector<std::string>{"make_id", "group_start", "init 1 on 2", "init 2 on 5", "group_end"});
    CHECK(training.script.device == 7);
    CHECK(training.script.in_progress[handle<ncclComm_t>(101)] == 0);
    CHECK(training.script.in_progress[handle<ncclComm_t>(102)] == 0);
    CHECK(training.beats.count(1) > 0);
}

TEST_CASE("a sum is complete before anything else is called, and its event is waited for") {
    Started training;
    training.script.in_progress[handle<ncclComm_t>(102)] = 2;
    sum(training.communicators, 1, 11);
    CHECK(training.script.calls.back() == "group_end");
    CHECK(training.script.count("sum 2 of 11") == 1);
    CHECK(training.script.in_progress[handle<ncclComm_t>(102)] == 0);
    training.script.pending[event] = 5;
    training.communicators.wait(1, event, work);
    CHECK_FALSE(training.communicators.failed());
}

TEST_CASE("the calls of a group are made together, and one that fails is named and the last") {
    Started training;
    float weight[4]{}, values[11]{};
    std::byte mine[8]{}, all[32]{};
    const auto calls = [&](auto& group) {
        group.sum(std::span<float>(weight));
        group.sum(std::span<float>(values));
        group.gather(mine, all);
    };
    training.script.in_progress[handle<ncclComm_t>(102)] = 2;
    training.communicators.queue(1, nullptr, work, calls);
    CHECK(training.script.calls ==
          std::vector<std::string>{"group_start", "sum 2 of 4", "sum 2 of 11", "gather 2 of 8", "group_end"});
    CHECK(training.script.in_progress[handle<ncclComm_t>(102)] == 0);
    training.script.calls.clear();
    SUBCASE("a call") {
        training.script.statuses = {{"sum 2 of 11", ncclInvalidUsage}, {"group_end", ncclInvalidUsage}};
        CHECK(contains(message_of<DeviceError>([&] { training.communicators.queue(1, nullptr, work, calls); }),
                       "in the sum of the gradients of step 57: NCCL's ncclAllReduce failed with "));
        CHECK(training.script.count("gather 2 of 8") == 0);
        CHECK(training.script.first("group_end") < training.script.first("run_detached"));
    }
    SUBCASE("the end of the group") {
        training.script.statuses["group_end"] = ncclSystemError;
        CHECK(contains(message_of<DeviceError>([&] { training.communicators.queue(1, nullptr, work, calls); }),
                       "NCCL's ncclGroupEnd failed with unhandled system error"));
    }
}

TEST_CASE("a wait that ends within 200 us never sleeps, however fast it polls, and a long one leaves the core") {
    for (const double poll : {50e-9, 200e-9, 2e-6}) {
        CAPTURE(poll);
        Training training;
        training.script.poll = poll;
        training.script.pause = 100e-6;
        const auto usual = static_cast<int>(190e-6 / poll);
        training.script.in_progress[handle<ncclComm_t>(101)] = usual;
        training.start();
        training.script.in_progress[handle<ncclComm_t>(102)] = usual;
        sum(training.communicators, 1, 11);
        training.script.pending[event] = usual;
        training.communicators.wait(1, event, work);
        CHECK(training.script.sleeps == 0);
        CHECK((training.script.yields > 0) == (usual > impl::turns_before_sleep));
        // At most 5 % of 100 ms and more are polled.
        training.script.pending[event] = static_cast<int>(2e-3 / poll) + 2000;
        const double begin = training.script.time;
        training.communicators.wait(1, event, work);
        const double slept = training.script.sleeps * training.script.pause, all = training.script.time - begin;
        CHECK(slept >= 0.1);
        CHECK(all - slept < 0.05 * all);
    }
}

TEST_CASE("at the end all ranks are finalized before one is destroyed, and nothing is aborted") {
    Script script;
    {
        Heartbeats beats(1);
        NcclCommunicators<FakeCalls> communicators(1, {NcclRank{}}, beats, {}, FakeCalls{&script});
        communicators.start(communicators.make_id());
        communicators.finish();
        CHECK(script.first("finalize 0") < script.first("destroy 0"));
    }
    CHECK(script.count("finalize 0") == 1);
    CHECK(script.count("destroy 0") == 1);
    CHECK(script.count("abort 0") == 0);
}

TEST_CASE(
    "a wait that outlasts its deadline aborts every rank of the process, and names the ranks whose heartbeats stopped") {
    Started training;
    training.script.pending[event] = -1;
    double stopped = 0;
    training.script.each_turn = [&] {
        // Ranks 0 and 3 die after 2 of the 10 seconds; rank 2 is this process's other.
        training.beats.beat(2);
        if (training.script.time < 1002) training.beats.beat(0), training.beats.beat(3), stopped = training.script.time;
    };
    const std::string message = message_of<DeviceError>([&] { training.communicators.wait(0, event, work); });
    CHECK(
        message ==
        "replica 3 (rank 1 of 4) in the sum of the gradients of step 57: it is not done after 10 s; the heartbeats of ranks 0 "
        "and 3 have stopped");
    CHECK(training.script.time == doctest::Approx(1010));
    CHECK(training.script.calls ==
          std::vector<std::string>{"run_detached", "group_start", "abort 1", "abort 2", "group_end"});
    CHECK(training.communicators.failed());
    // The other rank's thread ends with the same error, and calls nothing more.
    CHECK(message_of<DeviceError>([&] { sum(training.communicators, 1, 11); }) == message);
    CHECK(message_of<DeviceError>([&] { training.communicators.wait(1, event, work); }) == message);
    CHECK(training.script.calls.size() == 5);
}

TEST_CASE("a deadline with all heartbeats continuing is reported as such") {
    Started training;
    training.script.pending[event] = -1;
    CHECK(contains(message_of<DeviceError>([&] { training.communicators.wait(0, event, work); }),
                   "; the heartbeats of all ranks continue: one rank is late, or waits for another collective"));
}

TEST_CASE("a start whose other ranks are missing ends at its own deadline") {
    Training training;
    training.script.in_progress[handle<ncclComm_t>(101)] = 1'000'000;
    training.script.each_turn = [] {};
    CHECK(
        message_of<DeviceError>([&] { training.start(); }) ==
        "replica 3 (rank 1 of 4) in the start of the communicator: it is not done after 20 s; no heartbeat of ranks 0 and 3 was "
        "ever seen: they have not started, or are on another machine");
    CHECK(training.script.count("abort 1") == 1);
    CHECK(training.script.count("abort 2") == 1);
}

TEST_CASE("an error of NCCL is reported with the call, its meaning, and NCCL's last error text") {
    Started training;
    training.script.last_error = "peer 3 closed the connection";
    SUBCASE("at once") {
        training.script.statuses["sum 1 of 5"] = ncclSystemError;
        CHECK(
            message_of<DeviceError>([&] { sum(training.communicators, 0, 5); }) ==
            "replica 3 (rank 1 of 4) in the sum of the gradients of step 57: NCCL's ncclAllReduce failed with unhandled system error (peer 3 "
            "closed the connection); the heartbeats of all ranks continue: one rank is late, or waits for another collective");
    }
    SUBCASE("later, while its event is waited for") {
        training.script.pending[event] = -1;
        training.script.errors[handle<ncclComm_t>(101)] = ncclRemoteError;
        CHECK(contains(message_of<DeviceError>([&] { training.communicators.wait(0, event, work); }),
                       "step 57: NCCL's last call failed with remote process exited (peer 3 closed the connection); "));
    }
    CHECK(training.script.count("abort 1") == 1);
    CHECK(training.script.count("abort 2") == 1);
}

TEST_CASE(
    "an error that is caused by a dead rank names that rank: its heartbeat is checked first, while this process's continue") {
    Started training;
    training.script.pending[event] = -1;
    training.beats.beat(3);
    const std::uint64_t before = training.beats.count(2);
    // Rank 3 dies, and NCCL sees it 2 seconds before a heartbeat would be missed.
    training.script.each_turn = [&] {
        training.beats.beat(0);
        if (training.script.time >= 1002) training.script.errors[handle<ncclComm_t>(101)] = ncclRemoteError;
    };
    training.script.time = 1000;
    CHECK(
        message_of<DeviceError>([&] { training.communicators.wait(0, event, work); }) ==
        "replica 3 (rank 1 of 4) in the sum of the gradients of step 57: NCCL's last call failed with remote process exited; the heartbeat of "
        "rank 3 has stopped");
    CHECK(training.script.time <= 1002 + 4);
    CHECK(training.beats.count(2) > before);
    CHECK(training.communicators.failed());
}

TEST_CASE(
    "with a folder a process that waits in vain leaves with the ranks and processes that are missing, and aborts nothing") {
    Training training("run", {{0, 2, 3}, {1, 5, 6}});
    training.start();
    training.script.pending[event] = -1;
    SUBCASE("at the deadline") {
        training.script.each_turn = [&] { training.beats.beat(1); };
        CHECK(
            message_of<Left>([&] { training.communicators.wait(0, event, work); }) ==
            "0 to run: process 0: replica 3 (rank 0 of 4) in the sum of the gradients of step 57: it is not done after "
            "10 s; no heartbeat of ranks 2 and 3 was ever seen: they have not started, or are on another machine; "
            "missing: process 1");
        CHECK(training.script.time == doctest::Approx(1010));
    }
    SUBCASE("after an error of NCCL shortly before the deadline, still within a second of it") {
        training.beats.beat(3);
        training.script.each_turn = [&] {
            training.beats.beat(1);
            training.beats.beat(2);
            if (training.script.time >= 1009) training.script.errors[handle<ncclComm_t>(100)] = ncclRemoteError;
        };
        CHECK(message_of<Left>([&] { training.communicators.wait(0, event, work); }) ==
              "0 to run: process 0: replica 3 (rank 0 of 4) in the sum of the gradients of step 57: NCCL's last call "
              "failed with remote process exited; the heartbeat of rank 3 has stopped; missing: process 1");
        CHECK(training.script.time < 1011);
    }
    SUBCASE("in the exchange of reports") {
        training.script.in_progress[handle<ncclComm_t>(100)] = 1'000'000;
        training.script.each_turn = [] {};
        CHECK(contains(message_of<Left>([&] {
                           training.communicators.queue(0, nullptr, {"the exchange of the replicas' reports", 4},
                                                        [](auto& group) { group.gather({}, {}); });
                       }),
                       "in the exchange of the replicas' reports of step 4: it is not done after 10 s; "));
    }
    CHECK(training.script.count("abort 0") == 0);
}

TEST_CASE("with a folder an error of the process itself is thrown, and one process aborts its ranks as without") {
    Training training("run", {{0, 2, 3}, {1, 5, 6}});
    training.start();
    training.communicators.break_off(0, work, "an illegal memory access was encountered");
    CHECK(training.communicators.failed());
    CHECK(training.script.count("abort 0") == 1);

    Training alone("run", {{0, 0, 0}, {1, 1, 1}, {2, 2, 2}, {3, 3, 3}});
    alone.start();
    alone.script.pending[event] = -1;
    CHECK(contains(message_of<DeviceError>([&] { alone.communicators.wait(0, event, work); }),
                   "it is not done after 10 s"));
    CHECK(alone.script.count("abort 3") == 1);
}

TEST_CASE("an error of this rank itself does not mention the heartbeats of the others") {
    Started training;
    training.script.statuses["sum 1 of 5"] = ncclInvalidUsage;
    training.script.each_turn = [] {};
    CHECK(
        message_of<DeviceError>([&] {
            sum(training.communicators, 0, 5, NcclWork{"the sum of the gradients", 0});
        }) ==
        "replica 3 (rank 1 of 4) in the sum of the gradients of step 0: NCCL's ncclAllReduce failed with unhandled system error");
}

TEST_CASE("a start that fails closes its group before anything is aborted") {
    Training training;
    training.script.statuses["init 2 on 5"] = ncclInvalidUsage;
    CHECK(contains(
        message_of<DeviceError>([&] { training.start(); }),
        "replica 6 (rank 2 of 4) in the start of the communicator: NCCL's ncclCommInitRankConfig failed with "));
    CHECK(training.script.first("group_end") < training.script.first("abort 1"));
    CHECK(training.script.device == 7);
}

TEST_CASE("a missing GPU ends the start") {
    Script script;
    Heartbeats beats(1);
    NcclCommunicators<FakeCalls> communicators(1, {NcclRank{0, 100, 0}}, beats, {}, FakeCalls{&script});
    CHECK(contains(message_of<DeviceError>([&] { communicators.start(communicators.make_id()); }),
                   "CUDA's cudaSetDevice failed with "));
    CHECK(script.count("group_end") == 1);
}

TEST_CASE("an abort that does not return ends the process at its deadline, with the error") {
    Started training;
    training.script.abort_hangs = true;
    training.script.statuses["sum 1 of 5"] = ncclInvalidUsage;
    training.script.pause = 0.25;
    const double start = training.script.time;
    CHECK(
        message_of<Ended>([&] { sum(training.communicators, 0, 5); }) ==
        "replica 3 (rank 1 of 4) in the sum of the gradients of step 57: NCCL's ncclAllReduce failed with unhandled system error; "
        "NCCL's ncclCommAbort had not returned 7 s later, and this process was ended");
    CHECK(training.script.time == start + 7);
    CHECK(training.script.count("abort 1") == 0);
}

TEST_CASE("an abort for which there is no thread ends the process at once, with the error") {
    Started training;
    training.script.no_thread = true;
    training.script.statuses["sum 1 of 5"] = ncclInvalidUsage;
    const double start = training.script.time;
    CHECK(
        message_of<Ended>([&] { sum(training.communicators, 0, 5); }) ==
        "replica 3 (rank 1 of 4) in the sum of the gradients of step 57: NCCL's ncclAllReduce failed with unhandled system error; "
        "only 0 of 1 thread for the abort of the communicators could be started: Resource temporarily unavailable (error 11), "
        "and this process was ended");
    CHECK(training.script.time == start);
}

TEST_CASE("a call that does not return in another thread does not delay the end of the process") {
    struct Calls : FakeCalls {
        std::atomic<bool>*hangs, *released;
        std::atomic<double>* time;
        ncclResult_t sum(float*, std::size_t, ncclComm_t, cudaStream_t) {
            *hangs = true;
            while (!*released) usleep(100);
            return ncclSuccess;
        }
        double now() { return *time; }
        void pause() { *time = *time + 0.25; }
    };
    Script script;
    std::atomic<bool> hangs = false, released = false;
    std::atomic<double> time = 0;
    Calls calls;
    calls.script = &script;
    calls.hangs = &hangs;
    calls.released = &released;
    calls.time = &time;
    Heartbeats beats(2);
    NcclCommunicators<Calls> communicators(2, {NcclRank{0, 0, 0}, NcclRank{1, 1, 1}}, beats, {.abort_seconds = 7},
                                           calls);
    communicators.start(communicators.make_id());
    std::string message;
    std::thread hanging([&] { message = message_of<DeviceError>([&] { sum(communicators, 1, 5); }); });
    while (!hangs) usleep(100);
    CHECK(
        message_of<Ended>([&] { communicators.break_off(0, work, "it failed"); }) ==
        "replica 0 (rank 0 of 2) in the sum of the gradients of step 57: it failed; a call of NCCL by another thread had not "
        "returned 7 s later, and this process was ended");
    released = true;
    hanging.join();
    CHECK(message == "replica 0 (rank 0 of 2) in the sum of the gradients of step 57: it failed");
}

TEST_CASE("after a failure a device is waited for until the abort's deadline, and then the process ends") {
    Started training;
    training.communicators.break_off(1, work, "an illegal memory access was encountered");
    training.script.pending[event] = 21'000;
    training.script.pause = 0.001;
    training.communicators.wait_for_broken_off(1, event);
    CHECK(training.script.pending[event] == 0);
    training.script.pending[event] = -1;
    training.script.pause = 0.25;
    const double start = training.script.time;
    CHECK(
        message_of<Ended>([&] { training.communicators.wait_for_broken_off(1, event); }) ==
        "replica 6 (rank 2 of 4) in the sum of the gradients of step 57: an illegal memory access was encountered; 7 s later "
        "device 5 had not ended what was queued, and this process was ended");
    CHECK(training.script.time == start + 7);
}

TEST_CASE("threads of a process that fail at once end with one error, and each communicator is aborted once") {
    for (int round = 0; round < 20; ++round) {
        Script scripts[2];
        Heartbeats beats(2);
        // The two ranks' calls are noted apart: only the abort is of one thread for both.
        std::atomic<int> aborts = 0;
        struct Calls : FakeCalls {
            std::atomic<int>* aborts;
            std::atomic<double>* time;
            ncclResult_t abort(ncclComm_t) { return ++*aborts, ncclSuccess; }
            ncclResult_t state(ncclComm_t, ncclResult_t* state) { return *state = ncclSuccess, ncclSuccess; }
            cudaError_t query(cudaEvent_t) { return cudaErrorNotReady; }
            double now() { return *time; }
            void pause() { *time = *time + 0.01; }
        };
        std::atomic<double> time = 0;
        Calls calls;
        calls.script = &scripts[0];
        calls.aborts = &aborts;
        calls.time = &time;
        // Time advances with each thread's pauses, however late the other thread is.
        NcclCommunicators<Calls> communicators(2, {NcclRank{0, 0, 0}, NcclRank{1, 1, 1}}, beats,
                                               {.step_seconds = 1, .abort_seconds = 1e9}, calls);
        communicators.start(communicators.make_id());
        std::string messages[2];
        std::vector<std::thread> threads;
        for (std::size_t i = 0; i < 2; ++i) {
            threads.emplace_back([&, i] {
                messages[i] = message_of<DeviceError>([&] { communicators.wait(i, handle<cudaEvent_t>(1), work); });
            });
        }
        for (std::thread& thread : threads) thread.join();
        CHECK(contains(messages[0], "it is not done after 1 s"));
        CHECK(messages[0] == messages[1]);
        CHECK(aborts == 2);
    }
}

TEST_CASE(
    "ranks that are left shrink their communicators once no call is in progress, and take them when they are made") {
    const std::string name = text("cupola-shrinks-", getpid());
    const auto lose_the_other = [&](Training& training, NcclEnvironment& nccl, ncclResult_t comes_to) {
        {
            const NcclEnvironment other({.name = name, .processes = 2, .process = 1});
            nccl.require_all_found(0);
            training.start();
        }
        training.script.pending[event] = -1;
        training.script.calls.clear();
        const auto all_beat = training.script.each_turn;
        training.script.each_turn = [&training, all_beat, comes_to] {
            all_beat();
            // The last call of rank 1 is in progress again when the deadline comes.
            if (training.script.time >= 1010 && training.script.calls.empty())
                training.script.in_progress[handle<ncclComm_t>(101)] = 5;
            if (training.script.count("shrink 1 without 2 3") == 1)
                training.script.errors[handle<ncclComm_t>(101)] = comes_to;
        };
    };
    const std::vector<NcclRank> mine{{0, 2, 3}, {1, 5, 6}};
    {
        NcclEnvironment nccl({.name = name, .processes = 2, .process = 0});
        Training training({}, mine, 0, &nccl);
        lose_the_other(training, nccl, ncclSuccess);
        CHECK(contains(message_of<ProcessLost>([&] { training.communicators.wait(0, event, work); }),
                       "it is not done after 10 s"));
        CHECK(training.script.calls == std::vector<std::string>{"run_detached", "group_start", "shrink 0 without 2 3",
                                                                "shrink 1 without 2 3", "group_end", "group_start",
                                                                "abort 0", "abort 1", "group_end"});
        CHECK(training.script.device == 7);
        CHECK(nccl.take_communicators() == std::vector<void*>{handle<void*>(200), handle<void*>(201)});
    }
    // An error of the call ends the process: there is no communicator to go on with.
    NcclEnvironment nccl({.name = name, .processes = 2, .process = 0});
    Training training({}, mine, 0, &nccl);
    lose_the_other(training, nccl, ncclRemoteError);
    CHECK(contains(message_of<Ended>([&] { training.communicators.wait(0, event, work); }),
                   "; NCCL's ncclCommShrink failed with remote process exited, and this process was ended"));
}

TEST_CASE("the id is passed through a file completely, and an existing file is rejected") {
    CommunicatorId id{};
    for (std::size_t i = 0; i < id.size(); ++i) id[i] = static_cast<char>(i * 37 + 200);
    CHECK(impl::communicator_id_of(impl::communicator_id_text(id)) == id);
    const TemporaryFolder folder;
    const std::string path = folder.path("id");
    CHECK_FALSE(impl::read_communicator_id(path).has_value());
    impl::write_communicator_id(path, id);
    CHECK(impl::read_communicator_id(path) == id);
    CHECK(message_of<DeviceError>([&] { impl::write_communicator_id(path, id); }) ==
          text("the file ", path,
               " exists already: each start of a training over several processes needs a new file name for NCCL's id"));
    std::ofstream(path) << "something else";
    CHECK(message_of<DeviceError>([&] { static_cast<void>(impl::read_communicator_id(path)); }) ==
          text("the file ", path,
               " does not contain an id of NCCL: it has 14 bytes, and an id has 256 hexadecimal digits"));
    std::filesystem::remove(path);
    CHECK(message_of<DeviceError>([&] { impl::write_communicator_id("/nowhere/id", id); }) ==
          "NCCL's id could not be written to /nowhere/id: No such file or directory");
}

TEST_CASE("a rank waits for the id until its deadline") {
    const TemporaryFolder folder;
    const std::string path = folder.path("late-id");
    double time = 0;
    CommunicatorId id{};
    id[5] = 'y';
    const auto pause = [&] {
        time += 1;
        if (time == 5) impl::write_communicator_id(path, id);
    };
    CHECK(impl::await_communicator_id(
              path, 30, [&] { return time; }, pause) == id);
    CHECK(time == 5);
    std::filesystem::remove(path);
    time = 100;
    CHECK(message_of<DeviceError>([&] {
              static_cast<void>(impl::await_communicator_id(
                  path, 30, [&] { return time; }, pause));
          }) == text("rank 0 has not written NCCL's id to ", path,
                     " within 30 s: check that it was started, with the same id_file"));
    CHECK(time == 130);
}

TEST_CASE("ranks agree on an id by the environment, by a file, or alone") {
    Training training;
    const TemporaryFolder folder;
    const std::string path = folder.path("agreed");
    const CommunicatorId made = impl::agree_on_id(training.communicators, 0, path, 1, FakeCalls{&training.script});
    CHECK(made[3] == 'x');
    CHECK(impl::agree_on_id(training.communicators, 2, path, 1, FakeCalls{&training.script}) == made);
    CHECK(impl::agree_on_id(training.communicators, 0, "", 1, FakeCalls{&training.script}) == made);
    CHECK(training.script.count("make_id") == 2);
    std::filesystem::remove(path);
    CommunicatorId other{};
    setenv(impl::communicator_id_variable, impl::communicator_id_text(other).c_str(), 1);
    CHECK(impl::agree_on_id(training.communicators, 0, path, 1, FakeCalls{&training.script}) == other);
    setenv(impl::communicator_id_variable, "123", 1);
    CHECK(message_of<DeviceError>([&] { static_cast<void>(impl::communicator_id_of_environment()); }) ==
          "the environment variable CUPOLA_NCCL_ID does not contain an id of NCCL: an id has 256 hexadecimal digits");
    unsetenv(impl::communicator_id_variable);
}

TEST_CASE("child: a rank of another process that beats three times" * doctest::skip()) {
    Heartbeats beats(3, std::getenv("CUPOLA_TEST_HEARTBEATS"));
    for (int i = 0; i < 3; ++i) beats.beat(2);
}

TEST_CASE("heartbeats of other processes are seen through a file") {
    const TemporaryFolder folder;
    const std::string path = folder.path("heartbeats");
    Heartbeats beats(3, path);
    beats.beat(0);
    check_in_child("child: a rank of another process that beats three times", {{"CUPOLA_TEST_HEARTBEATS", path}});
    CHECK(beats.count(0) == 1);
    CHECK(beats.count(1) == 0);
    CHECK(beats.count(2) == 3);
    std::filesystem::remove(path);
    CHECK(message_of<DeviceError>([] { Heartbeats(3, "/nowhere/beats"); }) ==
          "the file of heartbeats /nowhere/beats could not be opened: No such file or directory");
}

TEST_CASE("a heartbeat has stopped when it did not change for the given time") {
    Heartbeats beats(3);
    HeartbeatWatch watch(beats, 10);
    CHECK(watch.stopped(10, 5).empty());
    beats.beat(1);
    watch.update(14);
    CHECK(watch.stopped(15, 5) == std::vector<int>{0, 2});
    beats.beat(0);
    beats.beat(2);
    watch.update(16);
    CHECK(watch.stopped(18, 5).empty());
    CHECK(watch.stopped(19.5, 5) == std::vector<int>{1});
    CHECK(impl::stopped_text(watch, 19.5, 5) == "the heartbeat of rank 1 has stopped");
    CHECK(impl::stopped_text(watch, 30, 5) == "the heartbeats of ranks 0, 1 and 2 have stopped");
}

TEST_CASE("a rank without any heartbeat is reported as never seen, beside those that stopped") {
    Heartbeats beats(4);
    HeartbeatWatch watch(beats, 0);
    CHECK(impl::stopped_text(watch, 1, 5) ==
          "the heartbeats of all ranks continue: one rank is late, or waits for another collective");
    beats.beat(0);
    beats.beat(2);
    watch.update(2);
    CHECK(impl::stopped_text(watch, 6, 5) ==
          "no heartbeat of ranks 1 and 3 was ever seen: they have not started, or are on another machine");
    beats.beat(0);
    beats.beat(3);
    watch.update(6);
    CHECK(
        impl::stopped_text(watch, 8, 5) ==
        "the heartbeat of rank 2 has stopped; no heartbeat of rank 1 was ever seen: it has not started, or is on another machine");
}
