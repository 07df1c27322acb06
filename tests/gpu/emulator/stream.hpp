// SPDX-License-Identifier: Apache-2.0
//
// The parts of the emulator that the stand-ins for CUDA's libraries need: queueing work on a stream, and the device of the
// calling thread.
#pragma once

#include <functional>
#include <string>

#include <cuda_runtime_api.h>

namespace cupola::emulator {

/// Queues `work` on `stream` in order, or adds it to the capture of the stream. `work` returns true when it is complete
/// and false when it must be called again later (a collective that waits for other ranks). It runs later, on any thread,
/// one piece of work at a time in the process, and several times if it was captured. Messages contain `name`. An error of
/// the device or of the capture is returned by cudaGetLastError too.
void enqueue(cudaStream_t stream, std::function<bool()> work, std::string name = {});

/// The device of the calling thread, as in cudaGetDevice.
int current_device();

}  // namespace cupola::emulator
