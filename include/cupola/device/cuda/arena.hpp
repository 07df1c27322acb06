// SPDX-License-Identifier: Apache-2.0
//
// The memory of a GPU that a training allocates once, or of several GPUs together.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <utility>

#include <cupola/core/error.hpp>
#include <cupola/device/cuda/devices.hpp>
#include <cupola/device/impl/cuda/cuda_error.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// A part of an arena, from this byte on to the next part or the end, which is in the memory of one GPU.
struct CudaPiece {
    std::size_t begin = 0;
    int gpu = 0;
};

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
            throw_out_of_memory(bytes, what);
        }
        impl::check_cuda(status, "cudaMalloc");
        data_ = static_cast<std::byte*>(memory);
        fill(0, bytes);
    }
    /// Memory of several GPUs at consecutive addresses, which all of `gpus` read and write: a GPU uses that of another
    /// one over their connection. The pieces are in ascending order, the first one begins at 0, and they are moved to
    /// whole pages. Also throws DeviceError for a GPU that cannot use memory together with others.
    [[gnu::cold]] CudaArena(std::size_t bytes, std::string_view what, std::span<const CudaPiece> pieces,
                            std::span<const int> gpus)
        : size_(bytes) {
        if (bytes == 0) return;
        for (const int gpu : gpus) require_shared_memory(gpu);
        void* memory = nullptr;
        impl::check_cuda(cudaMallocManaged(&memory, bytes, cudaMemAttachGlobal), "cudaMallocManaged");
        data_ = static_cast<std::byte*>(memory);
        try {
            for (std::size_t i = 0; i < pieces.size(); ++i)
                place(pieces[i], (i + 1 < pieces.size() ? pieces[i + 1].begin : bytes), what, gpus);
        } catch (...) {
            cudaFree(data_);
            throw;
        }
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
    [[noreturn, gnu::cold]] static void throw_out_of_memory(std::size_t bytes, std::string_view what) {
        std::size_t free = 0, total = 0;
        cudaMemGetInfo(&free, &total);
        throw OutOfMemory(text(what, " need ", ByteCount{bytes}, ", and the GPU has ", ByteCount{free}, " left of ",
                               ByteCount{total}));
    }
    [[gnu::cold]] static void require_shared_memory(int gpu) {
        int shares = 0;
        impl::check_cuda(cudaDeviceGetAttribute(&shares, cudaDevAttrConcurrentManagedAccess, gpu),
                         "cudaDeviceGetAttribute");
        require<DeviceError>(shares != 0, "GPU ", gpu,
                             " cannot use memory together with other GPUs (concurrent managed access), as those that "
                             "have the parts of a network do");
    }
    /// Writes zeros, by the calling thread's device.
    void fill(std::size_t begin, std::size_t end) {
        impl::check_cuda(cudaMemset(data_ + begin, 0, end - begin), "cudaMemset");
        impl::check_cuda(cudaStreamSynchronize(nullptr),
                         "cudaStreamSynchronize");  // other streams do not wait for this one
    }
    [[gnu::cold]] void place(const CudaPiece& piece, std::size_t end, std::string_view what,
                             std::span<const int> gpus) {
        const std::size_t bytes = end - piece.begin;
        if (bytes == 0) return;
        std::byte* const begin = data_ + piece.begin;
        const auto on = [](int gpu) { return cudaMemLocation{cudaMemLocationTypeDevice, gpu}; };
        const impl::OnCudaDevice scope(piece.gpu);
        // Without these bytes the GPU would move others to the host's memory.
        std::size_t free = 0, total = 0;
        impl::check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
        if (bytes > free) throw_out_of_memory(bytes, what);
        impl::check_cuda(cudaMemAdvise(begin, bytes, cudaMemAdviseSetPreferredLocation, on(piece.gpu)),
                         "cudaMemAdvise");
        for (const int gpu : gpus)
            impl::check_cuda(cudaMemAdvise(begin, bytes, cudaMemAdviseSetAccessedBy, on(gpu)), "cudaMemAdvise");
        impl::check_cuda(cudaMemPrefetchAsync(begin, bytes, on(piece.gpu), 0, nullptr), "cudaMemPrefetchAsync");
        fill(piece.begin, end);
    }

    std::byte* data_ = nullptr;
    std::size_t size_ = 0;
};

}}  // namespace cupola::CUPOLA_ABI
