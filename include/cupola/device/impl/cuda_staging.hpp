// SPDX-License-Identifier: Apache-2.0
//
// Pinned memory of the host that a device's copies pass through.
#pragma once

#include <cstddef>
#include <utility>

#include <cupola/device/impl/cuda_error.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

class CudaStaging {
public:
    /// At least `bytes`: the same memory each time, unless more is asked for than ever before. Then what was there is lost, once
    /// the copies that use it are done.
    [[nodiscard]] std::byte* at_least(std::size_t bytes) {
        if (bytes > size_) {
            memory_ = {};
            size_ = 0;
            CudaHandle<void*, &cudaFreeHost> memory;
            check_cuda(cudaHostAlloc(memory.out(), bytes, cudaHostAllocDefault), "cudaHostAlloc");
            memory_ = std::move(memory);
            size_ = bytes;
        }
        return static_cast<std::byte*>(memory_.get());
    }

private:
    CudaHandle<void*, &cudaFreeHost> memory_;
    std::size_t size_ = 0;
};

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
