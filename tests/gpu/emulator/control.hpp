// SPDX-License-Identifier: Apache-2.0
//
// A test's settings for the emulated GPUs, and the values that it reads from them. The random seed is that of the environment variable
// CUPOLA_EMULATOR_SEED, or 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace cupola::emulator {

/// How many GPUs there are; 4 at first. 0 is a machine whose driver finds none.
void set_devices(int count);
/// Of every device; 2 at first, so that a grid has few blocks.
void set_multiprocessors(int count);
/// Bytes of every device; 4 GiB at first.
void set_memory(std::size_t bytes);
/// Begins the sequence of chances anew.
void set_seed(std::uint64_t seed);
/// How many pieces of work go on, at most, at each query of an event or a stream; 3 at first.
void set_pace(int pieces);
/// Whether queueing work now and then lets other work run; true at first. Without, nothing runs until the host waits or
/// asks.
void set_eager(bool eager);
/// Seconds in which a wait of the host ends with an error where no work gets on; 60 at first.
void set_patience(double seconds);
/// Whether work that is queued while its stream is captured is refused.
void refuse_captures(bool refuse);
/// The work of `device` fails with cudaErrorIllegalAddress after `pieces` more. A device that has failed stays so until
/// mend().
void fail_device(int device, std::int64_t pieces);
/// Forgets what failed on every device, and the work that waits there.
void mend();

/// Captures that ended well, launches of what was captured, waits of the host, kernels and pieces of work that ran.
std::int64_t captures();
std::int64_t launches_of_captures();
std::int64_t waits();
std::int64_t kernels();
std::int64_t pieces();
/// The names of the kernels that ran: "the kernel void a::b<float>(float*)".
std::vector<std::string> kernels_that_ran();
/// How many allocations were written outside of, seen when they are freed.
int overruns();
/// Bytes of the devices' memory that are in use.
std::size_t memory_in_use();
/// The message of the first failure of a kernel, or of an illegal use that CUDA has no code for; empty where there is
/// none. mend() forgets it.
std::string failure();

}  // namespace cupola::emulator
