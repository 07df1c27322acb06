// SPDX-License-Identifier: Apache-2.0
//
// Pinned memory of the host: copies of a device pass through it, and its kernels read and write it.
#pragma once

#include <cstddef>
#include <cstring>
#include <utility>

#include <cupola/core/error.hpp>
#include <cupola/device/device.hpp>
#include <cupola/device/impl/cuda_handle.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

/// Memory of a fixed size, zeros at first. Every device's kernels read and write it at the host's
/// address; what a kernel wrote is there for the host when an event after it has happened.
class CudaPinned {
public:
    CudaPinned() = default;
    /// Throws OutOfMemory.
    explicit CudaPinned(std::size_t bytes) : size_(bytes) {
        if (bytes == 0) return;
        const cudaError_t status = cudaHostAlloc(memory_.out(), bytes, cudaHostAllocPortable | cudaHostAllocMapped);
        if (status == cudaErrorMemoryAllocation) {
            cudaGetLastError();  // it is reported here
            throw OutOfMemory(text("this machine has no ", bytes_text(bytes), " of memory to pin for a GPU"));
        }
        check_cuda(status, "cudaHostAlloc");
        std::memset(memory_.get(), 0, bytes);
    }
    [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(memory_.get()); }
    [[nodiscard]] std::size_t size() const { return size_; }

private:
    CudaHandle<void*, &cudaFreeHost> memory_;
    std::size_t size_ = 0;
};

class CudaStaging {
public:
    /// At least `bytes`: the same memory each time, unless more is asked for than ever before. Then what was there is
    /// lost, once the copies that use it are done. Throws OutOfMemory.
    [[nodiscard]] std::byte* at_least(std::size_t bytes) {
        if (bytes > memory_.size()) memory_ = CudaPinned(bytes);
        return memory_.data();
    }

private:
    CudaPinned memory_;
};

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
