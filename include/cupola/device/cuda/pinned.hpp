// SPDX-License-Identifier: Apache-2.0
//
// Pinned memory of the host, which a device's copies and kernels can access.
#pragma once

#include <cstddef>
#include <cstring>
#include <utility>

#include <cupola/core/error.hpp>
#include <cupola/device/device.hpp>
#include <cupola/device/impl/cuda/cuda_handle.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Memory of a fixed size, initially zero. Kernels of every device access it at the host's address; the host sees what
/// a kernel wrote once an event recorded after the kernel is complete.
class CudaPinned {
public:
    CudaPinned() = default;
    /// Throws OutOfMemory.
    explicit CudaPinned(std::size_t bytes) : size_(bytes) {
        if (bytes == 0) return;
        const cudaError_t status = cudaHostAlloc(memory_.out(), bytes, cudaHostAllocPortable | cudaHostAllocMapped);
        if (status == cudaErrorMemoryAllocation) {
            cudaGetLastError();  // the error is reported here
            throw OutOfMemory(text(ByteCount{bytes}, " of pinned memory could not be allocated"));
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
    /// At least `bytes`: the same memory each time, unless more is requested than ever before. Then the former contents
    /// are lost, once the copies that use them are complete. Throws OutOfMemory.
    [[nodiscard]] std::byte* at_least(std::size_t bytes) {
        if (bytes > memory_.size()) memory_ = CudaPinned(bytes);
        return memory_.data();
    }

private:
    CudaPinned memory_;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
