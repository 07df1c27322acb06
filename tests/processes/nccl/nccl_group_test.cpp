// SPDX-License-Identifier: Apache-2.0
//
// NcclAllReduce's numbers, and NcclGroup: the ranks of one process, and those of two that are really two, over the
// stand-in for NCCL and the emulator's streams.
#include "../../test.hpp"

#include <unistd.h>

#include <cupola/processes/nccl/nccl_group.hpp>
#include <cupola/processes/nccl_environment.hpp>

#include "../../child_process.hpp"
#include "../../free_port.hpp"
#include "../../gpu/emulator/nccl_behavior.hpp"
#include "../../throws_with.hpp"

using namespace emulator;
using impl::NcclGroup;

namespace {

constexpr std::size_t values_per_sum = 5;

std::string fresh_path(const std::string& name) {
    static std::atomic<int> count = 0;
    const std::string path =
        (std::filesystem::temp_directory_path() / text("cupola-group-", getpid(), '-', ++count, '-', name)).string();
    std::filesystem::remove(path);
    return path;
}

/// Counts the calls since its construction.
class Calls {
public:
    [[nodiscard]] emulator::NcclCallCounts now() const {
        const emulator::NcclCallCounts all = emulator::nccl_call_counts();
        return {.unique_ids = all.unique_ids - before_.unique_ids,
                .inits = all.inits - before_.inits,
                .all_reduces = all.all_reduces - before_.all_reduces,
                .finalizes = all.finalizes - before_.finalizes,
                .destroys = all.destroys - before_.destroys,
                .aborts = all.aborts - before_.aborts,
                .grouped_aborts = all.grouped_aborts - before_.grouped_aborts};
    }

private:
    emulator::NcclCallCounts before_ = emulator::nccl_call_counts();
};

/// A device's stream, an event, and what it brings to the sums. Its end is the end of what it queued.
class RankDevice : NotCopied {
public:
    explicit RankDevice(int ordinal) {
        int before = 0;
        REQUIRE(cudaGetDevice(&before) == cudaSuccess);
        REQUIRE(cudaSetDevice(ordinal) == cudaSuccess);
        REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
        REQUIRE(cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess);
        REQUIRE(cudaSetDevice(before) == cudaSuccess);
    }
    ~RankDevice() {
        cudaStreamSynchronize(stream);
        cudaEventDestroy(event);
        cudaStreamDestroy(stream);
    }
    cudaStream_t stream = nullptr;
    cudaEvent_t event = nullptr;
    float values[values_per_sum]{};
};

/// The devices of one process. Made before its group, so that what is queued ends with the group.
struct Devices {
    explicit Devices(int count) {
        for (int device = 0; device < count; ++device) all.push_back(std::make_unique<RankDevice>(device));
    }
    [[nodiscard]] RankDevice& operator[](int device) { return *all[static_cast<std::size_t>(device)]; }
    std::vector<std::unique_ptr<RankDevice>> all;
};

using Group = NcclGroup<>;

/// Which numbers a rank brings to a step, and what all of them come to.
float brought(int rank, std::int64_t step, std::size_t i) {
    return static_cast<float>(rank + 1) * static_cast<float>(step + 2) + static_cast<float>(i);
}
float expected(int ranks, std::int64_t step, std::size_t i) {
    float sum = 0;
    for (int rank = 0; rank < ranks; ++rank) sum += brought(rank, step, i);
    return sum;
}

void queue_sum(Group& group, int device, std::span<float> values, cudaStream_t stream, std::int64_t step) {
    group.queue(device, stream, step, [&](auto& calls) { calls.sum(values); });
}

/// One step of one rank; whether the sum was right.
bool sums(Group& group, Devices& devices, int device, int rank, int ranks, std::int64_t step) {
    RankDevice& mine = devices[device];
    cudaSetDevice(device);
    for (std::size_t i = 0; i < values_per_sum; ++i) mine.values[i] = brought(rank, step, i);
    queue_sum(group, device, mine.values, mine.stream, step);
    cudaEventRecord(mine.event, mine.stream);
    group.wait(device, mine.event, step);
    bool right = true;
    for (std::size_t i = 0; i < values_per_sum; ++i) right = right && mine.values[i] == expected(ranks, step, i);
    return right;
}

/// Steps of all devices of a process, each on a thread of its own; how many sums were right.
int run_steps(Group& group, Devices& devices, int count, int first_rank, int ranks, int steps) {
    std::atomic<int> right = 0;
    std::vector<std::thread> threads;
    for (int device = 0; device < count; ++device) {
        threads.emplace_back([&, device] {
            for (std::int64_t step = 0; step < steps; ++step)
                right += sums(group, devices, device, first_rank + device, ranks, step) ? 1 : 0;
        });
    }
    for (std::thread& thread : threads) thread.join();
    return right;
}

/// Process `process` of two, in the test's two processes alike.
NcclAllReduce of_two(int process, const std::string& id_file) {
    return {.processes = 2,
            .process = process,
            .id_file = id_file,
            .start_seconds = 60,
            .step_seconds = 2,
            .heartbeat_seconds = 0.5,
            .abort_seconds = 20};
}

bool there(const std::string& path) { return std::filesystem::exists(path); }

/// An id, as one who starts the processes makes it.
impl::CommunicatorId made_id() {
    ncclUniqueId id{};
    CHECK(ncclGetUniqueId(&id) == ncclSuccess);
    impl::CommunicatorId digits;
    std::memcpy(digits.data(), &id, sizeof id);
    return digits;
}

struct Gpu {
    static constexpr std::string_view name = "Gpu";
    static constexpr bool has_nccl = true;
};
struct Emulated {
    static constexpr std::string_view name = "Emulated";
    static constexpr bool has_nccl = false;
};
struct Processor {
    static constexpr std::string_view name = "Processor";
};
/// Its header is not included here.
static_assert(!NcclAllReduce::diagnostic<Gpu>().empty());
static_assert(!NcclAllReduce::diagnostic<Emulated>().empty() && !NcclAllReduce::diagnostic<Processor>().empty());
static_assert(Gpu::name == "Gpu");

}  // namespace

TEST_CASE("impossible numbers of processes, devices and seconds are rejected") {
    const auto wrong = [](const NcclAllReduce& policy, int devices = 1) {
        return message_of<InvalidArgument>([&] { policy.check(devices); });
    };
    NcclAllReduce{}.check(8);
    NcclAllReduce{.processes = 2, .process = 1, .id_file = "id"}.check(4);
    CHECK(wrong({.processes = -1}) == "NcclAllReduce averages over 1 to 1048576 processes, not -1");
    CHECK(wrong({.processes = 2, .process = 2, .id_file = "id"}) ==
          "the process number in a training over 2 processes must be 0 to 1, not 2");
    CHECK(wrong({.processes = 1, .process = -1}) ==
          "the process number in a training over 1 processes must be 0 to 0, not -1");
    CHECK(wrong({.process = 1}) == "the process number 1 needs the number of processes");
    CHECK(wrong({.processes = 1 << 19, .id_file = "id"}, 3) ==
          "NcclAllReduce averages over 1 to 1048576 ranks, not 524288 processes with 3 devices each");
    CHECK(
        wrong({.processes = 2}) ==
        "a training over 2 processes must share NCCL's id: set id_file to the same new file in each, or address to the "
        "host and a port of process 0, or set the environment variables MASTER_ADDR and MASTER_PORT, or "
        "CUPOLA_NCCL_ID");
    CHECK(wrong({.processes = 2, .id_file = "id", .address = "a:1"}) ==
          "NcclAllReduce has the id_file id and the address a:1: process 0 gives NCCL's id by one of them");
    NcclAllReduce{.processes = 2, .address = "a:1"}.check(1);
    setenv(NcclAllReduce::id_variable, "00", 1);
    CHECK(wrong({.processes = 2}) == "(no exception)");
    unsetenv(NcclAllReduce::id_variable);
    CHECK(wrong({.max_groups = 0}) == "NcclAllReduce's max_groups must be 1 to 1000, not 0");
    CHECK(wrong({.max_groups = 1001}) == "NcclAllReduce's max_groups must be 1 to 1000, not 1001");
    CHECK(wrong({.start_seconds = 0}) ==
          "NcclAllReduce's start_seconds must be more than 0 s and at most 1e9 s, not 0 s");
    CHECK(wrong({.step_seconds = -3}) ==
          "NcclAllReduce's step_seconds must be more than 0 s and at most 1e9 s, not -3 s");
    CHECK(wrong({.heartbeat_seconds = std::numeric_limits<double>::quiet_NaN()}) ==
          "NcclAllReduce's heartbeat_seconds must be more than 0 s and at most 1e9 s, not nan s");
    CHECK(wrong({.abort_seconds = 0}) ==
          "NcclAllReduce's abort_seconds must be more than 0 s and at most 1e9 s, not 0 s");
    CHECK(wrong({.step_seconds = 4}) ==
          "a stopped heartbeat must be noticed during a wait: heartbeat_seconds, 5 s, must be less than "
          "start_seconds, 120 s, and step_seconds, 4 s");
    CHECK(contains(message_of<InvalidArgument>([&] { Group(NcclAllReduce{.processes = -1}, 1, {0}); }),
                   " processes, not -1"));
    CHECK(contains(message_of<InvalidArgument>([&] { Group(NcclAllReduce{}, 2, {0}); }), "ranks of 2 devices"));
}

TEST_CASE("child: two groups with an older library of NCCL" * doctest::skip()) {
    const NcclBehaves behaves({.version = 22'703});
    Devices here(2);
    for (int round = 0; round < 2; ++round) {
        Group group(NcclAllReduce{}, 2, {0, 1});
        group.start();
        CHECK(run_steps(group, here, 2, 0, 2, 2) == 4);
    }
}

TEST_CASE("NCCL of another version than compiled is one warning of process 0, and an error where it cannot be used") {
    struct Noting : impl::NcclCalls {
        std::vector<std::string>* said;
        void warn(const std::string& message) { said->push_back(message); }
    };
    std::vector<std::string> said;
    Noting calls{};
    calls.said = &said;
    const auto start = [&](int library) {
        const NcclBehaves behaves({.version = library});
        NcclGroup<Noting> group(NcclAllReduce{}, 1, {0}, {}, calls);
        group.start();
    };
    start(0);
    CHECK(said.empty());
    start(22'703);
    start(23'004);
    const std::string compiled = "the program was compiled for NCCL 2.28.9 and has loaded NCCL ";
    CHECK(said == std::vector<std::string>{compiled + "2.27.3: only what both have is used",
                                           compiled + "2.30.4: only what both have is used"});
    for (const auto& each : {std::pair{21'210, "2.12.10"}, {2'804, "2.8.4"}, {30'100, "3.1.0"}}) {
        CHECK(message_of<DeviceError>([&] { start(each.first); }) ==
              text(compiled, each.second, ": NcclAllReduce needs a version of NCCL 2, from 2.14 on"));
    }
    CHECK(said.size() == 2);
    const NcclBehaves behaves({.version = 22'703});
    impl::require_nccl_version(calls, false);
    CHECK(said.size() == 2);
    const ChildResult child = run_in_child("child: two groups with an older library of NCCL", {});
    CHECK(child.passed);
    const std::string line = "warning: " + compiled + "2.27.3: only what both have is used\n";
    const std::size_t first = child.output.find(line);
    REQUIRE(first != std::string::npos);
    CHECK(child.output.find("warning", first + line.size()) == std::string::npos);
}

TEST_CASE("one process has a rank on each of its devices, and needs no file and no environment") {
    // A file of another training.
    setenv(NcclAllReduce::id_variable, "00", 1);
    for (const int devices : {1, 2, 4}) {
        for (const int in_progress : {0, 3}) {
            const NcclBehaves behaves({.in_progress = in_progress});
            const Calls calls;
            const std::string id_file = fresh_path("unused");
            Devices here(devices);
            cudaSetDevice(devices - 1);
            {
                Group group(NcclAllReduce{.id_file = id_file}, devices,
                            std::vector<int>(static_cast<std::size_t>(devices)));
                group.start();
                int device = -1;
                CHECK((cudaGetDevice(&device) == cudaSuccess && device == devices - 1));
                CHECK(run_steps(group, here, devices, 0, devices, 6) == 6 * devices);
                CHECK_FALSE(group.failed());
                group.finish();
                CHECK(calls.now().destroys == devices);
            }
            cudaSetDevice(0);
            CHECK(calls.now().unique_ids == 1);
            CHECK(calls.now().inits == devices);
            CHECK(calls.now().all_reduces == 6 * devices);
            CHECK(calls.now().finalizes == devices);
            CHECK(calls.now().destroys == devices);
            CHECK(calls.now().aborts == 0);
            CHECK(emulator::nccl_open_communicators() == 0);
            CHECK(emulator::take_nccl_misuse().empty());
            CHECK_FALSE(there(id_file));
            CHECK_FALSE(there(id_file + ".heartbeats"));
        }
    }
    unsetenv(NcclAllReduce::id_variable);
}

TEST_CASE(
    "a device that failed elsewhere aborts all sums, once, in one group, although each abort waits for the other") {
    const NcclBehaves behaves({.abort = NcclAbort::waits_for_all_ranks});
    const Calls calls;
    Devices devices(2);
    Group group(NcclAllReduce{}, 2, {0, 3});
    group.start();
    CHECK(run_steps(group, devices, 2, 0, 2, 2) == 4);
    // One device waits for a sum that the other never calls.
    std::string waiting;
    std::thread waits([&] { waiting = message_of<DeviceError>([&] { sums(group, devices, 0, 0, 2, 2); }); });
    group.break_off(1, 2, "an illegal memory access was encountered");
    group.break_off(0, 2, "something else");
    waits.join();
    CHECK(group.failed());
    CHECK(calls.now().aborts == 2);
    CHECK(calls.now().grouped_aborts == 2);
    const std::string message =
        "replica 3 (rank 1 of 2) in the sum of the gradients of step 2: an illegal memory access was encountered";
    CHECK(waiting == message);
    CHECK(message_of<DeviceError>([&] { sums(group, devices, 1, 1, 2, 2); }) == message);
    // The queued work ends with the sums.
    group.wait_for_broken_off(0, devices[0].event);
    CHECK(cudaEventQuery(devices[0].event) == cudaSuccess);
}

TEST_CASE("a rank that starts another sum than the others causes an error that names it, not a hang") {
    Devices devices(2);
    Group group(NcclAllReduce{.step_seconds = 60}, 2, {0, 1});
    group.start();
    queue_sum(group, 0, devices[0].values, devices[0].stream, 4);
    CHECK(contains(
        message_of<DeviceError>(
            [&] { queue_sum(group, 1, std::span<float>(devices[1].values).first(3), devices[1].stream, 4); }),
        "replica 1 (rank 1 of 2) in the sum of the gradients of step 4: NCCL's ncclAllReduce failed with invalid usage "
        "(run with NCCL_DEBUG=WARN for details) (rank 1: collective 0 is an all-reduce of 3 elements"));
    CHECK(contains(emulator::take_nccl_misuse(), "and that of rank 0 is an all-reduce of 5 elements"));
}

TEST_CASE("a rank whose death NCCL notices ends the others with NCCL's message") {
    Devices devices(2);
    Group group(NcclAllReduce{.step_seconds = 60, .heartbeat_seconds = 0.2}, 2, {0, 1});
    group.start();
    CHECK(run_steps(group, devices, 2, 0, 2, 1) == 2);
    emulator::nccl_rank_dies(1, emulator::NcclDeath::noticed);
    CHECK(
        message_of<DeviceError>([&] { sums(group, devices, 0, 0, 2, 1); }) ==
        "replica 0 (rank 0 of 2) in the sum of the gradients of step 1: NCCL's ncclAllReduce failed with remote process exited "
        "or there was a network error (rank 1 has closed its connections)");
}

TEST_CASE("child: a process whose abort hangs" * doctest::skip()) {
    const NcclBehaves behaves({.abort = NcclAbort::hangs});
    Devices devices(1);
    Group group(NcclAllReduce{.abort_seconds = 0.3}, 1, {0});
    group.start();
    group.break_off(0, 7, "an illegal memory access was encountered");
    CHECK(false);  // it has ended
}

TEST_CASE("a process whose abort hangs ends itself, with the error, and runs no destructor") {
    const ChildResult child = run_in_child("child: a process whose abort hangs", {});
    CHECK_FALSE(child.passed);
    CHECK(contains(
        child.output,
        "error: replica 0 (rank 0 of 1) in the sum of the gradients of step 7: an illegal memory access was encountered; "
        "NCCL's ncclCommAbort had not returned 0.3 s later, and this process was ended\n"));
    CHECK_FALSE(contains(child.output, "test cases:"));
}

TEST_CASE("while an abort of two devices is slow, the other device's thread receives the error and waits for no lock") {
    const NcclBehaves behaves({.abort = NcclAbort::slow, .abort_seconds = 1});
    const Calls calls;
    Devices devices(2);
    Group group(NcclAllReduce{.step_seconds = 60}, 2, {0, 3});
    group.start();
    std::atomic<bool> aborted = false;
    std::thread aborts([&] {
        group.break_off(1, 2, "an illegal memory access was encountered");
        aborted = true;
    });
    const std::string waiting = message_of<DeviceError>([&] { sums(group, devices, 0, 0, 2, 2); });
    CHECK_FALSE(aborted);
    CHECK(waiting ==
          "replica 3 (rank 1 of 2) in the sum of the gradients of step 2: an illegal memory access was encountered");
    // What was queued ends with the abort.
    group.wait_for_broken_off(0, devices[0].event);
    aborts.join();
    CHECK(calls.now().grouped_aborts == 2);
    CHECK(emulator::nccl_open_communicators() == 0);
}

TEST_CASE("a call that is in progress for ever ends at the deadline of its step, and of the start") {
    Devices devices(1);
    std::unique_ptr<NcclBehaves> behaves;
    Group group(NcclAllReduce{.start_seconds = 0.3, .step_seconds = 0.3, .heartbeat_seconds = 0.1}, 1, {0});
    SUBCASE("step") {
        group.start();
        behaves =
            std::make_unique<NcclBehaves>(emulator::NcclBehavior{.in_progress = emulator::NcclBehavior::for_ever});
        CHECK(contains(message_of<DeviceError>([&] { sums(group, devices, 0, 0, 1, 3); }),
                       "replica 0 (rank 0 of 1) in the sum of the gradients of step 3: it is not done after 0.3 s"));
    }
    SUBCASE("start") {
        behaves =
            std::make_unique<NcclBehaves>(emulator::NcclBehavior{.in_progress = emulator::NcclBehavior::for_ever});
        CHECK(contains(message_of<DeviceError>([&] { group.start(); }),
                       "replica 0 (rank 0 of 1) in the start of the communicator: it is not done after 0.3 s"));
    }
    CHECK(group.failed());
    CHECK(emulator::nccl_open_communicators() == 0);
}

TEST_CASE("child: a process with two devices that dies in the middle of a group" * doctest::skip()) {
    const bool starts = std::getenv("CUPOLA_TEST_STARTS") != nullptr;
    std::unique_ptr<NcclBehaves> behaves;
    const auto die = [&] { behaves = std::make_unique<NcclBehaves>(emulator::NcclBehavior{.dies_in_group_at = 2}); };
    Devices devices(2);
    Group group(of_two(1, std::getenv("CUPOLA_TEST_ID_FILE")), 2, {2, 3});
    if (starts) die();
    group.start();
    die();
    group.break_off(0, 3, "an illegal memory access was encountered");
    CHECK(false);  // it was killed
}

TEST_CASE("a process dies in the middle of a group, of the start or of the abort: the other ends at its deadline") {
    for (const bool starts : {true, false}) {
        CAPTURE(starts);
        const std::string id_file = fresh_path("id");
        ChildResult other;
        {
            const std::jthread child([&] {
                std::vector<std::pair<std::string, std::string>> variables{{"CUPOLA_TEST_ID_FILE", id_file}};
                if (starts) variables.emplace_back("CUPOLA_TEST_STARTS", "1");
                other = run_in_child("child: a process with two devices that dies in the middle of a group", variables);
            });
            Devices devices(2);
            NcclAllReduce policy = of_two(0, id_file);
            policy.start_seconds = starts ? 5 : 60;
            Group group(policy, 2, {0, 1});
            if (starts) {
                const std::string message = message_of<DeviceError>([&] { group.start(); });
                INFO(message);
                CHECK(contains(message, "in the start of the communicator: it is not done after 5 s"));
                CHECK(contains(message, "ranks 2 and 3"));
            } else {
                group.start();
                // Rank 1, of this process, takes no part in the step.
                const std::string message = message_of<DeviceError>([&] { sums(group, devices, 0, 0, 4, 3); });
                INFO(message);
                CHECK(contains(message,
                               "of step 3: it is not done after 2 s; the heartbeats of ranks 1, 2 and 3 have stopped"));
            }
        }
        INFO(other.output);
        CHECK_FALSE(other.passed);
        CHECK(other.status == -1);  // by a signal
    }
    CHECK(emulator::nccl_open_communicators() == 0);
}

TEST_CASE("child: a process with two devices whose abort waits for a killed one" * doctest::skip()) {
    const NcclBehaves behaves({.abort = NcclAbort::waits_for_all_ranks});
    Devices devices(2);
    NcclAllReduce policy = of_two(0, std::getenv("CUPOLA_TEST_ID_FILE"));
    policy.abort_seconds = 0.5;
    Group group(policy, 2, {0, 1});
    group.start();
    CHECK(run_steps(group, devices, 2, 0, 4, 3) == 6);
    sums(group, devices, 0, 0, 4, 3);
    CHECK(false);  // it has ended
}

TEST_CASE(
    "a process with two devices whose abort waits for a killed process ends at the deadline, with the missing ranks") {
    const std::string id_file = fresh_path("id");
    ChildResult waits;
    {
        const std::jthread child([&] {
            waits = run_in_child("child: a process with two devices whose abort waits for a killed one",
                                 {{"CUPOLA_TEST_ID_FILE", id_file}});
        });
        const ChildResult killed = run_in_child("child: the other process of two", {{"CUPOLA_TEST_PROCESS", "1"},
                                                                                    {"CUPOLA_TEST_ID_FILE", id_file},
                                                                                    {"CUPOLA_TEST_DEVICES", "2"},
                                                                                    {"CUPOLA_TEST_DIE_AT", "3"}});
        CHECK(killed.status == -1);
    }
    INFO(waits.output);
    CHECK(waits.status == 1);
    CHECK(contains(
        waits.output,
        "error: replica 0 (rank 0 of 4) in the sum of the gradients of step 3: it is not done after 2 s; the "
        "heartbeats of ranks 1, 2 and 3 have stopped; NCCL's ncclCommAbort had not returned 0.5 s later, and this "
        "process was ended\n"));
}

TEST_CASE("child: the other process of two" * doctest::skip()) {
    const auto number = [](const char* variable) { return std::atoi(std::getenv(variable)); };
    const int process = number("CUPOLA_TEST_PROCESS"), devices = number("CUPOLA_TEST_DEVICES"),
              die_at = number("CUPOLA_TEST_DIE_AT");
    const Calls calls;
    std::vector<int> replicas;
    for (int device = 0; device < devices; ++device) replicas.push_back(process * devices + device);
    Devices here(devices);
    Group group(of_two(process, std::getenv("CUPOLA_TEST_ID_FILE")), devices, replicas);
    group.start();
    const int steps = die_at < 0 ? 6 : die_at;
    CHECK(run_steps(group, here, devices, process * devices, 2 * devices, steps) == steps * devices);
    if (die_at >= 0) {
        std::raise(SIGKILL);
    }
    group.finish();
    CHECK(calls.now().unique_ids == (process == 0 && std::getenv(NcclAllReduce::id_variable) == nullptr ? 1 : 0));
}

namespace {

/// The other process, which runs while this one continues.
class OtherProcess : NotCopied {
public:
    OtherProcess(int process, int devices, const std::string& id_file, int die_at = -1)
        : thread_([=, this] {
              result_ = run_in_child("child: the other process of two", {{"CUPOLA_TEST_PROCESS", text(process)},
                                                                         {"CUPOLA_TEST_DEVICES", text(devices)},
                                                                         {"CUPOLA_TEST_ID_FILE", id_file},
                                                                         {"CUPOLA_TEST_DIE_AT", text(die_at)}});
          }) {}
    ~OtherProcess() {
        if (thread_.joinable()) thread_.join();
    }
    const ChildResult& result() {
        if (thread_.joinable()) thread_.join();
        return result_;
    }

private:
    ChildResult result_;
    std::thread thread_;
};

}  // namespace

TEST_CASE("two processes connect through a file, add their numbers, and leave no file") {
    for (const int process : {0, 1}) {
        for (const int devices : {1, 2}) {
            const Calls calls;
            const std::string id_file = fresh_path("id");
            OtherProcess other(1 - process, devices, id_file);
            Devices here(devices);
            Group group(of_two(process, id_file), devices, std::vector<int>(static_cast<std::size_t>(devices)));
            CHECK(there(id_file + ".heartbeats"));
            group.start();
            CHECK(run_steps(group, here, devices, process * devices, 2 * devices, 6) == 6 * devices);
            group.finish();
            INFO(other.result().output);
            CHECK(other.result().passed);
            CHECK(calls.now().aborts == 0);
            CHECK_FALSE(there(id_file));
            CHECK_FALSE(there(id_file + ".heartbeats"));
        }
    }
}

TEST_CASE("a process is killed: the other ends within its deadline, and names the rank") {
    for (const int process : {0, 1}) {
        for (const int devices : {process + 1}) {
            const Calls calls;
            const std::string id_file = fresh_path("id");
            OtherProcess other(1 - process, devices, id_file, 3);
            std::vector<int> replicas;
            for (int device = 0; device < devices; ++device) replicas.push_back(10 * process + 5 * device);
            Devices here(devices);
            Group group(of_two(process, id_file), devices, replicas);
            group.start();
            CHECK(run_steps(group, here, devices, process * devices, 2 * devices, 3) == 3 * devices);
            const double start = monotonic_seconds();
            std::vector<std::string> messages(static_cast<std::size_t>(devices));
            std::vector<std::thread> threads;
            for (int device = 0; device < devices; ++device) {
                threads.emplace_back([&, device] {
                    messages[static_cast<std::size_t>(device)] = message_of<DeviceError>(
                        [&] { sums(group, here, device, process * devices + device, 2 * devices, 3); });
                });
            }
            for (std::thread& thread : threads) thread.join();
            CHECK(monotonic_seconds() - start < 2.5);
            // Which of the process's ranks is the first to give up is open.
            std::vector<std::string> possible;
            for (int device = 0; device < devices; ++device) {
                const std::string stopped = devices == 1 ? text("heartbeat of rank ", 1 - process, " has")
                                                         : text("heartbeats of ranks ", (1 - process) * 2, " and ",
                                                                (1 - process) * 2 + 1, " have");
                possible.push_back(text(
                    "replica ", 10 * process + 5 * device, " (rank ", process * devices + device, " of ", 2 * devices,
                    ") in the sum of the gradients of step 3: it is not done after 2 s; the ", stopped, " stopped"));
            }
            CHECK((messages[0] == possible.front() || messages[0] == possible.back()));
            CHECK(messages.back() == messages.front());
            CHECK(group.failed());
            CHECK(calls.now().aborts == devices);
            group.finish();  // there is nothing left to finish
            CHECK(calls.now().finalizes == 0);
            CHECK_FALSE(other.result().passed);
        }
    }
}

namespace {

const char* variable(const char* name) {
    const char* const value = std::getenv(name);
    return value == nullptr ? "" : value;
}

/// Two processes that a launcher has started, of which the first ends by SIGKILL before step `die_at`; and the time in which the
/// second has ended after it.
struct TwoLaunched {
    TwoLaunched(const std::string& number, const std::string& count, const std::string& folder, int die_at) {
        const std::string port = text(free_port());
        std::vector<double> ended(2);
        std::vector<std::thread> threads;
        for (int process = 0; process < 2; ++process) {
            threads.emplace_back([&, process] {
                const auto at = static_cast<std::size_t>(process);
                results[at] = run_in_child("child: a process that a launcher has started",
                                           {{number, text(process)},
                                            {count, "2"},
                                            {"MASTER_ADDR", "127.0.0.1"},
                                            {"MASTER_PORT", port},
                                            {"CUPOLA_TEST_FOLDER", folder},
                                            {"CUPOLA_TEST_DIE_AT", text(process == 0 ? die_at : -1)}});
                ended[at] = monotonic_seconds();
            });
        }
        for (std::thread& thread : threads) thread.join();
        seconds_between = ended[1] - ended[0];
    }

    ChildResult results[2];
    double seconds_between = 0;
};

}  // namespace

TEST_CASE("child: a process that a launcher has started" * doctest::skip()) {
    const int die_at = std::atoi(variable("CUPOLA_TEST_DIE_AT"));
    const NcclAllReduce policy =
        NcclAllReduce{
            .folder = variable("CUPOLA_TEST_FOLDER"), .start_seconds = 60, .step_seconds = 2, .heartbeat_seconds = 0.5}
            .as_launched();
    CHECK(policy.processes == 2);
    Devices here(1);
    Group group(policy, 1, {policy.process});
    group.start();
    const int steps = die_at < 0 ? 6 : die_at;
    CHECK(run_steps(group, here, 1, policy.process, 2, steps) == steps);
    if (die_at >= 0) std::raise(SIGKILL);
    group.finish();
}

TEST_CASE("processes that a launcher has started meet at the address that it says, and leave no file") {
    const auto heartbeat_files = [] {
        int files = 0;
        for (const auto& each : std::filesystem::directory_iterator("/dev/shm"))
            files += each.path().filename().string().starts_with("cupola-heartbeats-") ? 1 : 0;
        return files;
    };
    const int before = heartbeat_files();
    for (const auto& [number, count] :
         {std::pair{"RANK", "WORLD_SIZE"}, std::pair{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}}) {
        const TwoLaunched two(number, count, "", -1);
        for (const ChildResult& each : two.results) {
            INFO(each.output);
            CHECK(each.passed);
        }
    }
    CHECK(heartbeat_files() == before);
}

TEST_CASE("a process is killed: the other writes step, operation and missing ranks to its file, and leaves") {
    const std::string folder = fresh_path("run");
    std::filesystem::create_directory(folder);
    const TwoLaunched two("RANK", "WORLD_SIZE", folder, 3);
    const std::string expected =
        "process 1: replica 1 (rank 1 of 2) in the sum of the gradients of step 3: it is not done after 2 s; the heartbeat "
        "of rank 0 has stopped; missing: process 0\n";
    std::ifstream file(folder + "/process-1.fault");
    std::string written{std::istreambuf_iterator<char>(file), {}};
    CHECK(written == expected);
    CHECK(contains(two.results[1].output, expected));
    CHECK_FALSE(contains(two.results[1].output, "test cases:"));
    CHECK_FALSE(there(folder + "/process-0.fault"));
    CHECK(two.seconds_between < 3);
    std::filesystem::remove_all(folder);
}

TEST_CASE("without a file of heartbeats the error states that the other process was never seen") {
    const Calls calls;
    const impl::CommunicatorId digits = made_id();
    setenv(NcclAllReduce::id_variable, impl::communicator_id_text(digits).c_str(), 1);
    OtherProcess other(1, 1, "", 2);
    Devices here(1);
    Group group(of_two(0, ""), 1, {0});
    group.start();
    CHECK(run_steps(group, here, 1, 0, 2, 2) == 2);
    CHECK(message_of<DeviceError>([&] { sums(group, here, 0, 0, 2, 2); }) ==
          "replica 0 (rank 0 of 2) in the sum of the gradients of step 2: it is not done after 2 s; no heartbeat of "
          "rank 1 was ever seen: it has "
          "not started, or is on another machine");
    CHECK_FALSE(other.result().passed);
    unsetenv(NcclAllReduce::id_variable);
}

TEST_CASE(
    "a file of an earlier start is rejected by process 0 and kept; process 1, which uses it, ends at its deadline") {
    const Calls calls;
    const std::string id_file = fresh_path("id");
    const impl::CommunicatorId digits = made_id();
    impl::write_communicator_id(id_file, digits);
    {
        Group group(of_two(0, id_file), 1, {0});
        CHECK(
            message_of<DeviceError>([&] { group.start(); }) ==
            text(
                "the file ", id_file,
                " exists already: each start of a training over several processes needs a new file name for NCCL's id"));
        CHECK(there(id_file));
        CHECK(there(id_file + ".heartbeats"));
    }
    {
        NcclAllReduce policy = of_two(1, id_file);
        policy.start_seconds = 1;
        Group group(policy, 1, {7});
        CHECK(message_of<DeviceError>([&] { group.start(); }) ==
              "replica 7 (rank 1 of 2) in the start of the communicator: it is not done after 1 s; no heartbeat of "
              "rank 0 was ever seen: it has "
              "not started, or is on another machine");
        CHECK(calls.now().aborts == 1);
        CHECK(there(id_file));
        CHECK_FALSE(there(id_file + ".heartbeats"));
    }
    std::filesystem::remove(id_file);
}

TEST_CASE("a process without the other one ends at its deadline, and removes its files") {
    const Calls calls;
    const std::string id_file = fresh_path("id");
    NcclAllReduce policy = of_two(1, id_file);
    policy.start_seconds = 1;
    Group second(policy, 1, {7});
    CHECK(message_of<DeviceError>([&] { second.start(); }) ==
          text("rank 0 has not written NCCL's id to ", id_file,
               " within 1 s: check that it was started, with the same id_file"));
    CHECK_FALSE(there(id_file + ".heartbeats"));
    policy.process = 0;
    Group first(policy, 1, {0});
    CHECK(message_of<DeviceError>([&] { first.start(); }) ==
          "replica 0 (rank 0 of 2) in the start of the communicator: it is not done after 1 s; no heartbeat of rank 1 "
          "was ever seen: it has not "
          "started, or is on another machine");
    CHECK_FALSE(there(id_file));
    CHECK_FALSE(there(id_file + ".heartbeats"));
    // The same name can therefore be used for the next start.
    OtherProcess other(1, 1, id_file);
    policy = of_two(0, id_file);
    Devices here(1);
    Group third(policy, 1, {0});
    third.start();
    CHECK(run_steps(third, here, 1, 0, 2, 6) == 6);
    third.finish();
    CHECK(other.result().passed);
}

TEST_CASE("child: a process that goes on without others" * doctest::skip()) {
    const auto number = [](const char* variable) { return std::atoi(std::getenv(variable)); };
    const int process = number("CUPOLA_TEST_PROCESS"), count = number("CUPOLA_TEST_COUNT");
    const std::string id_file = std::getenv("CUPOLA_TEST_ID_FILE"), dying = std::getenv("CUPOLA_TEST_DYING");
    // "late": process 2 computes for 3 s before step 3. "hangs": nobody takes the communicators after a loss, and their abort hangs.
    // "elsewhere": process 1 has another name, as one that is on another machine.
    const std::string special = std::getenv("CUPOLA_TEST_SPECIAL");
    const bool late = special == "late", hangs = special == "hangs";
    constexpr int devices = 2, steps = 6;
    std::optional<NcclBehaves> behaves;
    NcclEnvironment nccl({.name = std::filesystem::path(id_file).filename().string() +
                                  (special == "elsewhere" && process == 1 ? "-elsewhere" : ""),
                          .processes = count,
                          .process = process});
    std::vector<std::int64_t> began;
    const int result = nccl.survive([&] {
        if (hangs && !nccl.lost().empty()) {
            behaves.emplace(emulator::NcclBehavior{.abort = NcclAbort::hangs});
            return 7;
        }
        const std::int64_t first = nccl.kept() == nullptr ? 0 : nccl.kept()->step;
        began.push_back(first);
        Devices here(devices);
        Group group({.id_file = id_file,
                     .start_seconds = special == "elsewhere" ? 2.0 : 60.0,
                     .step_seconds = late ? 4.0 : 1.0,
                     .heartbeat_seconds = 0.3,
                     .abort_seconds = special.empty() ? 10.0 : 2.0,
                     .environment = &nccl},
                    devices, {0, 1});
        group.start();
        for (std::int64_t step = first; step < steps; ++step) {
            if (late && process == 2 && step == 3 && nccl.lost().empty()) usleep(3'000'000);
            // "1@3": process 1 is killed in step 3, between the sums of its two devices.
            const bool dies = dying.find(text(process, '@', step)) != std::string::npos;
            std::atomic<int> right = 0;
            std::vector<std::exception_ptr> errors(devices);
            std::vector<std::thread> threads;
            for (int device = 0; device < devices; ++device) {
                threads.emplace_back([&, device] {
                    if (dies && device == 1) {
                        usleep(50'000);
                        std::raise(SIGKILL);
                    }
                    try {
                        const int rank = nccl.number() * devices + device;
                        right += sums(group, here, device, rank, nccl.count() * devices, step) ? 1 : 0;
                    } catch (...) {
                        errors[static_cast<std::size_t>(device)] = std::current_exception();
                        group.wait_for_broken_off(device, here[device].event);
                    }
                });
            }
            for (std::thread& thread : threads) thread.join();
            for (const std::exception_ptr& error : errors) {
                if (error) std::rethrow_exception(error);
            }
            CHECK(right == devices);
            nccl.keep({.step = step + 1});
        }
        group.finish();
        return 7;
    });
    CHECK(result == 7);
    std::string list;
    for (const int p : nccl.lost()) list += text(' ', p);
    for (const std::int64_t step : began) list += text(" from ", step);
    std::fprintf(stderr, "went on as %d of %d without%s\n", nccl.number(), nccl.count(), list.c_str());
    CHECK(emulator::nccl_open_communicators() == 0);
    CHECK(emulator::take_nccl_misuse().empty());
}

namespace {

std::vector<ChildResult> processes_of_which_some_die(int count, const std::string& dying,
                                                     const std::string& special = "") {
    const std::string id_file = fresh_path("id");
    std::vector<ChildResult> results(static_cast<std::size_t>(count));
    {
        std::vector<std::jthread> threads;
        for (int process = 0; process < count; ++process) {
            threads.emplace_back([&, process] {
                results[static_cast<std::size_t>(process)] = run_in_child(
                    "child: a process that goes on without others", {{"CUPOLA_TEST_PROCESS", text(process)},
                                                                     {"CUPOLA_TEST_COUNT", text(count)},
                                                                     {"CUPOLA_TEST_DYING", dying},
                                                                     {"CUPOLA_TEST_SPECIAL", special},
                                                                     {"CUPOLA_TEST_ID_FILE", id_file}});
            });
        }
    }
    return results;
}

}  // namespace

TEST_CASE("processes go on from the failed step with shrunken communicators, without each that is killed") {
    for (const auto& each : {std::tuple{"1@3", "went on as 0 of 2 without 1 from 0 from 3\n", "",
                                        "went on as 1 of 2 without 1 from 0 from 3\n"},
                             std::tuple{"0@0", "", "went on as 0 of 2 without 0 from 0 from 0\n",
                                        "went on as 1 of 2 without 0 from 0 from 0\n"},
                             std::tuple{"2@2 1@4", "went on as 0 of 1 without 2 1 from 0 from 2 from 4\n", "", ""}}) {
        // Not a structured binding, which clang does not capture where OpenMP is on.
        const char* const dying = std::get<0>(each);
        CAPTURE(dying);
        const std::vector<ChildResult> results = processes_of_which_some_die(3, dying);
        const char* const expected[]{std::get<1>(each), std::get<2>(each), std::get<3>(each)};
        for (std::size_t p = 0; p < 3; ++p) {
            INFO(results[p].output);
            CHECK(results[p].passed == (*expected[p] != '\0'));
            CHECK(contains(results[p].output, expected[p]));
            if (*expected[p] == '\0') CHECK(results[p].status == -1);
        }
    }
}

TEST_CASE("half of the processes without the first do not go on, and say so") {
    const std::vector<ChildResult> results = processes_of_which_some_die(4, "0@2 1@2");
    for (std::size_t p = 2; p < 4; ++p) {
        INFO(results[p].output);
        CHECK_FALSE(results[p].passed);
        // One of the two may find that the other has ended already.
        CHECK(contains(results[p].output, "the others do not go on: of 4 processes "));
        CHECK(contains(results[p].output, "are left: only more than half of them, or half with the first, go on"));
    }
}

TEST_CASE("a process that comes to the failed step later than abort_seconds after the others goes on with them") {
    const std::vector<ChildResult> results = processes_of_which_some_die(3, "1@3", "late");
    for (const std::size_t p : {0u, 2u}) {
        INFO(results[p].output);
        CHECK(results[p].passed);
        CHECK(contains(results[p].output, text("went on as ", p / 2, " of 2 without 1 from 0 from 3\n")));
    }
}

TEST_CASE("the abort of communicators that nobody takes ends the process if it hangs") {
    const std::vector<ChildResult> results = processes_of_which_some_die(2, "1@3", "hangs");
    INFO(results[0].output);
    CHECK(results[0].status == 1);
    CHECK(contains(
        results[0].output,
        "error: the training did not go on with the processes that are left; NCCL's ncclCommAbort had not returned "
        "2 s later, and this process was ended\n"));
}

TEST_CASE("processes of an environment that do not find each other are refused at the start, by all of them") {
    const std::vector<ChildResult> results = processes_of_which_some_die(2, "", "elsewhere");
    for (std::size_t p = 0; p < 2; ++p) {
        INFO(results[p].output);
        CHECK_FALSE(results[p].passed);
        CHECK(contains(results[p].output,
                       text("cannot be found by process ", p, ": the processes of an NcclEnvironment")));
    }
}
