// SPDX-License-Identifier: Apache-2.0
//
// The memory of a GPU that a training allocates once.
#pragma once

#include <cstddef>
#include <string_view>
#include <utility>

#include <cupola/core/error.hpp>
#include <cupola/device/impl/cuda/cuda_error.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// Zero-filled memory of the calling thread's device. Throws OutOfMemory.
class CudaArena {
public:
    CudaArena() = default;
    /// `what` names the arena in the error: "the activations of device 0".
    CudaArena(std::size_t bytes, std::string_view what) : size_(bytes) {
        if (bytes == 0) return;
        void* memory = nullptr;
        const cudaError_t status = cudaMalloc(&memory, bytes);
        if (status == cudaErrorMemoryAllocation) {
            cudaGetLastError();  // the error is reported here
            std::size_t free = 0, total = 0;
            cudaMemGetInfo(&free, &total);
            throw OutOfMemory(text(what, " need ", ByteCount{bytes}, ", and the GPU has ", ByteCount{free}, " left of ",
                                   ByteCount{total}));
        }
        impl::check_cuda(status, "cudaMalloc");
        data_ = static_cast<std::byte*>(memory);
        impl::check_cuda(cudaMemset(memory, 0, bytes), "cudaMemset");
        impl::check_cuda(cudaStreamSynchronize(nullptr),
                         "cudaStreamSynchronize");  // other streams do not wait for this one
    }
    CudaArena(CudaArena&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
    CudaArena& operator=(CudaArena&& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
        return *this;
    }
    ~CudaArena() {
        if (data_ != nullptr) cudaFree(data_);
    }
    [[nodiscard]] std::byte* data() { return data_; }
    [[nodiscard]] const std::byte* data() const { return data_; }
    [[nodiscard]] std::size_t size() const { return size_; }

private:
    std::byte* data_ = nullptr;
    std::size_t size_ = 0;
};

}}  // namespace cupola::CUPOLA_ABI
