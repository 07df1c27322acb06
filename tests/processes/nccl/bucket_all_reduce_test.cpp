// SPDX-License-Identifier: Apache-2.0
//
// NcclBucketAllReduce over the stand-in for NCCL and the emulator's streams: its sums against plain ones, that they go on
// beside what the step's stream computes, and that nothing that a rank leaves out or does wrong is a hang.
#include "../../test.hpp"

#include <mutex>

#include <unistd.h>

#include <cupola/processes/nccl/bucket_all_reduce.hpp>

#include "../../child_process.hpp"
#include "../../gpu/emulator/control.hpp"
#include "../../gpu/emulator/nccl_behavior.hpp"
#include "../../gpu/emulator/stream.hpp"
#include "../../temporary_folder.hpp"
#include "../../throws_with.hpp"

using namespace emulator;
using AllReduce = NcclBucketAllReduce<>;

namespace {

constexpr std::int64_t elements = 41;
/// In the order of the backward pass.
const std::vector<std::vector<GradientBucket>> splits{
    {{0, 41}}, {{20, 41}, {0, 20}}, {{40, 41}, {17, 40}, {16, 17}, {3, 16}, {0, 3}}};

/// The local sum of a rank and its weight: none for rank 1 in every third step.
float local(int rank, std::int64_t step, std::int64_t i) {
    return (rank % 2 == 0 ? 1e-3F : 3.7F) * static_cast<float>((rank + 1) * 7919 + step * 104729 + i * 31);
}
float weight(int rank, std::int64_t step) {
    return rank == 1 && step % 3 == 2 ? 0 : static_cast<float>(32 + 5 * rank + step);
}

/// A device of this process: the stream of its steps, and where the sums come back to.
class RankDevice : NotCopied {
public:
    RankDevice(int ordinal, int of_rank) : rank(of_rank), ordinal_(ordinal) {
        own_thread();
        REQUIRE(cudaMalloc(&memory_, sizeof(float) * AllReduce::memory_floats(elements)) == cudaSuccess);
        REQUIRE(cudaHostAlloc(&pinned_, sizeof(float) * (static_cast<std::size_t>(elements) * 18 + 16), 0) ==
                cudaSuccess);
        REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
        for (cudaEvent_t& each : ready) REQUIRE(cudaEventCreateWithFlags(&each, cudaEventDisableTiming) == cudaSuccess);
        REQUIRE(cudaSetDevice(0) == cudaSuccess);
    }
    ~RankDevice() {
        cudaStreamSynchronize(stream);
        for (const cudaEvent_t each : ready) cudaEventDestroy(each);
        cudaStreamDestroy(stream);
        cudaFreeHost(pinned_);
        cudaFree(memory_);
    }
    void own_thread() const { cudaSetDevice(ordinal_); }
    [[nodiscard]] float* memory() const { return static_cast<float*>(memory_); }
    // Pinned, so that no copy waits: where a step's local sums and weight are copied from, and its sums and divisor to.
    [[nodiscard]] float* local(std::int64_t step) const { return static_cast<float*>(pinned_) + step % 16 * elements; }
    [[nodiscard]] float* landed() const { return local(0) + 16 * elements; }
    [[nodiscard]] float* divisor(std::int64_t step) const { return local(0) + 17 * elements + step % 16; }
    [[nodiscard]] float* weight(std::int64_t step) const { return local(0) + 18 * elements + step % 16; }

    const int rank;
    cudaStream_t stream = nullptr;
    cudaEvent_t ready[8]{};
    // What it tells all ranks, and what they tell.
    char block[1]{}, blocks[16]{};

private:
    int ordinal_;
    void *memory_ = nullptr, *pinned_ = nullptr;
};

/// The devices of a process and their sums.
struct Process {
    explicit Process(int count, const NcclAllReduce& policy = {}, bool exchanges_blocks = false) {
        std::vector<int> replicas;
        for (int device = 0; device < count; ++device) {
            const int rank = policy.process * count + device;
            devices.push_back(std::make_unique<RankDevice>(device, rank));
            replicas.push_back(10 * rank);
        }
        all = std::make_unique<AllReduce>(policy, replicas, elements);
        run([&](std::size_t device) {
            RankDevice& mine = *devices[device];
            RankBlocks blocks;
            const auto bytes = static_cast<std::size_t>(count);
            if (exchanges_blocks)
                blocks = {.mine = std::as_bytes(std::span(mine.block, 1)),
                          .all = std::as_writable_bytes(std::span(mine.blocks, bytes))};
            all->join(static_cast<int>(device), mine.memory(), blocks);
        });
    }
    [[nodiscard]] AllReduce::Member& member(std::size_t device) { return all->member(static_cast<int>(device)); }

    /// Runs body(device's index) on a thread per device; what each threw, "" where nothing.
    std::vector<std::string> run(const std::function<void(std::size_t)>& body) {
        std::vector<std::string> thrown(devices.size());
        std::vector<std::thread> threads;
        for (std::size_t i = 0; i < devices.size(); ++i) {
            threads.emplace_back([&, i] {
                devices[i]->own_thread();
                try {
                    body(i);
                } catch (const Error& error) {
                    thrown[i] = error.what();
                }
            });
        }
        for (std::thread& thread : threads) thread.join();
        return thrown;
    }
    /// The same, where nothing may be thrown.
    void run_all(const std::function<void(std::size_t)>& body) {
        for (const std::string& thrown : run(body)) CHECK(thrown == "");
    }

    std::vector<std::unique_ptr<RankDevice>> devices;
    std::unique_ptr<AllReduce> all;
};

/// Begins a step, and queues its weight.
void begin(Process& process, std::size_t device, std::int64_t step, float of_device) {
    RankDevice& mine = *process.devices[device];
    process.member(device).begin(step);
    *mine.weight(step) = of_device;
    cudaMemcpyAsync(process.member(device).weight(), mine.weight(step), sizeof(float), cudaMemcpyHostToDevice,
                    mine.stream);
}
void begin(Process& process, std::size_t device, std::int64_t step) {
    begin(process, device, step, weight(process.devices[device]->rank, step));
}
/// Queues a bucket's local sum, and gives it.
void give(Process& process, std::size_t device, std::int64_t step, const GradientBucket& bucket, std::size_t event) {
    RankDevice& mine = *process.devices[device];
    AllReduce::Member& member = process.member(device);
    for (std::int64_t i = bucket.begin; i < bucket.end; ++i) mine.local(step)[i] = local(mine.rank, step, i);
    cudaMemcpyAsync(member.values().data() + bucket.begin, mine.local(step) + bucket.begin,
                    static_cast<std::size_t>(bucket.end - bucket.begin) * sizeof(float), cudaMemcpyHostToDevice,
                    mine.stream);
    if (step % 2 == 0) {
        member.give(bucket, mine.stream);
        return;
    }
    cudaEventRecord(mine.ready[event], mine.stream);
    member.give(bucket, mine.ready[event]);
}
/// A whole step of a device, whose sums come back to the host on the step's stream.
void queue_step(Process& process, std::size_t device, std::int64_t step, const std::vector<GradientBucket>& buckets) {
    RankDevice& mine = *process.devices[device];
    AllReduce::Member& member = process.member(device);
    begin(process, device, step);
    for (std::size_t k = 0; k < buckets.size(); ++k) give(process, device, step, buckets[k], k);
    const GradientSums sums = member.finish(mine.stream);
    cudaMemcpyAsync(mine.landed(), sums.values.data(), sums.values.size_bytes(), cudaMemcpyDeviceToHost, mine.stream);
    cudaMemcpyAsync(mine.divisor(step), sums.divisor, sizeof(float), cudaMemcpyDeviceToHost, mine.stream);
}
/// Whether what came back is the plain sum over all ranks, in their order.
bool right(const RankDevice& device, int ranks, std::int64_t step) {
    float divisor = 0;
    for (int rank = 0; rank < ranks; ++rank) divisor += weight(rank, step);
    bool result = *device.divisor(step) == divisor;
    for (std::int64_t i = 0; i < elements; ++i) {
        float sum = local(0, step, i);
        for (int rank = 1; rank < ranks; ++rank) sum += local(rank, step, i);
        result = result && device.landed()[i] == sum;
    }
    return result;
}

/// Steps that are waited for one by one; how many came back right, over all devices.
int run_steps(Process& process, int ranks, int steps, const std::vector<GradientBucket>& buckets) {
    std::atomic<int> count = 0;
    process.run_all([&](std::size_t device) {
        for (std::int64_t step = 0; step < steps; ++step) {
            RankDevice& mine = *process.devices[device];
            queue_step(process, device, step, buckets);
            cudaEventRecord(mine.ready[7], mine.stream);
            process.member(device).wait_for(mine.ready[7], step);
            count += right(mine, ranks, step) ? 1 : 0;
        }
    });
    return count;
}

NcclAllReduce of_two(int process, const std::string& id_file) {
    return {.processes = 2,
            .process = process,
            .id_file = id_file,
            .start_seconds = 60,
            .step_seconds = 2,
            .heartbeat_seconds = 0.5,
            .abort_seconds = 20};
}

bool within(double seconds, const std::function<bool()>& done) {
    for (double waited = 0; waited < seconds; waited += 1e-3) {
        if (done()) return true;
        usleep(1000);
    }
    return false;
}

}  // namespace

TEST_CASE("sums in bfloat16 are rounded after each addition, and the divisor is a sum of floats") {
    using Compressed16 = NcclBucketAllReduce<impl::NcclCalls, BFloat16>;
    CHECK(Compressed16::memory_floats(41) == 4 + 21);
    constexpr float large = 16'777'213;  // a number of samples with 24 bits of significand
    for (const auto& buckets : splits) {
        std::vector<std::unique_ptr<RankDevice>> devices;
        for (int rank = 0; rank < 3; ++rank) devices.push_back(std::make_unique<RankDevice>(rank, rank));
        Compressed16 all({}, {0, 10, 20}, elements);
        std::vector<std::vector<BFloat16>> mine(3, std::vector<BFloat16>(elements)), landed = mine;
        std::vector<float> weights(3), divisors(3);
        std::vector<std::thread> threads;
        for (std::size_t device = 0; device < 3; ++device) {
            threads.emplace_back([&, device] {
                devices[device]->own_thread();
                auto& member = all.join(static_cast<int>(device), devices[device]->memory());
                for (std::int64_t step = 0; step < 5; ++step) {
                    const cudaStream_t stream = devices[device]->stream;
                    member.begin(step);
                    weights[device] = device == 0 ? large : 1;
                    cudaMemcpyAsync(member.weight(), &weights[device], sizeof(float), cudaMemcpyHostToDevice, stream);
                    for (std::int64_t i = 0; i < elements; ++i)
                        mine[device][static_cast<std::size_t>(i)] = BFloat16(local(static_cast<int>(device), step, i));
                    for (const GradientBucket& bucket : buckets) {
                        cudaMemcpyAsync(member.values().data() + bucket.begin, mine[device].data() + bucket.begin,
                                        static_cast<std::size_t>(bucket.end - bucket.begin) * sizeof(BFloat16),
                                        cudaMemcpyHostToDevice, stream);
                        member.give(bucket, stream);
                    }
                    const SumsOfGradient<BFloat16> sums = member.finish(stream);
                    cudaMemcpyAsync(landed[device].data(), sums.values.data(), sums.values.size_bytes(),
                                    cudaMemcpyDeviceToHost, stream);
                    cudaMemcpyAsync(&divisors[device], sums.divisor, sizeof(float), cudaMemcpyDeviceToHost, stream);
                    cudaStreamSynchronize(stream);
                    member.wait(step);
                }
            });
        }
        for (std::thread& thread : threads) thread.join();
        for (std::size_t device = 0; device < 3; ++device) {
            CHECK(divisors[device] == large + 2);
            for (std::int64_t i = 0; i < elements; ++i) {
                BFloat16 sum(local(0, 4, i));
                for (int rank = 1; rank < 3; ++rank)
                    sum = BFloat16(static_cast<float>(sum) + static_cast<float>(BFloat16(local(rank, 4, i))));
                REQUIRE(landed[device][static_cast<std::size_t>(i)].bits == sum.bits);
            }
        }
    }
}

TEST_CASE(
    "sums and divisor are plain sums over 1 to 4 ranks, for every split of the gradient and every delay of NCCL") {
    for (const int ranks : {1, 2, 3, 4}) {
        for (const auto& buckets : splits) {
            for (const bool slow : {false, true}) {
                const NcclBehaves behaves({.in_progress = slow ? 2 : 0, .vain_tries = slow ? 7 : 0});
                Process process(ranks);
                CHECK(run_steps(process, ranks, 7, buckets) == 7 * ranks);
                CHECK(process.all->healthy());
                process.all.reset();
                CHECK(emulator::take_nccl_misuse().empty());
                CHECK(emulator::nccl_open_communicators() == 0);
            }
        }
    }
}

TEST_CASE(
    "buckets are passed to NCCL in the order of the backward pass, with the weight before element 0 in the last") {
    Process process(2, {.max_groups = 41});
    std::vector<std::string> names;
    std::mutex lock;
    const NcclBehaves behaves({.name_of_buffer = [&](const void* buffer) {
        for (const auto& device : process.devices) {
            const auto at = static_cast<const float*>(buffer) - device->memory();
            if (at < 0 || at >= AllReduce::memory_floats(elements)) continue;
            const std::lock_guard guard(lock);
            if (device->rank == 0) names.push_back(text(at - AllReduce::leading));
            return text("element ", at - AllReduce::leading);
        }
        return std::string("elsewhere");
    }});
    CHECK(run_steps(process, 2, 4, splits[2]) == 8);
    // The first steps have one group.
    CHECK(names == std::vector<std::string>{"-4", "-4", "-4", "40", "17", "16", "3", "-4"});
    process.all.reset();
    CHECK(emulator::take_nccl_misuse().empty());
}

TEST_CASE("a step has at most max_groups groups of calls per device, however many buckets there are") {
    const NcclBehaves behaves({.in_progress = 1});
    for (const auto& [max_groups, expected] : {std::pair{1, 1}, {2, 2}, {3, 3}, {5, 3}, {41, 5}}) {
        Process process(2, {.max_groups = max_groups});
        CHECK(run_steps(process, 2, 3, splits[2]) == 6);
        const emulator::NcclCallCounts before = emulator::nccl_call_counts();
        process.run_all([&](std::size_t device) {
            queue_step(process, device, 3, splits[2]);
            process.member(device).wait(3);
            cudaStreamSynchronize(process.devices[device]->stream);
            CHECK(right(*process.devices[device], 2, 3));
        });
        const emulator::NcclCallCounts after = emulator::nccl_call_counts();
        CHECK(after.groups - before.groups == 2 * expected);
        // What each device's thread of the host pays.
        CHECK((after.host_seconds - before.host_seconds) / 2 <= max_groups * 50e-6 * 1.001);
    }
    // Each block that the ranks exchange is in the group of the last bucket.
    Process process(3, {.max_groups = 2}, true);
    for (std::int64_t step = 0; step < 5; ++step) {
        const int groups = emulator::nccl_call_counts().groups;
        process.run_all([&](std::size_t device) {
            RankDevice& mine = *process.devices[device];
            *mine.block = static_cast<char>(10 * step + mine.rank);
            queue_step(process, device, step, splits[2]);
            process.member(device).wait(step);
            cudaStreamSynchronize(mine.stream);
            for (int rank = 0; rank < 3; ++rank) CHECK(mine.blocks[rank] == static_cast<char>(10 * step + rank));
        });
        CHECK(emulator::nccl_call_counts().groups - groups == 3 * (step < 3 ? 1 : 2));
    }
}

TEST_CASE("steps are queued ahead, and each is polled until it is complete") {
    Process process(2);
    CHECK(run_steps(process, 2, 3, splits[1]) == 6);
    process.run_all([&](std::size_t device) {
        for (std::int64_t step = 3; step < 7; ++step) queue_step(process, device, step, splits[1]);
        for (std::int64_t step = 3; step < 7; ++step)
            CHECK(within(10, [&] { return process.member(device).poll(step); }));
        cudaStreamSynchronize(process.devices[device]->stream);
        CHECK(right(*process.devices[device], 2, 6));
        for (std::int64_t step = 3; step < 6; ++step)
            CHECK(*process.devices[device]->divisor(step) == weight(0, step) + weight(1, step));
    });
}

TEST_CASE("a bucket is summed while the step's stream computes the next one, except in the first steps") {
    Process process(2);
    for (std::int64_t step = 0; step < 4; ++step) {
        std::atomic<bool> goes_on = false;
        std::atomic<int> seen = 0, given = 0;
        const bool first = step < 3;
        process.run_all([&](std::size_t device) {
            RankDevice& mine = *process.devices[device];
            AllReduce::Member& member = process.member(device);
            const int before = emulator::nccl_call_counts().all_reduces;
            begin(process, device, step);
            give(process, device, step, {20, 41}, 0);
            // The backward pass of the layers below takes long.
            emulator::enqueue(
                mine.stream, [&] { return goes_on.load(); }, "the rest of the backward pass");
            ++given;
            if (first) {
                CHECK(within(10, [&] { return given == 2; }));
                CHECK(emulator::nccl_call_counts().all_reduces == before);
            } else {
                const float sum = local(0, step, 30) + local(1, step, 30);
                CHECK(within(10, [&] {
                    static_cast<void>(cudaStreamQuery(mine.stream));  // the emulator's work goes on
                    return reinterpret_cast<std::atomic<float>*>(&member.values()[30])->load() == sum;
                }));
                CHECK(cudaStreamQuery(mine.stream) == cudaErrorNotReady);
            }
            ++seen;
            CHECK(within(10, [&] { return seen == 2; }));
            goes_on = true;
            give(process, device, step, {0, 20}, 1);
            const GradientSums sums = member.finish(mine.stream);
            cudaMemcpyAsync(mine.landed(), sums.values.data(), sums.values.size_bytes(), cudaMemcpyDeviceToHost,
                            mine.stream);
            cudaMemcpyAsync(mine.divisor(step), sums.divisor, sizeof(float), cudaMemcpyDeviceToHost, mine.stream);
            member.wait(step);
            cudaStreamSynchronize(mine.stream);
            CHECK(right(mine, 2, step));
        });
    }
}

TEST_CASE("steps that all-reduce a number alone are waited for, and leave the first sums in one group") {
    Process process(2);
    for (std::int64_t step = 0; step < 5; ++step) {
        process.run_all([&](std::size_t device) {
            RankDevice& mine = *process.devices[device];
            *mine.weight(step) = weight(mine.rank, step);
            const float* const sum = process.member(device).all_reduce_number(step, mine.stream, mine.weight(step));
            CHECK(*sum == weight(0, step) + weight(1, step));
        });
    }
    const int before = emulator::nccl_call_counts().all_reduces;
    CHECK(run_steps(process, 2, 4, {{20, 41}, {0, 20}}) == 2 * 4);
    // Three of one group and one of two, of each device.
    CHECK(emulator::nccl_call_counts().all_reduces - before == 2 * (3 + 2));
}

TEST_CASE("the update's stream waits for every bucket") {
    Process process(2);
    CHECK(run_steps(process, 2, 3, splits[1]) == 6);
    std::atomic<bool> comes = false;
    process.run_all([&](std::size_t device) {
        RankDevice& mine = *process.devices[device];
        if (device == 1) CHECK(within(10, [&] { return comes.load(); }));
        queue_step(process, device, 3, splits[1]);
        if (device == 0) {
            CHECK_FALSE(within(0.05, [&] { return cudaStreamQuery(mine.stream) == cudaSuccess; }));
            CHECK_FALSE(process.member(device).poll(3));
            comes = true;
        }
        process.member(device).wait(3);
        cudaStreamSynchronize(mine.stream);
        CHECK(right(mine, 2, 3));
    });
}

TEST_CASE(
    "a NaN that a rank writes to its weight after the first bucket reaches every rank's divisor, in that step only") {
    Process process(3);
    float* const pinned = process.devices[1]->local(15);
    pinned[0] = std::numeric_limits<float>::quiet_NaN();
    for (std::int64_t step = 0; step < 6; ++step) {
        const bool poisoned = step % 2 == 1;
        process.run_all([&](std::size_t device) {
            RankDevice& mine = *process.devices[device];
            AllReduce::Member& member = process.member(device);
            begin(process, device, step);
            give(process, device, step, {20, 41}, 0);
            if (poisoned && mine.rank == 1) {
                cudaMemcpyAsync(member.weight(), pinned, sizeof(float), cudaMemcpyHostToDevice, mine.stream);
            }
            give(process, device, step, {0, 20}, 1);
            const GradientSums sums = member.finish(mine.stream);
            cudaMemcpyAsync(mine.divisor(step), sums.divisor, sizeof(float), cudaMemcpyDeviceToHost, mine.stream);
            member.wait(step);
            cudaStreamSynchronize(mine.stream);
            CHECK(std::isnan(*mine.divisor(step)) == poisoned);
        });
    }
}

TEST_CASE("with more than two ranks a ring's last bits depend on the split, and are equal for the same split") {
    const auto bits = [](const std::vector<GradientBucket>& buckets) {
        const NcclBehaves behaves({.ring_order = true});
        Process process(3);
        static_cast<void>(run_steps(process, 3, 4, buckets));
        std::vector<std::vector<float>> landed;
        for (const auto& device : process.devices) landed.emplace_back(device->landed(), device->landed() + elements);
        CHECK((landed[1] == landed[0] && landed[2] == landed[0]));
        return landed[0];
    };
    CHECK(bits(splits[1]) == bits(splits[1]));
    CHECK(bits(splits[0]) != bits(splits[1]));
}

TEST_CASE("a bucket in the wrong order is an error at once, and ends the other rank's step") {
    const auto diagnostic = [](const std::function<void(Process&)>& wrong) {
        Process process(2, {.step_seconds = 60});
        std::string message;
        const std::vector<std::string> thrown = process.run([&](std::size_t device) {
            if (device == 0) {
                message = message_of<InvalidArgument>([&] { wrong(process); });
                return;
            }
            queue_step(process, device, 7, splits[1]);  // waits for the first steps' sums
        });
        // The other waits for a sum that will not come, or finds that there is none. Where all buckets were given, it
        // may have its sums before the error.
        const bool complete = contains(message, "where all have been");
        CHECK(
            ((complete && thrown[1].empty()) ||
             thrown[1] == text("replica 0 (rank 0 of 2) in the sum of the gradients of step ",
                               contains(message, "outside") || contains(message, "not begun") ? 0 : 7, ": ", message)));
        CHECK_FALSE(process.all->healthy());
        return message;
    };
    const auto given = [&](std::vector<GradientBucket> buckets, const std::function<void(Process&)>& then = {}) {
        return diagnostic([&](Process& process) {
            begin(process, 0, 7, 32);
            for (std::size_t k = 0; k < buckets.size(); ++k) give(process, 0, 7, buckets[k], k);
            if (then) then(process);
        });
    };
    const auto finish = [](Process& process) {
        static_cast<void>(process.member(0).finish(process.devices[0]->stream));
    };
    CHECK(given({{20, 41}, {20, 41}}) ==
          "device 0: bucket [20, 41) of step 7 was given where the next ends at element 20 of 41");
    CHECK(given({{0, 20}}) == "device 0: bucket [0, 20) of step 7 was given where the next ends at element 41 of 41");
    CHECK(given({{20, 41}, {3, 19}}) ==
          "device 0: bucket [3, 19) of step 7 was given where the next ends at element 20 of 41");
    CHECK(given({{20, 41}, {20, 20}}) ==
          "device 0: bucket [20, 20) of step 7 was given where the next ends at element 20 of 41");
    CHECK(given({}, [](Process& process) {
              process.member(0).give({-4, 41}, process.devices[0]->ready[0]);
          }) == "device 0: bucket [-4, 41) of step 7 was given where the next ends at element 41 of 41");
    CHECK(given({{0, 41}, {0, 41}}) == "device 0: bucket [0, 41) of step 7 was given where all have been");
    CHECK(given({{20, 41}}, finish) == "device 0: step 7 is finished without the elements [0, 20): 1 bucket was given");
    CHECK(given({}, finish) == "device 0: step 7 is finished without the elements [0, 41): 0 buckets were given");
    CHECK(diagnostic([](Process& process) {
              give(process, 0, 7, {20, 41}, 0);
          }) == "device 0: bucket [20, 41) was given outside a step");
    CHECK(diagnostic(finish) == "device 0: a step is finished that was not begun");
    CHECK(given({}, [](Process& process) { begin(process, 0, 8, 32); }) ==
          "device 0: step 8 begins before step 7 was finished");
    CHECK(given({}, [](Process& process) { static_cast<void>(process.member(0).poll(7)); }) ==
          "device 0: step 7 is waited for, which was not finished");
}

TEST_CASE("a device joins once, and with memory") {
    Process process(1);
    CHECK(message_of<InvalidArgument>([&] { process.all->join(0, process.devices[0]->memory()); }) ==
          "device 0 joins once, with memory for its sums");
    CHECK(message_of<InvalidArgument>([&] { AllReduce({}, {0}, 0); }) == "buckets of a gradient of 0 elements");
}

TEST_CASE("a fifth step in flight is an error at once") {
    Process process(2, {.step_seconds = 60});
    CHECK(run_steps(process, 2, 3, splits[0]) == 6);
    const std::vector<std::string> thrown = process.run([&](std::size_t device) {
        if (device == 1) return;  // it is late
        for (std::int64_t step = 3; step < 8; ++step) queue_step(process, device, step, splits[0]);
    });
    CHECK(thrown[0] == "device 0: step 7 begins before step 3 is complete: at most 4 are in flight");
}

TEST_CASE("ranks that split the gradient differently get an error") {
    Process process(2, {.step_seconds = 60});
    CHECK(run_steps(process, 2, 3, splits[0]) == 6);
    const std::vector<std::string> thrown = process.run([&](std::size_t device) {
        queue_step(process, device, 3, splits[device]);
        process.member(device).wait(3);
    });
    // Whichever came second has found it.
    CHECK(contains(thrown[0], "invalid usage"));
    CHECK(thrown[0] == thrown[1]);
    CHECK(contains(emulator::take_nccl_misuse(), "of type 7, and that of rank"));
}

TEST_CASE("a late rank is waited for; a missing rank is reported at the deadline, on every thread") {
    for (const bool polls : {false, true}) {
        Process process(3, {.step_seconds = 1, .heartbeat_seconds = 0.2});
        CHECK(run_steps(process, 3, 3, splits[1]) == 9);
        std::vector<std::string> thrown = process.run([&](std::size_t device) {
            if (device == 2) usleep(300'000);
            queue_step(process, device, 3, splits[1]);
            process.member(device).wait(3);
        });
        CHECK(thrown == std::vector<std::string>{"", "", ""});
        const double start = monotonic_seconds();
        thrown = process.run([&](std::size_t device) {
            if (device == 2) return;
            queue_step(process, device, 4, splits[1]);
            if (polls) {
                while (!process.member(device).poll(4)) usleep(1000);
            } else {
                process.member(device).wait(4);
            }
        });
        CHECK(monotonic_seconds() - start < 20);
        CHECK(contains(thrown[0],
                       "in the sum of the gradients of step 4: it is not done after 1 s; the heartbeat of rank 2 has "
                       "stopped"));
        CHECK(thrown[1] == thrown[0]);
        CHECK(thrown[2].empty());
        CHECK_FALSE(process.all->healthy());
        // The third finds the failure when it comes.
        CHECK(process.run([&](std::size_t device) { queue_step(process, device, 4, splits[1]); })[2] == thrown[0]);
    }
}

TEST_CASE("a rank that NCCL reports as dead ends the others") {
    Process process(2, {.step_seconds = 60});
    CHECK(run_steps(process, 2, 3, splits[1]) == 6);
    emulator::nccl_rank_dies(1, emulator::NcclDeath::noticed);
    const std::vector<std::string> thrown = process.run([&](std::size_t device) {
        if (device == 0) queue_step(process, device, 3, splits[1]);
    });
    CHECK(contains(thrown[0], "of step 3: NCCL's ncclAllReduce failed with remote process exited"));
}

TEST_CASE("a device that aborts ends every wait at once, with its message, although each abort waits for all ranks") {
    const NcclBehaves behaves({.abort = NcclAbort::waits_for_all_ranks});
    Process process(2, {.step_seconds = 60});
    CHECK(run_steps(process, 2, 3, splits[1]) == 6);
    const std::vector<std::string> thrown = process.run([&](std::size_t device) {
        if (device == 1) {
            begin(process, 1, 3, 1);
            usleep(50'000);
            process.member(1).break_off("an illegal memory access was encountered");
            CHECK_FALSE(process.member(1).healthy());
            return;
        }
        queue_step(process, device, 3, splits[1]);
        process.member(device).wait(3);
    });
    CHECK(thrown ==
          std::vector<std::string>{"replica 10 (rank 1 of 2) in the sum of the gradients of step 3: an illegal "
                                   "memory access was encountered",
                                   ""});
}

TEST_CASE("child: the other process that gives buckets" * doctest::skip()) {
    const int process = std::atoi(std::getenv("CUPOLA_TEST_PROCESS")),
              die_at = std::atoi(std::getenv("CUPOLA_TEST_DIE_AT"));
    Process here(2, of_two(process, std::getenv("CUPOLA_TEST_ID_FILE")));
    CHECK(run_steps(here, 4, die_at < 0 ? 6 : die_at, splits[2]) == 2 * (die_at < 0 ? 6 : die_at));
    if (die_at >= 0) std::raise(SIGKILL);
}

TEST_CASE("four ranks in two processes have the same sums, and the death of one process is noticed by the other") {
    for (const int die_at : {-1, 4}) {
        const TemporaryFolder folder;
        const std::string id_file = folder.path("id");
        ChildResult other;
        {
            const std::jthread starts([&] {
                other =
                    run_in_child("child: the other process that gives buckets", {{"CUPOLA_TEST_PROCESS", "1"},
                                                                                 {"CUPOLA_TEST_ID_FILE", id_file},
                                                                                 {"CUPOLA_TEST_DIE_AT", text(die_at)}});
            });
            Process here(2, of_two(0, id_file));
            if (die_at < 0) {
                CHECK(run_steps(here, 4, 6, splits[2]) == 12);
            } else {
                CHECK(run_steps(here, 4, die_at, splits[2]) == 2 * die_at);
                const std::vector<std::string> thrown = here.run([&](std::size_t device) {
                    queue_step(here, device, die_at, splits[2]);
                    here.member(device).wait(die_at);
                });
                CHECK(contains(thrown[0],
                               "of step 4: it is not done after 2 s; the heartbeats of ranks 2 and 3 have stopped"));
                CHECK(thrown[1] == thrown[0]);
            }
        }
        INFO(other.output);
        CHECK(other.passed == (die_at < 0));
    }
}
