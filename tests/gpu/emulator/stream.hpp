// SPDX-License-Identifier: Apache-2.0
//
// The parts of the emulator that the stand-ins for CUDA's libraries need: queueing work on a stream, and the device of the
// calling thread.
#pragma once

#include <cuda_runtime_api.h>

#include "../../standard.hpp"

namespace cupola::emulator {

/// The bytes of a call's tensors, its additions and multiplications, and its scratch memory.
struct LibraryCost {
    std::int64_t bytes_read = 0, bytes_written = 0, operations = 0;
    const void* workspace = nullptr;
    std::size_t workspace_bytes = 0;
};

/// Queues `work` on `stream` in order, or adds it to the capture of the stream. `work` returns true when it is complete
/// and false when it must be called again later (a collective that waits for other ranks). It runs later, on any thread,
/// one piece of work at a time in the process, and several times if it was captured. Messages contain `name`. An error of
/// the device or of the capture is returned by cudaGetLastError too.
/// `cost` is for the recording of a library's call. Two calls of a graph that no order relates must not have scratch memory in
/// common: the device fails where the graph is made.
void enqueue(cudaStream_t stream, std::function<bool()> work, std::string name = {}, const LibraryCost& cost = {});

/// Records a call that CUDA's pages forbid and that no status reports: failure() has the message.
void misuse(const std::string& message);

/// The device of the calling thread, as in cudaGetDevice.
int current_device();

/// The time of a piece of work that a call queues now, which takes the host `of_host` seconds.
double queued_seconds(cudaStream_t stream, double of_device, double of_host);

/// Called by a piece of work: it takes this time by the clock of the device, which events read, and not the time that the
/// CPU takes.
void take_seconds(double seconds);

}  // namespace cupola::emulator
