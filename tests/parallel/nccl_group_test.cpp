// SPDX-License-Identifier: Apache-2.0
//
// NcclAllReduce's numbers, and NcclGroup: the ranks of one process, and those of two that are really two. A table of
// functions plays NCCL: its ranks add through a file that they all map, which the id names, so that an id that went
// astray finds nobody.
#include <array>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <doctest/doctest.h>
#include <cupola/nccl.hpp>

#include "../child_process.hpp"
#include "../throws_with.hpp"

using namespace cupola;
using impl::NcclGroup;

namespace {

constexpr int most_ranks = 4;
constexpr std::size_t most_values = 5;

/// What the ranks share, all zeros at first.
struct Meeting {
    std::atomic<int> started, finalized;
    // A sum is complete when all have come to it, and a rank comes to the next but one only then: two places take
    // turns.
    struct {
        std::atomic<int> came;
        float values[most_ranks][most_values];
    } sums[2];
};

Meeting* meeting_at(const std::string& path) {
    const int handle = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (handle < 0 || ftruncate(handle, sizeof(Meeting)) != 0) return nullptr;
    void* const memory = mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED, handle, 0);
    close(handle);
    return memory == MAP_FAILED ? nullptr : static_cast<Meeting*>(memory);
}

std::string fresh_path(const std::string& name) {
    static std::atomic<int> count = 0;
    const std::string path =
        (std::filesystem::temp_directory_path() / text("cupola-group-", getpid(), '-', ++count, '-', name)).string();
    std::filesystem::remove(path);
    return path;
}

/// A rank's communicator; its events are its own address.
struct FakeRank {
    Meeting* meeting = nullptr;
    int ranks = 0, rank = 0, sums = 0;
    float* data = nullptr;
    std::size_t count = 0;
    bool finalizing = false;
};

/// The ranks that a process has made, and what it called.
struct FakeNccl {
    std::string meeting_path = fresh_path("meeting");
    std::deque<FakeRank> ranks;
    std::vector<int> devices;
    int ids = 0, finalized = 0, destroyed = 0, device = 9;
    std::atomic<int> aborted = 0;

    FakeNccl() = default;
    FakeNccl(const FakeNccl&) = delete;
    FakeNccl& operator=(const FakeNccl&) = delete;
    ~FakeNccl() { std::filesystem::remove(meeting_path); }
    [[nodiscard]] cudaEvent_t event(std::size_t index) { return reinterpret_cast<cudaEvent_t>(&ranks[index]); }
};

struct FakeCalls {
    FakeNccl* nccl;

    static FakeRank& of(ncclComm_t communicator) { return *reinterpret_cast<FakeRank*>(communicator); }

    ncclResult_t make_id(ncclUniqueId* id) {
        ++nccl->ids;
        std::strncpy(id->internal, nccl->meeting_path.c_str(), sizeof id->internal - 1);
        return ncclSuccess;
    }
    ncclResult_t group_start() { return ncclSuccess; }
    ncclResult_t group_end() { return ncclInProgress; }
    ncclResult_t init_rank(ncclComm_t* made, int ranks, const ncclUniqueId& id, int rank, ncclConfig_t*) {
        FakeRank& mine = nccl->ranks.emplace_back();
        mine = {.meeting = meeting_at(id.internal), .ranks = ranks, .rank = rank};
        if (mine.meeting == nullptr || rank >= most_ranks) return ncclInvalidArgument;
        nccl->devices.push_back(nccl->device);
        ++mine.meeting->started;
        *made = reinterpret_cast<ncclComm_t>(&mine);
        return ncclInProgress;
    }
    ncclResult_t state(ncclComm_t communicator, ncclResult_t* state) {
        const FakeRank& mine = of(communicator);
        const int came = mine.finalizing ? mine.meeting->finalized : mine.meeting->started;
        *state = came == mine.ranks ? ncclSuccess : ncclInProgress;
        return ncclSuccess;
    }
    ncclResult_t sum(float* data, std::size_t count, ncclComm_t among, cudaStream_t) {
        FakeRank& mine = of(among);
        if (count > most_values) return ncclInvalidArgument;
        auto& place = mine.meeting->sums[mine.sums++ % 2];
        for (std::size_t i = 0; i < count; ++i) place.values[mine.rank][i] = data[i];
        mine.data = data;
        mine.count = count;
        ++place.came;
        return ncclInProgress;
    }
    ncclResult_t finalize(ncclComm_t communicator) {
        FakeRank& mine = of(communicator);
        mine.finalizing = true;
        ++mine.meeting->finalized;
        ++nccl->finalized;
        return ncclInProgress;
    }
    ncclResult_t destroy(ncclComm_t) { return ++nccl->destroyed, ncclSuccess; }
    ncclResult_t abort(ncclComm_t) { return ++nccl->aborted, ncclSuccess; }
    const char* meaning(ncclResult_t) { return "invalid argument"; }
    const char* last_error(ncclComm_t) { return ""; }
    cudaError_t device(int* device) { return *device = nccl->device, cudaSuccess; }
    cudaError_t set_device(int device) { return nccl->device = device, cudaSuccess; }
    cudaError_t query(cudaEvent_t event) {
        FakeRank& mine = *reinterpret_cast<FakeRank*>(event);
        const int sum = mine.sums - 1;
        const auto& place = mine.meeting->sums[sum % 2];
        if (place.came < mine.ranks * (sum / 2 + 1)) return cudaErrorNotReady;
        for (std::size_t i = 0; i < mine.count; ++i) {
            mine.data[i] = 0;
            for (int rank = 0; rank < mine.ranks; ++rank) mine.data[i] += place.values[rank][i];
        }
        return cudaSuccess;
    }
    double now() { return monotonic_seconds(); }
    void pause() { usleep(1000); }
};

using Group = NcclGroup<FakeCalls>;

/// Which numbers a rank brings to a step, and what all of them come to.
float brought(int rank, std::int64_t step, std::size_t i) {
    return static_cast<float>(rank + 1) * static_cast<float>(step + 2) + static_cast<float>(i);
}
float expected(int ranks, std::int64_t step, std::size_t i) {
    float sum = 0;
    for (int rank = 0; rank < ranks; ++rank) sum += brought(rank, step, i);
    return sum;
}

/// One step of one rank; whether the sum was right.
bool sums(Group& group, FakeNccl& nccl, int device, int rank, int ranks, std::int64_t step) {
    std::array<float, most_values> values;
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = brought(rank, step, i);
    group.sum(device, values, nullptr, step);
    group.wait(device, nccl.event(static_cast<std::size_t>(device)), step);
    bool right = true;
    for (std::size_t i = 0; i < values.size(); ++i) right = right && values[i] == expected(ranks, step, i);
    return right;
}

/// Steps of all devices of a process, each on a thread of its own; how many sums were right.
int run_steps(Group& group, FakeNccl& nccl, int devices, int first_rank, int ranks, int steps) {
    std::atomic<int> right = 0;
    std::vector<std::thread> threads;
    for (int device = 0; device < devices; ++device) {
        threads.emplace_back([&, device] {
            for (std::int64_t step = 0; step < steps; ++step)
                right += sums(group, nccl, device, first_rank + device, ranks, step) ? 1 : 0;
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
            .heartbeat_seconds = 0.5};
}

bool there(const std::string& path) { return std::filesystem::exists(path); }

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
static_assert(NcclAllReduce::mistake<Gpu>().empty());
static_assert(!NcclAllReduce::mistake<Emulated>().empty() && !NcclAllReduce::mistake<Processor>().empty());
static_assert(Gpu::name == "Gpu");
static_assert(std::is_same_v<impl::GroupOf<NcclAllReduce, Gpu>::Type, NcclGroup<>>);

}  // namespace

TEST_CASE("numbers that no training over processes can have are refused") {
    const auto wrong = [](const NcclAllReduce& policy, int devices = 1) {
        return message_of<InvalidArgument>([&] { policy.check(devices); });
    };
    NcclAllReduce{}.check(8);
    NcclAllReduce{.processes = 2, .process = 1, .id_file = "id"}.check(4);
    CHECK(wrong({.processes = 0}) == "NcclAllReduce averages over 1 to 1048576 processes, not 0");
    CHECK(wrong({.processes = 2, .process = 2, .id_file = "id"}) ==
          "the processes of a training over 2 are numbered 0 to 1, and this one says that it is process 2");
    CHECK(wrong({.process = -1}) ==
          "the processes of a training over 1 are numbered 0 to 0, and this one says that it is process -1");
    CHECK(wrong({.processes = 1 << 19, .id_file = "id"}, 3) ==
          "NcclAllReduce averages over 1 to 1048576 ranks, not 524288 processes with 3 devices each");
    CHECK(wrong({.processes = 2}) ==
          "a training over 2 processes hands NCCL's id on: name the same new file in the id_file of each, or set "
          "the environment variable CUPOLA_NCCL_ID");
    setenv(NcclAllReduce::id_variable, "00", 1);
    CHECK(wrong({.processes = 2}) == "(no exception)");
    unsetenv(NcclAllReduce::id_variable);
    CHECK(wrong({.start_seconds = 0}) ==
          "NcclAllReduce's start_seconds is a time above 0 s and at most 1e9 s, not 0 s");
    CHECK(wrong({.step_seconds = -3}) ==
          "NcclAllReduce's step_seconds is a time above 0 s and at most 1e9 s, not -3 s");
    CHECK(wrong({.heartbeat_seconds = std::numeric_limits<double>::quiet_NaN()}) ==
          "NcclAllReduce's heartbeat_seconds is a time above 0 s and at most 1e9 s, not nan s");
    CHECK(wrong({.abort_seconds = 0}) ==
          "NcclAllReduce's abort_seconds is a time above 0 s and at most 1e9 s, not 0 s");
    CHECK(wrong({.step_seconds = 4}) ==
          "a heartbeat that has stopped is seen during a wait: heartbeat_seconds, 5 s, is to be less than "
          "start_seconds, 120 s, and step_seconds, 4 s");
    FakeNccl nccl;
    CHECK(contains(message_of<InvalidArgument>([&] { Group(NcclAllReduce{.processes = 0}, 1, {0}, FakeCalls{&nccl}); }),
                   " processes, not 0"));
    CHECK(contains(message_of<InvalidArgument>([&] { Group(NcclAllReduce{}, 2, {0}, FakeCalls{&nccl}); }),
                   "ranks of 2 devices"));
}

TEST_CASE("one process has a rank on each of its devices, and needs no file and no environment") {
    // Of another training.
    setenv(NcclAllReduce::id_variable, "00", 1);
    for (const int devices : {1, 2, 4}) {
        FakeNccl nccl;
        const std::string id_file = fresh_path("unused");
        {
            Group group(NcclAllReduce{.id_file = id_file}, devices, std::vector<int>(static_cast<std::size_t>(devices)),
                        FakeCalls{&nccl});
            group.start();
            CHECK(nccl.device == 9);
            CHECK(run_steps(group, nccl, devices, 0, devices, 6) == 6 * devices);
            CHECK_FALSE(group.failed());
            group.finish();
            CHECK(nccl.destroyed == devices);
        }
        CHECK(nccl.ids == 1);
        CHECK(static_cast<int>(nccl.devices.size()) == devices);
        CHECK(nccl.devices.back() == devices - 1);
        CHECK(nccl.finalized == devices);
        CHECK(nccl.destroyed == devices);
        CHECK(nccl.aborted == 0);
        CHECK_FALSE(there(id_file));
        CHECK_FALSE(there(id_file + ".heartbeats"));
    }
    unsetenv(NcclAllReduce::id_variable);
}

TEST_CASE("a device that failed elsewhere breaks all sums off, once") {
    FakeNccl nccl;
    Group group(NcclAllReduce{}, 2, {0, 3}, FakeCalls{&nccl});
    group.start();
    CHECK(run_steps(group, nccl, 2, 0, 2, 2) == 4);
    group.break_off(1, 2, "an illegal memory access was encountered");
    group.break_off(0, 2, "something else");
    CHECK(group.failed());
    CHECK(nccl.aborted == 2);
    CHECK(message_of<DeviceError>([&] { sums(group, nccl, 0, 0, 2, 2); }) ==
          "replica 3 (rank 1 of 2) in the sum of the gradients of step 2: an illegal memory access was encountered");
}

TEST_CASE("child: the other process of two" * doctest::skip()) {
    const auto number = [](const char* variable) { return std::atoi(std::getenv(variable)); };
    const int process = number("CUPOLA_TEST_PROCESS"), devices = number("CUPOLA_TEST_DEVICES"),
              die_at = number("CUPOLA_TEST_DIE_AT");
    FakeNccl nccl;
    std::vector<int> replicas;
    for (int device = 0; device < devices; ++device) replicas.push_back(process * devices + device);
    Group group(of_two(process, std::getenv("CUPOLA_TEST_ID_FILE")), devices, replicas, FakeCalls{&nccl});
    group.start();
    const int steps = die_at < 0 ? 6 : die_at;
    CHECK(run_steps(group, nccl, devices, process * devices, 2 * devices, steps) == steps * devices);
    if (die_at >= 0) {
        std::filesystem::remove(nccl.meeting_path);
        std::raise(SIGKILL);
    }
    group.finish();
    CHECK(nccl.ids == (process == 0 && std::getenv(NcclAllReduce::id_variable) == nullptr ? 1 : 0));
}

namespace {

/// The other process, while this one goes on.
class OtherProcess {
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
    OtherProcess(const OtherProcess&) = delete;
    OtherProcess& operator=(const OtherProcess&) = delete;
    const ChildResult& result() {
        if (thread_.joinable()) thread_.join();
        return result_;
    }

private:
    ChildResult result_;
    std::thread thread_;
};

}  // namespace

TEST_CASE("two processes meet by a file, add their numbers, and leave no file behind") {
    for (const int process : {0, 1}) {
        for (const int devices : {1, 2}) {
            FakeNccl nccl;
            const std::string id_file = fresh_path("id");
            OtherProcess other(1 - process, devices, id_file);
            Group group(of_two(process, id_file), devices, std::vector<int>(static_cast<std::size_t>(devices)),
                        FakeCalls{&nccl});
            CHECK(there(id_file + ".heartbeats"));
            group.start();
            CHECK(run_steps(group, nccl, devices, process * devices, 2 * devices, 6) == 6 * devices);
            group.finish();
            INFO(other.result().output);
            CHECK(other.result().passed);
            CHECK(nccl.aborted == 0);
            CHECK_FALSE(there(id_file));
            CHECK_FALSE(there(id_file + ".heartbeats"));
        }
    }
}

TEST_CASE("a process is killed: the other ends within its deadline, and says which rank it was") {
    for (const int process : {0, 1}) {
        for (const int devices : {process + 1}) {
            FakeNccl nccl;
            const std::string id_file = fresh_path("id");
            OtherProcess other(1 - process, devices, id_file, 3);
            std::vector<int> replicas;
            for (int device = 0; device < devices; ++device) replicas.push_back(10 * process + 5 * device);
            Group group(of_two(process, id_file), devices, replicas, FakeCalls{&nccl});
            group.start();
            CHECK(run_steps(group, nccl, devices, process * devices, 2 * devices, 3) == 3 * devices);
            const double start = monotonic_seconds();
            std::vector<std::string> sentences(static_cast<std::size_t>(devices));
            std::vector<std::thread> threads;
            for (int device = 0; device < devices; ++device) {
                threads.emplace_back([&, device] {
                    sentences[static_cast<std::size_t>(device)] = message_of<DeviceError>(
                        [&] { sums(group, nccl, device, process * devices + device, 2 * devices, 3); });
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
            CHECK((sentences[0] == possible.front() || sentences[0] == possible.back()));
            CHECK(sentences.back() == sentences.front());
            CHECK(group.failed());
            CHECK(nccl.aborted == devices);
            group.finish();  // there is nothing left to finish
            CHECK(nccl.finalized == 0);
            CHECK_FALSE(other.result().passed);
        }
    }
}

TEST_CASE("without a file of heartbeats the error says that the other process cannot be seen") {
    FakeNccl nccl;
    ncclUniqueId id{};
    FakeCalls{&nccl}.make_id(&id);
    impl::CommunicatorId digits;
    std::memcpy(digits.data(), &id, sizeof id);
    setenv(NcclAllReduce::id_variable, impl::communicator_id_text(digits).c_str(), 1);
    OtherProcess other(1, 1, "", 2);
    Group group(of_two(0, ""), 1, {0}, FakeCalls{&nccl});
    group.start();
    CHECK(run_steps(group, nccl, 1, 0, 2, 2) == 2);
    CHECK(message_of<DeviceError>([&] { sums(group, nccl, 0, 0, 2, 2); }) ==
          "replica 0 (rank 0 of 2) in the sum of the gradients of step 2: it is not done after 2 s; no heartbeat of "
          "rank 1 was ever seen: it has "
          "not started, or is on another machine");
    CHECK_FALSE(other.result().passed);
    unsetenv(NcclAllReduce::id_variable);
}

TEST_CASE(
    "a file of an earlier start is refused by process 0 and left alone; process 1, which believes it, ends at its "
    "deadline") {
    FakeNccl nccl;
    const std::string id_file = fresh_path("id");
    ncclUniqueId id{};
    FakeCalls{&nccl}.make_id(&id);
    impl::CommunicatorId digits;
    std::memcpy(digits.data(), &id, sizeof id);
    impl::publish_communicator_id(id_file, digits);
    {
        Group group(of_two(0, id_file), 1, {0}, FakeCalls{&nccl});
        CHECK(message_of<DeviceError>([&] { group.start(); }) ==
              text("the file ", id_file,
                   " is there already: each start of a training over several processes needs a name of its own for "
                   "NCCL's id"));
        CHECK(there(id_file));
        CHECK(there(id_file + ".heartbeats"));
    }
    {
        NcclAllReduce policy = of_two(1, id_file);
        policy.start_seconds = 1;
        Group group(policy, 1, {7}, FakeCalls{&nccl});
        CHECK(message_of<DeviceError>([&] { group.start(); }) ==
              "replica 7 (rank 1 of 2) in the start of the communicator: it is not done after 1 s; no heartbeat of "
              "rank 0 was ever seen: it has "
              "not started, or is on another machine");
        CHECK(nccl.aborted == 1);
        CHECK(there(id_file));
        CHECK_FALSE(there(id_file + ".heartbeats"));
    }
    std::filesystem::remove(id_file);
}

TEST_CASE("a process that comes alone gives up, and takes its files away") {
    FakeNccl nccl;
    const std::string id_file = fresh_path("id");
    NcclAllReduce policy = of_two(1, id_file);
    policy.start_seconds = 1;
    Group second(policy, 1, {7}, FakeCalls{&nccl});
    CHECK(message_of<DeviceError>([&] { second.start(); }) ==
          text("rank 0 has not written NCCL's id to ", id_file, " within 1 s: is it started, with the same name?"));
    CHECK_FALSE(there(id_file + ".heartbeats"));
    policy.process = 0;
    Group first(policy, 1, {0}, FakeCalls{&nccl});
    CHECK(message_of<DeviceError>([&] { first.start(); }) ==
          "replica 0 (rank 0 of 2) in the start of the communicator: it is not done after 1 s; no heartbeat of rank 1 "
          "was ever seen: it has not "
          "started, or is on another machine");
    CHECK_FALSE(there(id_file));
    CHECK_FALSE(there(id_file + ".heartbeats"));
    // So the same name serves the next start.
    OtherProcess other(1, 1, id_file);
    policy = of_two(0, id_file);
    FakeNccl another;
    Group third(policy, 1, {0}, FakeCalls{&another});
    third.start();
    CHECK(run_steps(third, another, 1, 0, 2, 6) == 6);
    third.finish();
    CHECK(other.result().passed);
}
