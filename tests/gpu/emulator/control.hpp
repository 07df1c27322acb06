// SPDX-License-Identifier: Apache-2.0
//
// A test's settings for the emulated GPUs, and the values that it reads from them. The environment variable
// CUPOLA_EMULATOR_SEED sets the random seed; the default is 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace cupola::emulator {

/// The number of GPUs; 4 by default. 0 stands for a machine on which the driver finds none.
void set_devices(int count);
/// The multiprocessors of each device; 2 by default, so that a grid has few blocks.
void set_multiprocessors(int count);
/// The memory of each device in bytes; 4 GiB by default.
void set_memory(std::size_t bytes);
/// Restarts the sequence of random numbers.
void set_seed(std::uint64_t seed);
/// The maximum number of pieces of work that run at each query of an event or a stream; 3 by default.
void set_pace(int pieces);
/// Whether queueing work sometimes runs other work; true by default. If false, nothing runs until the host waits or
/// queries.
void set_eager(bool eager);
/// The seconds after which a wait of the host fails if no work makes progress; 60 by default.
void set_patience(double seconds);
/// Whether queueing work on a captured stream fails.
void refuse_captures(bool refuse);
/// After `pieces` more pieces of work, the work of `device` fails with cudaErrorIllegalAddress. The device stays in error
/// until mend().
void fail_device(int device, std::int64_t pieces);
/// Clears the errors of all devices and discards their waiting work.
void mend();

/// The numbers of successful captures, launches of captured graphs, waits of the host, kernels, and pieces of work that ran.
std::int64_t captures();
std::int64_t launches_of_captures();
std::int64_t waits();
std::int64_t kernels();
std::int64_t pieces();
/// The names of the kernels that ran: "the kernel void a::b<float>(float*)".
std::vector<std::string> kernels_that_ran();
/// The number of allocations with a write outside their bounds, detected when they are freed.
int overruns();
/// The bytes in use in the memory of all devices.
std::size_t memory_in_use();
/// The message of the first failed kernel, or of the first illegal use for which CUDA has no code; empty if there is
/// none. mend() clears it.
std::string failure();

}  // namespace cupola::emulator
