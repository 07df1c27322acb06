// SPDX-License-Identifier: Apache-2.0
//
// Checks the stand-in for NCCL: its sums against plain ones, its configurable behavior, and the detection of misuse with
// which NCCL would hang or return a wrong sum.
#include "../../../test.hpp"

#include <sstream>

#include <unistd.h>

#include <nccl.h>

#include "../nccl_behavior.hpp"
#include "device_memory.hpp"

using namespace cupola::emulator;
using emulator_tests::Event, emulator_tests::Stream;

namespace {

bool done_within(double seconds, const auto& done) {
    for (double waited = 0; waited < seconds; waited += 1e-4) {
        if (done()) return true;
        usleep(100);
    }
    return false;
}

/// Ranks 0 to n - 1 on this thread, each with a stream and an event.
class Ranks : NotCopied {
public:
    explicit Ranks(int ranks) : comms_(static_cast<std::size_t>(ranks)) {
        ncclUniqueId id;
        REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 0;
        ncclGroupStart();
        for (int rank = 0; rank < ranks; ++rank) {
            streams_.push_back(std::make_unique<Stream>(rank));
            events_.push_back(std::make_unique<Event>(rank));
            const auto i = static_cast<std::size_t>(rank);
            cudaSetDevice(rank);
            REQUIRE(ncclCommInitRankConfig(&comms_[i], ranks, id, rank, &config) == ncclSuccess);
        }
        ncclGroupEnd();
        cudaSetDevice(0);
        for (std::size_t i = 0; i < comms_.size(); ++i) REQUIRE(settle(i) == ncclSuccess);
    }
    ~Ranks() {
        abort();
        for (const auto& stream : streams_) cudaStreamSynchronize(*stream);
        static_cast<void>(take_nccl_misuse());  // the setting must not reach the next case
    }

    [[nodiscard]] std::size_t size() const { return comms_.size(); }
    [[nodiscard]] ncclComm_t comm(std::size_t i) const { return comms_[i]; }
    [[nodiscard]] ncclResult_t state(std::size_t i) {
        ncclResult_t state = ncclSuccess;
        const ncclResult_t asked = ncclCommGetAsyncError(comms_[i], &state);
        return asked == ncclSuccess ? state : asked;
    }
    /// Queries until the call is no longer in progress, for at most 10 seconds.
    ncclResult_t settle(std::size_t i) {
        ncclResult_t result = ncclInProgress;
        done_within(10, [&] { return (result = state(i)) != ncclInProgress; });
        return result;
    }
    ncclResult_t all_reduce(std::size_t i, std::vector<float>& values) {
        return all_reduce(i, values.data(), values.size(), ncclFloat32);
    }
    ncclResult_t all_reduce(std::size_t i, void* values, std::size_t count, ncclDataType_t type) {
        const ncclResult_t called = ncclAllReduce(values, values, count, type, ncclSum, comms_[i], *streams_[i]);
        if (called != ncclSuccess && called != ncclInProgress) return called;
        const ncclResult_t settled = settle(i);
        cudaEventRecord(*events_[i], *streams_[i]);
        return settled;
    }
    ncclResult_t all_gather(std::size_t i, const std::vector<char>& mine, std::vector<char>& all) {
        const ncclResult_t called =
            ncclAllGather(mine.data(), all.data(), mine.size(), ncclInt8, comms_[i], *streams_[i]);
        return called == ncclSuccess || called == ncclInProgress ? settle(i) : called;
    }
    [[nodiscard]] bool done(std::size_t i, double seconds = 10) {
        return done_within(seconds, [&] { return cudaEventQuery(*events_[i]) == cudaSuccess; });
    }
    void abort() {
        ncclGroupStart();
        for (ncclComm_t& comm : comms_) {
            if (comm != nullptr) ncclCommAbort(std::exchange(comm, nullptr));
        }
        ncclGroupEnd();
    }
    void destroy() {
        for (ncclComm_t comm : comms_) CHECK(ncclCommFinalize(comm) != ncclInvalidUsage);
        for (std::size_t i = 0; i < comms_.size(); ++i) CHECK(settle(i) == ncclSuccess);
        for (ncclComm_t& comm : comms_) CHECK(ncclCommDestroy(std::exchange(comm, nullptr)) == ncclSuccess);
    }

private:
    std::vector<ncclComm_t> comms_;
    std::vector<std::unique_ptr<Stream>> streams_;
    std::vector<std::unique_ptr<Event>> events_;
};

/// Numbers whose sum depends on the order of addition.
float number(std::size_t rank, std::size_t i, std::size_t k) {
    return static_cast<float>((rank * 7919 + i * 104729 + k * 31) % 1000003) * (rank % 2 == 0 ? 1e-3F : 3.7F);
}
std::vector<std::vector<float>> numbers(std::size_t ranks, std::size_t count, std::size_t k) {
    std::vector<std::vector<float>> values(ranks, std::vector<float>(count));
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        for (std::size_t i = 0; i < count; ++i) values[rank][i] = number(rank, i, k);
    }
    return values;
}

}  // namespace

TEST_CASE("its all-reduce is the plain sum in the order of the ranks, of every length, over and over") {
    for (const std::size_t ranks : {1U, 2U, 3U, 4U}) {
        Ranks all(static_cast<int>(ranks));
        for (const std::size_t count : {1U, 2U, 5U, 1000U, 65537U}) {
            std::vector<std::vector<float>> values = numbers(ranks, count, count);
            std::vector<float> expected = values[0];
            for (std::size_t rank = 1; rank < ranks; ++rank) {
                for (std::size_t i = 0; i < count; ++i) expected[i] += values[rank][i];
            }
            for (std::size_t rank = 0; rank < ranks; ++rank) CHECK(all.all_reduce(rank, values[rank]) == ncclSuccess);
            for (std::size_t rank = 0; rank < ranks; ++rank) {
                REQUIRE(all.done(rank));
                CHECK(values[rank] == expected);
            }
        }
        all.destroy();
        CHECK(take_nccl_misuse().empty());
        CHECK(nccl_open_communicators() == 0);
    }
}

TEST_CASE("its all-reduce of bfloat16 rounds after each addition") {
    constexpr std::size_t ranks = 3;
    Ranks all(ranks);
    // 256 + 1 is halfway between 256 and 258 and becomes the even 256, twice; the sum in float is 258.
    const std::uint16_t values[ranks][3] = {
        {0x4380, 0x3F80, 0x4381}, {0x3F80, 0x3F80, 0x3F80}, {0x3F80, 0x7FC0, 0x0000}};
    std::vector<std::vector<std::uint16_t>> buffers;
    for (const auto& each : values) buffers.emplace_back(std::begin(each), std::end(each));
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        std::vector<std::uint16_t>& mine = buffers[rank];
        REQUIRE(all.all_reduce(rank, mine.data(), mine.size(), ncclBfloat16) == ncclSuccess);
    }
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        REQUIRE(all.done(rank));
        CHECK(buffers[rank][0] == 0x4380);
        CHECK((buffers[rank][1] & 0x7FFF) > 0x7F80);
        CHECK(buffers[rank][2] == 0x4382);  // 258 + 1 becomes 260
    }
    all.destroy();
}

TEST_CASE("its all-gather has the bytes of all ranks in their order, between all-reduces") {
    Ranks all(3);
    std::vector<std::vector<char>> mine(3), gathered(3, std::vector<char>(15));
    for (std::size_t rank = 0; rank < 3; ++rank) mine[rank].assign(5, static_cast<char>('a' + rank));
    std::vector<std::vector<float>> values = numbers(3, 4, 0);
    const float expected = values[0][1] + values[1][1] + values[2][1];
    for (std::size_t rank = 0; rank < 3; ++rank) {
        CHECK(all.all_gather(rank, mine[rank], gathered[rank]) == ncclSuccess);
        CHECK(all.all_reduce(rank, values[rank]) == ncclSuccess);
    }
    for (std::size_t rank = 0; rank < 3; ++rank) {
        REQUIRE(all.done(rank));
        CHECK(std::string(gathered[rank].begin(), gathered[rank].end()) == "aaaaabbbbbccccc");
        CHECK(values[rank][1] == expected);
    }
    std::vector<char> less(4);
    CHECK(all.all_gather(0, mine[0], gathered[0]) == ncclSuccess);
    CHECK(all.all_gather(1, less, gathered[1]) == ncclInvalidUsage);
    CHECK(
        take_nccl_misuse() ==
        "rank 1: collective 2 is an all-gather of 4 elements of type 0, and that of rank 0 is an all-gather of 5 elements "
        "of type 0");
    all.abort();
}

TEST_CASE("ring order adds the beginning of the buffer from rank 0 on, and its end from the last rank on") {
    constexpr std::size_t ranks = 4, count = 4000;
    const NcclBehaves behaves({.ring_order = true});
    Ranks all(ranks);
    std::vector<std::vector<float>> values = numbers(ranks, count, 1);
    std::vector<float> expected(count), plain(count);
    for (std::size_t i = 0; i < count; ++i) {
        const std::size_t first = i / 1000;
        expected[i] = values[first][i];
        for (std::size_t k = 1; k < ranks; ++k) expected[i] += values[(first + k) % ranks][i];
        for (std::size_t k = 0; k < ranks; ++k) plain[i] += values[k][i];
    }
    for (std::size_t rank = 0; rank < ranks; ++rank) all.all_reduce(rank, values[rank]);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        REQUIRE(all.done(rank));
        CHECK(values[rank] == expected);
    }
    CHECK(expected != plain);
    // A shorter call over the same elements rounds differently.
    std::vector<std::vector<float>> half = numbers(ranks, count, 1);
    for (auto& each : half) each.resize(count / 2);
    for (std::size_t rank = 0; rank < ranks; ++rank) all.all_reduce(rank, half[rank]);
    for (std::size_t rank = 0; rank < ranks; ++rank) REQUIRE(all.done(rank));
    CHECK_FALSE(std::equal(half[0].begin(), half[0].end(), expected.begin()));
}

TEST_CASE("it reports \"in progress\" as often as configured, and queues nothing on the stream before") {
    const NcclBehaves behaves({.in_progress = 3});
    Ranks all(2);
    std::vector<std::vector<float>> values = numbers(2, 10, 0);
    const float expected = values[0][4] + values[1][4];
    const Stream stream;
    const Event event;
    CHECK(ncclAllReduce(values[0].data(), values[0].data(), 10, ncclFloat32, ncclSum, all.comm(0), stream) ==
          ncclInProgress);
    cudaEventRecord(event, stream);  // too early: it does not wait for the sum
    CHECK(done_within(10, [&] { return cudaEventQuery(event) == cudaSuccess; }));
    for (int i = 0; i < 3; ++i) CHECK(all.state(0) == ncclInProgress);
    CHECK(all.state(0) == ncclSuccess);
    CHECK(all.all_reduce(1, values[1]) == ncclSuccess);
    cudaEventRecord(event, stream);
    CHECK(done_within(10, [&] { return cudaEventQuery(event) == cudaSuccess; }));
    CHECK(values[0][4] == expected);
    CHECK(all.done(1));
}

TEST_CASE("a call before the last one was complete is detected") {
    const NcclBehaves behaves({.in_progress = 1});
    Ranks all(1);
    std::vector<float> values(3);
    const Stream stream;
    const auto call = [&] {
        return ncclAllReduce(values.data(), values.data(), 3, ncclFloat32, ncclSum, all.comm(0), stream);
    };
    CHECK(call() == ncclInProgress);
    CHECK(call() == ncclInvalidArgument);
    CHECK(take_nccl_misuse() == "rank 0: ncclAllReduce was called before NCCL had settled the last call");
    CHECK(all.settle(0) == ncclSuccess);
    cudaStreamSynchronize(stream);
}

TEST_CASE("a group costs the host the time of one thread, and its calls are queued together") {
    for (const int answers : {0, 2}) {
        CAPTURE(answers);
        const NcclBehaves behaves({.in_progress = answers});
        Ranks all(1);
        const Stream stream;
        const Event events[2];
        std::vector<float> values(3), others(5);
        std::vector<char> bytes(2), gathered(2);
        const auto calls = [&] {
            CHECK(ncclAllReduce(values.data(), values.data(), 3, ncclFloat32, ncclSum, all.comm(0), stream) ==
                  ncclSuccess);
            CHECK(ncclAllReduce(others.data(), others.data(), 5, ncclFloat32, ncclSum, all.comm(0), stream) ==
                  ncclSuccess);
            CHECK(ncclAllGather(bytes.data(), gathered.data(), 2, ncclInt8, all.comm(0), stream) == ncclSuccess);
        };
        const NcclCallCounts before = nccl_call_counts();
        cudaEventRecord(events[0], stream);
        ncclGroupStart();
        calls();
        CHECK(ncclGroupEnd() == (answers > 0 ? ncclInProgress : ncclSuccess));
        CHECK(all.settle(0) == ncclSuccess);
        cudaEventRecord(events[1], stream);
        cudaStreamSynchronize(stream);
        NcclCallCounts after = nccl_call_counts();
        CHECK(after.groups - before.groups == 1);
        CHECK(after.host_seconds - before.host_seconds == doctest::Approx(50e-6));
        float milliseconds = 0;
        CHECK(cudaEventElapsedTime(&milliseconds, events[0], events[1]) == cudaSuccess);
        CHECK(milliseconds >= 0.0499F);
        // An empty group costs nothing.
        ncclGroupStart();
        CHECK(ncclGroupEnd() == ncclSuccess);
        CHECK(nccl_call_counts().groups == after.groups);
        if (answers == 0) {
            calls();
            after = nccl_call_counts();
            CHECK(after.groups - before.groups == 4);
        }
        cudaStreamSynchronize(stream);
        CHECK(take_nccl_misuse().empty());
    }
}

TEST_CASE("a late collective completes, and one that a rank does not join does not complete") {
    const NcclBehaves behaves({.vain_tries = 50});
    Ranks all(2);
    std::vector<std::vector<float>> values = numbers(2, 4, 0);
    const float expected = values[0][1] + values[1][1];
    all.all_reduce(0, values[0]);
    CHECK_FALSE(all.done(0, 0.05));
    all.all_reduce(1, values[1]);
    CHECK(all.done(0));
    CHECK(all.done(1));
    CHECK(values[0][1] == expected);
}

TEST_CASE("ranks whose collectives differ all get an error that names them") {
    const auto misused = [](std::size_t first, std::size_t second) {
        Ranks all(2);
        std::vector<float> left(first), right(second);
        CHECK(all.all_reduce(0, left) == ncclSuccess);
        CHECK(all.all_reduce(1, right) == ncclInvalidUsage);
        CHECK(all.state(0) == ncclInvalidUsage);
        CHECK_FALSE(all.done(0, 0.02));
        const std::string said = ncclGetLastError(all.comm(1));
        CHECK(said == ncclGetLastError(all.comm(0)));
        CHECK(said == take_nccl_misuse());
        all.abort();
        return said;
    };
    CHECK(misused(5, 7) ==
          "rank 1: collective 0 is an all-reduce of 7 elements of type 7, and that of rank 0 is an all-reduce of 5 "
          "elements of type 7");
}

TEST_CASE("ranks that give buffers in different orders are detected if buffers have names") {
    std::vector<float> left(8), right(8);
    const NcclBehaves behaves({.name_of_buffer = [&](const void* buffer) {
        const auto* const at = static_cast<const float*>(buffer);
        const float* const begin = at >= left.data() && at < left.data() + 8 ? left.data() : right.data();
        return "element " + std::to_string(at - begin);
    }});
    Ranks all(2);
    const Stream stream;
    const auto call = [&](std::size_t rank, float* at, cudaStream_t on) {
        return ncclAllReduce(at, at, 4, ncclFloat32, ncclSum, all.comm(rank), on);
    };
    const Stream other(1);
    CHECK(call(0, &left[4], stream) == ncclSuccess);
    CHECK(call(1, &right[0], other) == ncclInvalidUsage);
    CHECK(take_nccl_misuse() ==
          "rank 1: collective 0 is an all-reduce of 4 elements of type 7 from element 0, and that of rank 0 is an "
          "all-reduce of 4 elements of type 7 from element 4");
    all.abort();
    cudaStreamSynchronize(stream);
}

TEST_CASE("a rank that ends after fewer collectives than another is detected") {
    Ranks all(2);
    std::vector<float> values(3);
    CHECK(all.all_reduce(0, values) == ncclSuccess);
    CHECK(ncclCommFinalize(all.comm(0)) == ncclInProgress);
    CHECK(ncclCommFinalize(all.comm(1)) == ncclInProgress);
    CHECK(all.settle(1) == ncclInvalidUsage);
    CHECK(take_nccl_misuse() == "rank 1: 0 collectives were called until the end, and 1 by rank 0");
    all.abort();
}

TEST_CASE("a rank dies: the others get an error, or wait without end until they abort") {
    for (const NcclDeath death : {NcclDeath::noticed, NcclDeath::silent}) {
        Ranks all(3);
        std::vector<std::vector<float>> values = numbers(3, 4, 0);
        nccl_rank_dies(1, death);
        CHECK(all.all_reduce(0, values[0]) == (death == NcclDeath::noticed ? ncclRemoteError : ncclSuccess));
        if (death == NcclDeath::silent) CHECK_FALSE(all.done(0, 0.02));
        CHECK(all.state(2) == (death == NcclDeath::noticed ? ncclRemoteError : ncclSuccess));
        if (death == NcclDeath::noticed)
            CHECK(std::string(ncclGetLastError(all.comm(2))) == "rank 1 has closed its connections");
        all.abort();
        CHECK(all.done(0));
    }
}

TEST_CASE("an abort waits for all ranks: one thread has to group it, and a call after it is detected") {
    const auto behaves = std::make_unique<NcclBehaves>(NcclBehavior{.abort = NcclAbort::waits_for_all_ranks});
    Ranks all(2);
    const ncclComm_t first = all.comm(0);
    all.abort();  // grouped
    CHECK(nccl_aborts_that_hang() == 0);
    ncclResult_t state = ncclSuccess;
    CHECK(ncclCommGetAsyncError(first, &state) == ncclInvalidArgument);
    CHECK(take_nccl_misuse() == "rank 0: ncclCommGetAsyncError was called after the communicator's end");
}

TEST_CASE("an abort of one rank hangs until the others abort") {
    auto behaves = std::make_unique<NcclBehaves>(NcclBehavior{.abort = NcclAbort::waits_for_all_ranks});
    Ranks all(2);
    std::thread alone([comm = all.comm(0)] { ncclCommAbort(comm); });
    CHECK(done_within(10, [] { return nccl_aborts_that_hang() == 1; }));
    CHECK_FALSE(done_within(0.02, [] { return nccl_aborts_that_hang() == 0; }));
    ncclCommAbort(all.comm(1));
    alone.join();
    CHECK(nccl_aborts_that_hang() == 0);
}

TEST_CASE("an abort that hangs returns when the behavior ends") {
    auto behaves = std::make_unique<NcclBehaves>(NcclBehavior{.abort = NcclAbort::hangs});
    {
        Ranks all(1);
        std::thread hanging([comm = all.comm(0)] { ncclCommAbort(comm); });
        CHECK(done_within(10, [] { return nccl_aborts_that_hang() == 1; }));
        behaves.reset();
        hanging.join();
    }
    CHECK(nccl_open_communicators() == 0);
}

TEST_CASE("a shrunken communicator is null until its parents are no longer in progress") {
    for (const int answers : {0, 3}) {
        CAPTURE(answers);
        Ranks all(3);
        const NcclBehaves behaves({.in_progress = answers});
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 0;
        int lost = 1;
        ncclComm_t made[2]{all.comm(0), all.comm(2)};
        const auto shrink = [&](int rank, ncclComm_t& to) {
            cudaSetDevice(rank);
            const ncclResult_t called =
                ncclCommShrink(all.comm(static_cast<std::size_t>(rank)), &lost, 1, &to, &config, NCCL_SHRINK_ABORT);
            cudaSetDevice(0);
            return called;
        };
        CHECK(shrink(0, made[0]) == ncclInProgress);
        CHECK(made[0] == nullptr);
        ncclResult_t state = ncclSuccess;
        CHECK(ncclCommGetAsyncError(made[0], &state) == ncclInvalidArgument);
        CHECK(take_nccl_misuse() == "ncclCommGetAsyncError was called with what is no communicator");
        // It is made together with those of the other ranks.
        for (int i = 0; i < answers + 5; ++i) CHECK(all.state(0) == ncclInProgress);
        CHECK(shrink(0, made[1]) == ncclInvalidArgument);
        CHECK(take_nccl_misuse() == "rank 0: ncclCommShrink was called before NCCL had settled the last call");
        CHECK(shrink(2, made[1]) == ncclInProgress);
        for (const std::size_t parent : {0U, 2U}) CHECK(all.settle(parent) == ncclSuccess);
        for (const ncclComm_t each : made) {
            REQUIRE(each != nullptr);
            CHECK(ncclCommGetAsyncError(each, &state) == ncclSuccess);
            CHECK(state == ncclSuccess);
            CHECK(ncclCommAbort(each) == ncclSuccess);
        }
        CHECK(take_nccl_misuse().empty());
    }
    // That of an id is there at once, and one that cannot be made is null.
    ncclUniqueId id;
    REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t first = nullptr, none = reinterpret_cast<ncclComm_t>(1);
    const NcclBehaves behaves({.in_progress = 2});
    CHECK(ncclCommInitRankConfig(&first, 2, id, 0, &config) == ncclInProgress);
    CHECK(first != nullptr);
    CHECK(ncclCommInitRankConfig(&none, 2, id, 2, &config) == ncclInvalidArgument);
    CHECK(none == nullptr);
    CHECK(take_nccl_misuse() == "rank 2 of 2 ranks");
    ncclCommAbort(first);
}

TEST_CASE("a stream of another device is detected") {
    Ranks all(2);
    float value = 1;
    const Stream stream;
    CHECK(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, all.comm(1), stream) == ncclInvalidUsage);
    CHECK(take_nccl_misuse() == "rank 1: a stream of device 0, and the communicator's device is 1");
}

TEST_CASE("two ranks of one device are rejected, as NCCL does") {
    ncclUniqueId id;
    REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t first = nullptr, second = nullptr;
    CHECK(ncclCommInitRankConfig(&first, 2, id, 0, &config) == ncclSuccess);
    CHECK(ncclCommInitRankConfig(&second, 2, id, 1, &config) == ncclInvalidUsage);
    CHECK(take_nccl_misuse() == "ranks 0 and 1 are on the same device 0");
    ncclCommAbort(first);
    config.blocking = 1;
    CHECK(ncclCommInitRankConfig(&second, 2, id, 1, &config) == ncclInvalidArgument);
    CHECK(take_nccl_misuse() == "a communicator that is not configured as non-blocking");
}

TEST_CASE("its constants are those of NCCL's own header, where that is installed") {
    std::string path;
    for (const char* candidate : {"/usr/include/nccl.h", "/usr/local/cuda/include/nccl.h"}) {
        if (std::filesystem::exists(candidate)) path = candidate;
    }
    if (path.empty()) {
        MESSAGE("skipped: nccl.h was not found");
        return;
    }
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    const std::string header = text.str();
    // The text after "name =".
    const auto value = [&](const std::string& name) {
        for (std::size_t at = header.find(name); at != std::string::npos; at = header.find(name, at + 1)) {
            const std::size_t equals = header.find_first_not_of(' ', at + name.size());
            if (equals != std::string::npos && header[equals] == '=') return std::atoi(&header[equals + 1]);
        }
        return -1;
    };
    CHECK(value("ncclSuccess") == ncclSuccess);
    CHECK(value("ncclUnhandledCudaError") == ncclUnhandledCudaError);
    CHECK(value("ncclSystemError") == ncclSystemError);
    CHECK(value("ncclInternalError") == ncclInternalError);
    CHECK(value("ncclInvalidArgument") == ncclInvalidArgument);
    CHECK(value("ncclInvalidUsage") == ncclInvalidUsage);
    CHECK(value("ncclRemoteError") == ncclRemoteError);
    CHECK(value("ncclInProgress") == ncclInProgress);
    CHECK(value("ncclSum") == ncclSum);
    CHECK(value("ncclInt8") == ncclInt8);
    CHECK(value("ncclInt32") == ncclInt32);
    CHECK(value("ncclFloat32") == ncclFloat32);
    CHECK(value("ncclFloat64") == ncclFloat64);
    CHECK(value("ncclBfloat16") == ncclBfloat16);
    CHECK(header.find("#define NCCL_UNIQUE_ID_BYTES 128") != std::string::npos);
    CHECK(header.find("0xcafebeef") != std::string::npos);
    // The functions that Cupola calls have the same parameters.
    for (const char* declaration :
         {"ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank, ncclConfig_t* config);",
          "ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *asyncError);", "ncclCommFinalize(ncclComm_t comm);",
          "ncclCommDestroy(ncclComm_t comm);", "ncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount,",
          "ncclCommAbort(ncclComm_t comm);", "ncclGetUniqueId(ncclUniqueId* uniqueId);",
          "ncclGetVersion(int *version);", "ncclGroupStart(void);|ncclGroupStart();",
          "ncclGroupEnd(void);|ncclGroupEnd();"}) {
        std::stringstream choices(declaration);
        bool found = false;
        for (std::string choice; std::getline(choices, choice, '|');)
            found = found || header.find(choice) != std::string::npos;
        CHECK_MESSAGE(found, declaration);
    }
}
