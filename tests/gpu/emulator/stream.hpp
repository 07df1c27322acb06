// SPDX-License-Identifier: Apache-2.0
//
// The parts of the emulator that stand-ins for CUDA's libraries need: a place in a stream's queue, and the calling thread's
// device.
#pragma once

#include <functional>
#include <string>

#include <cuda_runtime_api.h>

namespace cupola::emulator {

/// Queues `work` on `stream` in order; captured where the stream is being captured. `work` returns true when it is
/// done, false when it has to be tried again later (a collective that waits for other ranks). It runs later, on any
/// thread, one piece of work at a time in the whole process, and may be run several times where it was captured. `name`
/// stands in messages. An error of the device or of the capture is kept as the runtime keeps it: see cudaGetLastError.
void enqueue(cudaStream_t stream, std::function<bool()> work, std::string name = {});

/// The device of the calling thread, as cudaGetDevice says it.
int current_device();

}  // namespace cupola::emulator
