// SPDX-License-Identifier: Apache-2.0
//
// The threads of an emulated kernel: shared memory, barriers, and the detection of each wrong use.
#include "../../../test.hpp"

#include <set>
#include <stdexcept>

#include <cuda_runtime.h>

#include "../control.hpp"

namespace emulated_kernels {

// In a named namespace, because messages contain their names.

void write_index(int* to) {
    const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    to[block * blockDim.x * blockDim.y * blockDim.z + thread] += static_cast<int>(1000 * block + thread);
}

void keep_unwritten(unsigned* to) {
    __shared__ unsigned value[2];
    to[blockIdx.x] = value[1];
    value[1] = 7;
}

/// The blocks in the order in which they come to two places.
void order_of_blocks(unsigned* to, unsigned* next) {
    if (threadIdx.x == 0) to[atomicAdd(next, 1U)] = blockIdx.x;
    __syncthreads();
    if (threadIdx.x == 0) to[atomicAdd(next, 1U)] = blockIdx.x;
}

/// The block that arrives last adds what all have written; if they arrive too early, one of them may not have.
template <bool too_early>
void add_all(unsigned* of_block, unsigned* arrived, unsigned* sum) {
    bool last = false;
    if (too_early) last = atomicAdd(arrived, 1U) + 1 == gridDim.x;
    of_block[blockIdx.x] = blockIdx.x + 1;
    __threadfence();
    if (!too_early) last = atomicAdd(arrived, 1U) + 1 == gridDim.x;
    for (unsigned block = 0; last && block < gridDim.x; ++block) *sum += of_block[block];
}

template <bool waits>
void reverse(int* values) {
    __shared__ int shared[128];
    shared[threadIdx.x] = values[threadIdx.x];
    if (waits) __syncthreads();
    values[threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
}

/// In each round the first warp adds the sums of all warps. Without the second barrier a warp may write its next sum before
/// the first warp has read this one.
template <bool waits>
void rounds(int* to) {
    __shared__ int sums[4];
    for (int round = 0; round < 2; ++round) {
        int sum = round + 1;
        for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xFFFF'FFFFU, sum, step);
        if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
        __syncthreads();
        if (threadIdx.x == 0) to[round] = sums[0] + sums[1] + sums[2] + sums[3];
        if (waits) __syncthreads();
    }
}

template <class V>
void shuffles(V* to) {
    const V mine = static_cast<V>(threadIdx.x) / 2;
    const int lane = static_cast<int>(threadIdx.x % 32);
    to[threadIdx.x * 5 + 0] = __shfl_xor_sync(0xFFFF'FFFFU, mine, 5);
    to[threadIdx.x * 5 + 1] = __shfl_down_sync(0xFFFF'FFFFU, mine, 3);
    to[threadIdx.x * 5 + 2] = __shfl_up_sync(0xFFFF'FFFFU, mine, 3, 16);
    to[threadIdx.x * 5 + 3] = __shfl_sync(0xFFFF'FFFFU, mine, 7);
    // The two halves of a warp, each with its own mask.
    const unsigned mask = lane < 16 ? 0xFFFFU : 0xFFFF'0000U;
    V sum = mine;
    for (int step = 8; step > 0; step /= 2) sum += __shfl_xor_sync(mask, sum, step);
    to[threadIdx.x * 5 + 4] = sum;
}

void votes(unsigned* to) {
    const unsigned odd = __ballot_sync(0xFFFF'FFFFU, static_cast<int>(threadIdx.x % 2));
    const int any = __any_sync(0xFFFF'FFFFU, threadIdx.x == 40);
    const int all = __all_sync(0xFFFF'FFFFU, threadIdx.x < 32);
    __syncwarp();
    to[threadIdx.x * 3] = odd;
    to[threadIdx.x * 3 + 1] = static_cast<unsigned>(any);
    to[threadIdx.x * 3 + 2] = static_cast<unsigned>(all);
}

void count(int* to, float* sum, unsigned long long* largest, unsigned* taken) {
    atomicAdd(to, 1);
    atomicAdd(sum, 0.5F);
    atomicMax(largest, std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x);
    atomicOr(taken + 1, 1U << (threadIdx.x % 32));
    if (atomicCAS(taken, 0U, 7U) == 0U) atomicAdd(to, 1000);
    __threadfence();
}

void order(int* to, int* next) { to[atomicAdd(next, 1)] = static_cast<int>(threadIdx.x); }

void some_at_barrier() {
    if (threadIdx.x % 2 == 0) return;
    __syncthreads();
}
void two_barriers() {
    if (threadIdx.x < 3) {
        __syncthreads();
    } else {
        __syncthreads();
    }
}
void lane_missing(int* to) {
    if (threadIdx.x == 5) return;
    *to = __shfl_xor_sync(0xFFFF'FFFFU, 1, 1);
}
void lane_elsewhere(int* to) {
    if (threadIdx.x == 9) {
        *to = __shfl_xor_sync(0xFFFF'FFFFU, 1, 1);
    } else {
        *to = __shfl_xor_sync(0xFFFF'FFFFU, 1, 2);
    }
}
void lane_at_barrier(int* to) {
    if (threadIdx.x != 0) *to = __shfl_xor_sync(0xFFFF'FFFFU, 1, 1);
    __syncthreads();
}
void reads_outside_mask(int* to) {
    if (threadIdx.x < 16) *to = __shfl_down_sync(0xFFFFU, 1, 8);
}
void not_in_its_mask(int* to) { *to = __shfl_xor_sync(0xFFFFU, 1, 1); }
void throws() {
    if (threadIdx.x == 2) throw std::runtime_error("no such thing");
}

/// Another block stands at the barrier, or has not begun.
void throws_in_one_block(int* values) {
    values[threadIdx.x] = 0;
    __syncthreads();
    if (blockIdx.x == 1) throw std::runtime_error("no such block");
}

void wait_for_all_blocks(unsigned* arrived) {
    __syncthreads();
    if (threadIdx.x == 0) {
        const unsigned before = atomicAdd(arrived, 1U), round = before / gridDim.x;
        while (*static_cast<volatile unsigned*>(arrived) < (round + 1) * gridDim.x) __nanosleep(20);
    }
    __syncthreads();
}

/// In each round a thread reads what the thread of the next block has written in the round before. `left_out` leaves out a barrier;
/// 1 + a block's number lets that block end before the second.
template <int left_out>
void read_next_block(int* to, unsigned* arrived, int ends = 0) {
    __shared__ int kept[32];
    const unsigned blocks = gridDim.x, next = (blockIdx.x + 1) % blocks;
    kept[threadIdx.x] = static_cast<int>(100 * blockIdx.x + threadIdx.x);
    int* const mine = to + blockIdx.x * blockDim.x + threadIdx.x;
    *mine = kept[threadIdx.x];
    if (left_out != 1) wait_for_all_blocks(arrived);
    const int read = to[next * blockDim.x + threadIdx.x];
    if (ends == static_cast<int>(blockIdx.x) + 1) return;
    if (left_out != 2) wait_for_all_blocks(arrived);
    *mine = read + kept[blockDim.x - 1 - threadIdx.x];
}

struct Numbers {
    alignas(32) int of[40];
};
/// Where each thread has the two arguments, and what it reads of them before it changes its own.
void use_arguments(const Numbers __grid_constant__ all, Numbers own, double by, const void** places, double* sums) {
    places[threadIdx.x] = &all;
    __syncthreads();
    sums[threadIdx.x] = by * (all.of[threadIdx.x] + own.of[threadIdx.x]);
    own.of[threadIdx.x + 1] = 1000;
}

}  // namespace emulated_kernels

using namespace emulated_kernels;

namespace {

template <class... Parameters, class... Arguments>
cudaError_t start(void (*kernel)(Parameters...), dim3 grid, dim3 block, Arguments... arguments) {
    const cudaLaunchConfig_t config{grid, block, 0, nullptr, nullptr, 0};
    return cudaLaunchKernelEx(&config, kernel, arguments...);
}
template <class... Parameters, class... Arguments>
cudaError_t run_cooperative(void (*kernel)(Parameters...), dim3 grid, dim3 block, Arguments... arguments) {
    cudaLaunchAttribute cooperative{};
    cooperative.id = cudaLaunchAttributeCooperative;
    cooperative.val.cooperative = 1;
    const cudaLaunchConfig_t config{grid, block, 0, nullptr, &cooperative, 1};
    const cudaError_t status = cudaLaunchKernelEx(&config, kernel, arguments...);
    return status == cudaSuccess ? cudaStreamSynchronize(nullptr) : status;
}
template <class... Parameters, class... Arguments>
cudaError_t run(void (*kernel)(Parameters...), dim3 grid, dim3 block, Arguments... arguments) {
    const cudaError_t status = start(kernel, grid, block, arguments...);
    return status == cudaSuccess ? cudaStreamSynchronize(nullptr) : status;
}

/// The message of a kernel that fails.
template <class... Parameters, class... Arguments>
std::string failure_of(void (*kernel)(Parameters...), dim3 grid, dim3 block, Arguments... arguments) {
    CHECK(run(kernel, grid, block, arguments...) == cudaErrorLaunchFailure);
    // The device stays in error until mend().
    CHECK(run(&order, 1, 1, nullptr, nullptr) == cudaErrorLaunchFailure);
    const std::string message = cudaGetErrorString(cudaErrorLaunchFailure);
    CHECK(message == "unspecified launch failure: " + emulator::failure());
    emulator::mend();
    CHECK(cudaGetLastError() == cudaErrorLaunchFailure);
    CHECK(cudaGetLastError() == cudaSuccess);
    int there = 0, next = 0;
    CHECK(run(&order, 1, 1, &there, &next) == cudaSuccess);
    return message;
}
bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("arguments are converted and copied at the launch, and threads share those that are constant") {
    constexpr unsigned threads = 39;
    Numbers numbers{};
    std::iota(std::begin(numbers.of), std::end(numbers.of), 0);
    const void* places[threads] = {};
    double sums[threads] = {};
    emulator::set_eager(false);  // it runs after the caller's memory is another
    const cudaLaunchConfig_t config{1, threads, 0, nullptr, nullptr, 0};
    CHECK(cudaLaunchKernelEx(&config, &use_arguments, numbers, numbers, 2, &places[0], &sums[0]) == cudaSuccess);
    numbers = {};
    CHECK(sums[1] == 0);
    CHECK(cudaStreamSynchronize(nullptr) == cudaSuccess);
    emulator::set_eager(true);
    for (unsigned i = 0; i < threads; ++i) {
        CHECK(places[i] == places[0]);
        CHECK(sums[i] == 4.0 * i);
    }
    CHECK(places[0] != &numbers);
}

TEST_CASE("each thread of each block runs once, with its indices") {
    for (const auto& [grid, block] :
         {std::pair{dim3(1), dim3(1)}, std::pair{dim3(3), dim3(64)}, std::pair{dim3(2, 3), dim3(4, 8)},
          std::pair{dim3(2, 2, 2), dim3(3, 5, 7)}, std::pair{dim3(1), dim3(1024)}}) {
        const auto blocks = static_cast<int>(grid.x * grid.y * grid.z),
                   threads = static_cast<int>(block.x * block.y * block.z);
        std::vector<int> values(static_cast<std::size_t>(blocks * threads), 0), expected;
        for (int b = 0; b < blocks; ++b) {
            for (int t = 0; t < threads; ++t) expected.push_back(1000 * b + t);
        }
        CHECK(run(&write_index, grid, block, values.data()) == cudaSuccess);
        CHECK(values == expected);
    }
}

TEST_CASE("a barrier blocks each thread until all have arrived, and without it some are too early") {
    std::vector<int> expected(128);
    std::iota(expected.rbegin(), expected.rend(), 0);
    for (int i = 0; i < 20; ++i) {
        std::vector<int> values(128);
        std::iota(values.begin(), values.end(), 0);
        CHECK(run(&reverse<true>, 1, 128, values.data()) == cudaSuccess);
        CHECK(values == expected);
        std::iota(values.begin(), values.end(), 1000 * i + 1000);
        CHECK(run(&reverse<false>, 1, 128, values.data()) == cudaSuccess);
        std::vector<int> wanted(128);
        std::iota(wanted.rbegin(), wanted.rend(), 1000 * i + 1000);
        CHECK(values != wanted);
    }
}

TEST_CASE("a warp may run far ahead of the others") {
    int wrong = 0;
    for (int i = 0; i < 50; ++i) {
        int sums[2] = {};
        CHECK(run(&rounds<true>, 1, 128, &sums[0]) == cudaSuccess);
        CHECK(sums[0] == 128);
        CHECK(sums[1] == 256);
        CHECK(run(&rounds<false>, 1, 128, &sums[0]) == cudaSuccess);
        if (sums[0] != 128) ++wrong;
    }
    CHECK(wrong > 5);
}

TEST_CASE_TEMPLATE("shuffles give each lane the value of the selected lane", V, int, unsigned, float, double, long long,
                   std::uint64_t) {
    constexpr int threads = 96;
    std::vector<V> values(threads * 5);
    CHECK(run(&shuffles<V>, 1, threads, values.data()) == cudaSuccess);
    const auto of = [](int thread) { return static_cast<V>(thread) / 2; };
    for (int t = 0; t < threads; ++t) {
        const int first = t / 32 * 32, lane = t % 32;
        const V* const mine = values.data() + t * 5;
        CHECK(mine[0] == of(t ^ 5));
        CHECK(mine[1] == of(lane + 3 < 32 ? t + 3 : t));
        CHECK(mine[2] == of(lane % 16 >= 3 ? t - 3 : t));
        CHECK(mine[3] == of(first + 7));
        V sum = 0;
        for (int other = 0; other < 16; ++other) sum += of(first + lane / 16 * 16 + other);
        CHECK(mine[4] == sum);
    }
}

TEST_CASE("votes are per warp") {
    std::vector<unsigned> values(64 * 3);
    CHECK(run(&votes, 1, 64, values.data()) == cudaSuccess);
    for (std::size_t t = 0; t < 64; ++t) {
        CHECK(values[t * 3] == 0xAAAA'AAAAU);
        CHECK(values[t * 3 + 1] == (t >= 32 ? 1U : 0U));
        CHECK(values[t * 3 + 2] == (t < 32 ? 1U : 0U));
    }
}

TEST_CASE("atomic operations count every thread") {
    int threads = 0;
    float sum = 0;
    unsigned long long largest = 0;
    unsigned taken[2] = {};
    CHECK(run(&count, 5, 100, &threads, &sum, &largest, &taken[0]) == cudaSuccess);
    CHECK(threads == 1500);
    CHECK(sum == 250.0F);
    CHECK(largest == 499);
    CHECK(taken[0] == 7);
    CHECK(taken[1] == 0xFFFF'FFFFU);
}

TEST_CASE("threads run in a random order, which the seed reproduces") {
    const auto one = [](std::uint64_t seed) {
        emulator::set_seed(seed);
        std::vector<int> result(64);
        int next = 0;
        CHECK(run(&order, 1, 64, result.data(), &next) == cudaSuccess);
        return result;
    };
    const std::vector<int> first = one(1);
    CHECK(first == one(1));
    CHECK(first != one(2));
    CHECK(std::set<int>(first.begin(), first.end()).size() == 64);
    CHECK_FALSE(std::is_sorted(first.begin(), first.end()));
    emulator::set_seed(1);
}

TEST_CASE("shared memory is no number where a block has not written, whatever a block before has") {
    for (const unsigned in : {0U, 1U, 8U}) {
        emulator::run_side_by_side_in(in);
        for (int i = 0; i < 5; ++i) {
            std::vector<unsigned> values(5);
            CHECK(run(&keep_unwritten, 5, 1, values.data()) == cudaSuccess);
            CHECK(values == std::vector<unsigned>(5, 0xFFFF'FFFFU));
        }
    }
    emulator::run_side_by_side_in(8);
}

TEST_CASE("blocks run side by side in a random order, which the seed reproduces, or one after another") {
    const auto one = [](std::uint64_t seed) {
        emulator::set_seed(seed);
        std::vector<unsigned> result(10);
        unsigned next = 0;
        CHECK(run(&order_of_blocks, 5, 64, result.data(), &next) == cudaSuccess);
        for (unsigned block = 0; block < 5; ++block) CHECK(std::ranges::count(result, block) == 2);
        return result;
    };
    const auto is_in_turn = [](const std::vector<unsigned>& order) {
        bool in_turn = true;
        for (std::size_t i = 0; i < order.size(); i += 2) in_turn = in_turn && order[i] == order[i + 1];
        return in_turn;
    };
    emulator::run_side_by_side_in(1);
    std::set<std::vector<unsigned>> orders;
    int in_turn = 0;
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
        const std::vector<unsigned> order = one(seed);
        CHECK(order == one(seed));
        in_turn += is_in_turn(order) ? 1 : 0;
        orders.insert(order);
    }
    CHECK(orders.size() == 10);
    CHECK(in_turn <= 5);
    emulator::run_side_by_side_in(0);
    for (std::uint64_t seed = 1; seed <= 10; ++seed) CHECK(is_in_turn(one(seed)));
    emulator::run_side_by_side_in(8);
    emulator::set_seed(1);
}

TEST_CASE("a block that arrives before it has written is found, and one that arrives later is not") {
    const auto sum_of = [](auto* kernel) {
        unsigned of_block[4] = {}, arrived = 0, sum = 0;
        CHECK(run(kernel, 4, 1, &of_block[0], &arrived, &sum) == cudaSuccess);
        CHECK(arrived == 4);
        return sum;
    };
    emulator::run_side_by_side_in(1);
    int wrong = 0;
    for (int i = 0; i < 40; ++i) {
        CHECK(sum_of(&add_all<false>) == 10);
        wrong += sum_of(&add_all<true>) != 10 ? 1 : 0;
    }
    CHECK(wrong > 5);
    emulator::run_side_by_side_in(8);
}

TEST_CASE("a barrier that not all threads reach is a failure, which names kernel, block and thread") {
    emulator::set_seed(1);
    const std::string message = failure_of(&some_at_barrier, 1, 64);
    CHECK(contains(message, "the kernel emulated_kernels::some_at_barrier()"));
    CHECK(contains(message, "block (0, 0, 0): not all threads reach a barrier: thread (1, 0, 0)"));
    CHECK(contains(message, "block_test.cpp:"));
    CHECK(contains(message, "with 32 of 64, and thread (0, 0, 0) has ended"));
    CHECK(contains(message, "CUPOLA_EMULATOR_SEED=1"));
    CHECK(contains(failure_of(&two_barriers, 1, 4), "waits at the barrier of block_test.cpp:"));
}

TEST_CASE("a warp that diverges is a failure, which names the missing lane") {
    int there = 0;
    const std::string missing = failure_of(&lane_missing, 1, 32, &there);
    CHECK(contains(missing, "the kernel emulated_kernels::lane_missing(int*), block (0, 0, 0): a warp diverges: "));
    CHECK(contains(missing, "thread (5, 0, 0) has ended"));
    CHECK(contains(failure_of(&lane_elsewhere, 1, 32, &there), "thread (9, 0, 0) waits for its warp at block_test"));
    CHECK(contains(failure_of(&lane_at_barrier, 1, 32, &there), "thread (0, 0, 0) waits at the barrier of block_test"));
    CHECK(contains(failure_of(&reads_outside_mask, 1, 32, &there), "which takes no part"));
    CHECK(contains(failure_of(&not_in_its_mask, 1, 32, &there), "is not in the mask that it names"));
}

TEST_CASE("an exception of a kernel is a failure") {
    CHECK(contains(failure_of(&throws, 1, 32), "thread (2, 0, 0): it threw: no such thing"));
}

TEST_CASE("a block that fails ends those beside it, and the next grid begins anew") {
    emulator::run_side_by_side_in(1);
    for (int i = 0; i < 10; ++i) {
        std::vector<int> values(64);
        CHECK(contains(failure_of(&throws_in_one_block, 4, 64, values.data()), "block (1, 0, 0): thread "));
        std::vector<int> written(4 * 64);
        CHECK(run(&write_index, 4, 64, written.data()) == cudaSuccess);
        for (int t = 0; t < 4 * 64; ++t) CHECK(written[static_cast<std::size_t>(t)] == 1000 * (t / 64) + t % 64);
    }
    emulator::run_side_by_side_in(8);
}

TEST_CASE("a launch of no thread, or of too many, is rejected") {
    for (const auto& [grid, block] : {std::pair{dim3(0), dim3(1)}, std::pair{dim3(1), dim3(0)},
                                      std::pair{dim3(1), dim3(1025)}, std::pair{dim3(1, 65536), dim3(1)}}) {
        CHECK(start(&some_at_barrier, grid, block) == cudaErrorInvalidConfiguration);
        CHECK(cudaGetLastError() == cudaErrorInvalidConfiguration);
    }
}

TEST_CASE("blocks of a cooperative grid run side by side, each with its own shared memory") {
    constexpr int blocks = 12, threads = 32;
    const auto expected = [](int at) {
        const int block = at / threads, thread = at % threads;
        return 100 * ((block + 1) % blocks) + thread + 100 * block + threads - 1 - thread;
    };
    int without[3] = {};
    for (int i = 0; i < 20; ++i) {
        const auto wrong = [&](void (*kernel)(int*, unsigned*, int)) {
            std::vector<int> values(blocks * threads, -1);
            unsigned arrived = 0;
            CHECK(run_cooperative(kernel, blocks, threads, values.data(), &arrived, 0) == cudaSuccess);
            int count = 0;
            for (int at = 0; at < blocks * threads; ++at)
                count += values[static_cast<std::size_t>(at)] != expected(at) ? 1 : 0;
            return count;
        };
        without[0] += wrong(&read_next_block<0>);
        without[1] += wrong(&read_next_block<1>);
        without[2] += wrong(&read_next_block<2>);
    }
    CHECK(without[0] == 0);
    CHECK(without[1] > 0);
    CHECK(without[2] > 0);
}

TEST_CASE("a barrier of the grid that not all blocks reach, or in a grid that is not cooperative, is a failure") {
    std::vector<int> values(8 * 32);
    unsigned arrived = 0;
    CHECK(run_cooperative(&read_next_block<0>, 8, 32, values.data(), &arrived, 3) == cudaErrorLaunchFailure);
    const std::string failure = emulator::failure();
    CHECK(contains(failure, "the kernel void emulated_kernels::read_next_block<0>(int*, unsigned int*, int), block ("));
    CHECK(contains(failure, "thread (0, 0, 0) waits in the loop of block_test.cpp:"));
    CHECK(contains(failure, "for what no thread writes"));
    emulator::mend();
    CHECK(cudaGetLastError() == cudaErrorLaunchFailure);
    arrived = 0;
    CHECK(contains(failure_of(&read_next_block<0>, 8, 32, values.data(), &arrived, 0), "the grid is not cooperative"));
    // The threads that ran the blocks of the kernel that failed run other blocks.
    arrived = 0;
    CHECK(run_cooperative(&read_next_block<0>, 8, 32, values.data(), &arrived, 0) == cudaSuccess);
}

TEST_CASE(
    "a cooperative grid of more blocks than the device holds is rejected, and each on a device that launches none") {
    int to[64] = {};
    CHECK(run_cooperative(&write_index, 64, 1, &to[0]) == cudaSuccess);  // 32 on each of 2 multiprocessors
    CHECK(run_cooperative(&write_index, 65, 1, &to[0]) == cudaErrorCooperativeLaunchTooLarge);
    CHECK(cudaGetLastError() == cudaErrorCooperativeLaunchTooLarge);
    emulator::set_multiprocessors(132);
    CHECK(run_cooperative(&some_at_barrier, 132 * 8 + 1, 256) == cudaErrorCooperativeLaunchTooLarge);
    emulator::set_multiprocessors(2);
    emulator::set_cooperative(false);
    CHECK(run_cooperative(&write_index, 1, 1, &to[0]) == cudaErrorNotSupported);
    int can = 1;
    CHECK(cudaDeviceGetAttribute(&can, cudaDevAttrCooperativeLaunch, 0) == cudaSuccess);
    CHECK(can == 0);
    emulator::set_cooperative(true);
    CHECK(cudaGetLastError() == cudaErrorNotSupported);
}
