// SPDX-License-Identifier: Apache-2.0
//
// Whether a GPU can access an address: a kernel that receives any other address fails with an illegal access.
#pragma once

#include <cuda_runtime_api.h>

namespace cupola::emulator {

/// True for memory of this device, managed memory, and pinned memory of the host.
[[nodiscard]] inline bool is_reached_by(int device, const void* address) {
    cudaPointerAttributes attributes;
    if (cudaPointerGetAttributes(&attributes, address) != cudaSuccess) return false;
    if (attributes.type == cudaMemoryTypeDevice) return attributes.device == device;
    return attributes.type == cudaMemoryTypeHost || attributes.type == cudaMemoryTypeManaged;
}

}  // namespace cupola::emulator
