// SPDX-License-Identifier: Apache-2.0
//
// The threads of a kernel's block while it runs. A block's threads are fibres of one thread of the processor: each runs
// until it waits at a barrier or at an operation of its warp; then a random fibre that can run continues. A missing barrier
// between a write and another thread's read is therefore found only by chance; a barrier that not all threads reach is
// always found.
//
// The blocks of a grid run one after another in a random order; in some grids, a few that follow each other run side by side: a block
// pauses at random places, where the others continue, so a block may see what another has written in part. All blocks of a cooperative
// grid run side by side: where all threads of a block wait or sleep, another block continues, so a thread may sleep in a loop until
// another block has written a value.
#pragma once

#include <cuda_runtime_api.h>

#include "../../standard.hpp"

namespace cupola::emulator {

/// Where in the source a thread waits.
struct Place {
    const char* file;
    int line;
};

inline constexpr int lanes_per_warp = 32;

/// Waits until all threads of the block have arrived. The kernel fails if they wait at different barriers.
void barrier(Place place);

enum class WarpOperation : std::uint8_t { synchronize, shuffle, ballot };
/// One operation of the lanes in `mask`, all of which have to execute it. The result of a shuffle is the value of lane
/// `source`; that of a ballot has one bit per lane, set if its value is not 0.
[[nodiscard]] std::uint64_t exchange(WarpOperation operation, unsigned mask, std::uint64_t value, int source,
                                     Place place);
/// The lane of the calling thread.
[[nodiscard]] int lane();

/// Called where a thread has done something that other blocks can see: some of them may run before it continues.
void others_may_run();
/// Lets other threads and blocks run. The kernel fails if a thread sleeps again and again, and no other does anything else.
void sleep(Place place);

/// Called by each thread of a kernel, once; and the number of those calls.
void wait_for_earlier_kernels();
[[nodiscard]] std::uint64_t threads_that_waited();

/// What is known of the parameters of a kernel: how it is called with arguments that lie at these addresses, and their sizes.
struct Signature {
    void (*call)(const void* kernel, const void* const* arguments);
    const std::size_t* sizes;
    std::size_t count;
};

/// How a grid runs.
struct Launch {
    dim3 grid, block;
    std::size_t shared_bytes = 0;
    cudaStream_t stream = nullptr;
    bool dependent = false, cooperative = false;
};

/// Queues a kernel, which each thread calls once, with copies of these arguments. `kernel` is its address, from which its name is found.
/// A `dependent` one must follow a kernel, and each of its threads must wait for that one: on a GPU it may run beside it until then. The
/// device must hold all blocks of a `cooperative` one at a time. The signature of a kernel is kept for calls that know only its address.
[[nodiscard]] cudaError_t launch(const void* kernel, const Signature& signature, const void* const* arguments,
                                 const Launch& how);

/// Runs a kernel, or its last blocks if `last_blocks` is not 0 and it is not cooperative, before it returns. By chance, in one of
/// `one_in` grids, blocks pause; in none if that is 0. Returns the message of a failure, empty if there is none. Must not be called by two
/// threads of the process at a time.
[[nodiscard]] std::string run_kernel(const void* kernel, dim3 grid, dim3 block, std::uint64_t seed,
                                     std::uint64_t last_blocks, bool cooperative, unsigned one_in,
                                     const std::function<void()>& body);

/// "the kernel a::b<int>(float*)", if the symbols of the program contain it.
[[nodiscard]] std::string kernel_name(const void* kernel);

}  // namespace cupola::emulator
