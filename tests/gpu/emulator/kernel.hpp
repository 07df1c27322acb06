// SPDX-License-Identifier: Apache-2.0
//
// The threads of a kernel's block while it runs. A block's threads are fibres of one thread of the processor: each runs
// until it waits at a barrier or at an operation of its warp, and then any other fibre that can run continues. So a read
// of another thread's write without a barrier between them is found only by chance, and a barrier that not all threads
// reach is always found.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include <cuda_runtime_api.h>

namespace cupola::emulator {

/// Where in the source a thread waits.
struct Place {
    const char* file;
    int line;
};

inline constexpr int lanes_per_warp = 32;

/// The threads of the block have all come here. Each has to come to the same one: else the kernel fails.
void barrier(Place place);

enum class WarpOperation : std::uint8_t { synchronize, shuffle, ballot };
/// One operation of the lanes in `mask`, all of which have to come to it. The result is the value of lane `source` where
/// lanes shuffle, and one bit per lane whose value is not 0 where they vote.
[[nodiscard]] std::uint64_t exchange(WarpOperation operation, unsigned mask, std::uint64_t value, int source,
                                     Place place);
/// The calling thread's lane.
[[nodiscard]] int lane();

/// Queues a kernel: `body` is called once by each thread. `kernel` is its address, for its name.
[[nodiscard]] cudaError_t launch(const void* kernel, dim3 grid, dim3 block, std::size_t shared_bytes,
                                 cudaStream_t stream, std::function<void()> body);

/// Runs it, here and now. Returns what went wrong, an empty text where nothing did. Only for one thread of the process at
/// a time.
[[nodiscard]] std::string run_kernel(const void* kernel, dim3 grid, dim3 block, std::uint64_t seed,
                                     const std::function<void()>& body);

/// "the kernel a::b<int>(float*)", as far as the program's symbols tell.
[[nodiscard]] std::string kernel_name(const void* kernel);

}  // namespace cupola::emulator
