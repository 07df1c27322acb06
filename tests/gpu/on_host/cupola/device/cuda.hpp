// SPDX-License-Identifier: Apache-2.0
//
// `Cuda` without a GPU, for the tests of what its kernels compute and of what a step queues: the same names, memory of
// the host, and a stream whose work runs when the host waits for it (impl/cuda_error.hpp). It stands in for
// include/cupola/device/cuda.hpp in tests whose include path has this folder first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <cupola/device/cuda_pinned.hpp>
#include <cupola/device/device.hpp>
#include <cupola/device/host.hpp>
#include <cupola/device/impl/cuda_error.hpp>

namespace cupola::inline CUPOLA_ABI {

[[nodiscard]] inline int cuda_devices() { return impl::OnHost::devices; }

namespace impl {

class StepConstants;

class OnCudaDevice {
public:
    explicit OnCudaDevice(int ordinal) : before_(HostStream::current()) { HostStream::current() = ordinal; }
    OnCudaDevice(const OnCudaDevice&) = delete;
    OnCudaDevice& operator=(const OnCudaDevice&) = delete;
    ~OnCudaDevice() { HostStream::current() = before_; }

private:
    int before_;
};

}  // namespace impl

class CudaArena {
public:
    CudaArena() = default;
    CudaArena(std::size_t bytes, std::string_view) : memory_(bytes) {}
    [[nodiscard]] std::byte* data() { return memory_.data(); }
    [[nodiscard]] const std::byte* data() const { return memory_.data(); }
    [[nodiscard]] std::size_t size() const { return memory_.size(); }

private:
    impl::GuardedMemory memory_;
};

struct CudaOptions {
    bool tf32 = false;
    bool deterministic = false;
};

struct StepCells {
    const std::int32_t* sound = nullptr;
    const std::uint32_t* step = nullptr;
    impl::StepConstants* constants = nullptr;
};

class CudaContext {
public:
    CudaContext(int ordinal, const CudaOptions& options)
        : ordinal_(checked(ordinal)),
          options_(options),
          stream_(std::make_shared<impl::HostStream>(ordinal)),
          sums_(sums_bytes, "the sums of a GPU") {}
    CudaContext(CudaContext&&) = default;

    [[nodiscard]] impl::OnCudaDevice team() const { return impl::OnCudaDevice(ordinal_); }
    void own_thread() const { impl::HostStream::current() = ordinal_; }

    [[nodiscard]] int ordinal() const { return ordinal_; }
    [[nodiscard]] const CudaOptions& options() const { return options_; }
    [[nodiscard]] int multiprocessors() const { return 132; }
    [[nodiscard]] const cudaStream_t& stream() const { return stream_; }
    [[nodiscard]] const StepCells& cells() const { return cells_; }
    void set_cells(const StepCells& cells) { cells_ = cells; }
    [[nodiscard]] std::byte* sums() const { return sums_.data(); }
    static constexpr std::size_t sums_bytes = std::size_t{1} << 15;
    [[nodiscard]] std::byte* staging(std::size_t bytes) const { return staging_.at_least(bytes); }
    void queue_copy(void* to, const void* from, std::size_t bytes) const {
        cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_);
    }
    void synchronize() const { stream_->wait(); }

private:
    [[nodiscard]] static int checked(int ordinal) {
        require<DeviceError>(ordinal >= 0 && ordinal < cuda_devices(), "there is no GPU ", ordinal,
                             ": this process sees ", cuda_devices(), ", GPUs 0 to ", cuda_devices() - 1);
        return ordinal;
    }

    int ordinal_;
    CudaOptions options_;
    StepCells cells_;
    cudaStream_t stream_;
    mutable CudaArena sums_;
    mutable impl::CudaStaging staging_;
};

struct Cuda {
    static constexpr std::string_view name = "Cuda";
    static constexpr bool has_nccl = true;
    static constexpr bool queued = true;
    static constexpr bool joins_segments = true;
    using Options = CudaOptions;
    using Context = CudaContext;
    using Arena = CudaArena;

    [[nodiscard]] static std::size_t available_memory() { return std::size_t{1} << 30; }
    static void copy_from_host(CudaContext& context, std::byte* to, const std::byte* from, std::size_t bytes) {
        if (bytes == 0) return;
        context.queue_copy(to, from, bytes);
        context.synchronize();
    }
    static void copy_to_host(CudaContext& context, std::byte* to, const std::byte* from, std::size_t bytes) {
        if (bytes == 0) return;
        context.queue_copy(to, from, bytes);
        context.synchronize();
    }
    [[nodiscard]] static std::string library_version() { return "none"; }
};

static_assert(Device<Cuda>);

}  // namespace cupola::inline CUPOLA_ABI
