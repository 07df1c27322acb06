// SPDX-License-Identifier: Apache-2.0
//
// An NVIDIA GPU as a device: memory, a stream, and the handles of cuDNN and cuBLASLt. Device `ordinal` of a training is
// the GPU of that number (CUDA_VISIBLE_DEVICES selects the visible GPUs).
//
// The context first checks that a driver and such a GPU exist, and throws DeviceError otherwise. Work of a context is
// queued on its stream and runs in order; copy_to_host waits for the data that the host reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <cupola/core/error.hpp>
#include <cupola/device/cuda_pinned.hpp>
#include <cupola/device/device.hpp>
#include <cupola/device/impl/cuda_error.hpp>
#include <cupola/device/plan_choices.hpp>

namespace cupola::inline CUPOLA_ABI {

/// The number of GPUs that this process sees. Throws DeviceError if there is no GPU, no driver, or one that is too old.
[[nodiscard, gnu::cold]] inline int cuda_devices() {
    const auto version_text = [](int number) { return text(number / 1000, '.', number % 1000 / 10); };
    int driver = 0, runtime = 0, count = 0;
    impl::check_cuda(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
    require<DeviceError>(
        cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0,
        "no NVIDIA driver was found, or it could not be loaded; a training on Cuda needs a GPU with a driver for CUDA ",
        version_text(runtime), "; a training on Host needs neither");
    require<DeviceError>(driver / 1000 >= runtime / 1000, "the NVIDIA driver of this machine is for CUDA ",
                         version_text(driver), ", and this program was built with CUDA ", version_text(runtime),
                         ": install a newer driver");
    const cudaError_t status = cudaGetDeviceCount(&count);
    if (status == cudaErrorNoDevice)
        count = 0;
    else
        impl::check_cuda(status, "cudaGetDeviceCount");
    require<DeviceError>(count > 0, "this process sees no NVIDIA GPU: there is a driver for CUDA ",
                         version_text(driver), ", but no device (CUDA_VISIBLE_DEVICES may hide them)");
    return count;
}

namespace impl {

/// During its lifetime the calling thread's CUDA calls go to this device.
class OnCudaDevice {
public:
    explicit OnCudaDevice(int ordinal) {
        check_cuda(cudaGetDevice(&before_), "cudaGetDevice");
        if (ordinal != before_) check_cuda(cudaSetDevice(ordinal), "cudaSetDevice");
        changed_ = ordinal != before_;
    }
    OnCudaDevice(const OnCudaDevice&) = delete;
    OnCudaDevice& operator=(const OnCudaDevice&) = delete;
    ~OnCudaDevice() {
        if (changed_) cudaSetDevice(before_);
    }

private:
    int before_ = 0;
    bool changed_ = false;
};

}  // namespace impl

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

struct CudaOptions {
    /// Whether matrix products and convolutions in float may round their factors to TF32's 10 bits, which tensor cores
    /// multiply eight times as fast as float32. Otherwise all computation is in float32.
    bool tf32 = false;
    /// Restricts the choice to algorithms whose results have the same bits each time.
    bool deterministic = false;
    /// The cuDNN engines to use. For an operation without an entry, the engine that was chosen is added. If null, each run
    /// uses the engines that cuDNN ranks first. May be shared by devices.
    std::shared_ptr<PlanChoices> plan_choices{};
    /// The GPU that is device 0 of the training; its devices are GPUs with consecutive numbers. Several processes of a machine
    /// that see the same GPUs each begin at another.
    int first_gpu = 0;
};

namespace impl {
class StepConstants;
}

/// The addresses, on the device, of the values that change between the runs of a step that is captured once and run many
/// times. Null outside of such a step: launches then take all values as arguments.
struct StepScalars {
    /// 0 once a gradient was not finite: kernels that change parameters then do nothing.
    const std::int32_t* healthy = nullptr;
    /// The step of RngKey, on which random numbers depend.
    const std::uint32_t* step = nullptr;
    /// The constants of the optimiser, such as the learning rate.
    impl::StepConstants* constants = nullptr;
};

/// The stream and the library handles of one GPU. Made and used by one thread.
class CudaContext {
public:
    /// Throws DeviceError if there is no driver or no such GPU.
    CudaContext(int ordinal, const CudaOptions& options)
        : ordinal_(checked(options.first_gpu + ordinal)), options_(options) {
        const impl::OnCudaDevice scope(ordinal_);
        impl::check_cuda(cudaDeviceGetAttribute(&multiprocessors_, cudaDevAttrMultiProcessorCount, ordinal_),
                         "cudaDeviceGetAttribute");
        impl::check_cuda(cudaStreamCreateWithFlags(stream_.out(), cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
        impl::check_cudnn(cudnnCreate(cudnn_.out()), "cudnnCreate");
        impl::check_cudnn(cudnnSetStream(cudnn_.get(), stream_.get()), "cudnnSetStream");
        impl::check_cublas(cublasLtCreate(cublas_.out()), "cublasLtCreate");
        sums_ = CudaArena(sums_bytes, "the sums of a GPU");
    }

    /// During the lifetime of the result the calling thread works on this device.
    [[nodiscard]] impl::OnCudaDevice team() const { return impl::OnCudaDevice(ordinal_); }
    /// From now on the calling thread's CUDA calls go to this device.
    void own_thread([[maybe_unused]] int devices) const { impl::check_cuda(cudaSetDevice(ordinal_), "cudaSetDevice"); }

    [[nodiscard]] int ordinal() const { return ordinal_; }
    [[nodiscard]] const CudaOptions& options() const { return options_; }
    [[nodiscard]] int multiprocessors() const { return multiprocessors_; }
    /// The stream that work is queued on: the context's own, unless a StreamScope exists.
    [[nodiscard]] cudaStream_t stream() const { return other_stream_ != nullptr ? other_stream_ : stream_.get(); }

    /// During its lifetime, kernels that are queued on the context go to another stream of its device.
    class StreamScope {
    public:
        StreamScope(const CudaContext& context, cudaStream_t stream) : context_(context) {
            context_.other_stream_ = stream;
        }
        StreamScope(const StreamScope&) = delete;
        StreamScope& operator=(const StreamScope&) = delete;
        ~StreamScope() { context_.other_stream_ = nullptr; }

    private:
        const CudaContext& context_;
    };
    [[nodiscard]] cudnnHandle_t cudnn() const { return cudnn_.get(); }
    [[nodiscard]] cublasLtHandle_t cublas() const { return cublas_.get(); }
    /// The scalars that operations read on the device while a step is queued.
    [[nodiscard]] const StepScalars& step_scalars() const { return step_scalars_; }
    void set_step_scalars(const StepScalars& step_scalars) { step_scalars_ = step_scalars; }
    /// Device memory for the partial sums and the results of one reduction at a time, in the stream's order.
    [[nodiscard]] std::byte* sums() const { return sums_.data(); }
    static constexpr std::size_t sums_bytes = std::size_t{1} << 15;
    /// Pinned memory of the host, the same for the same number of bytes. It has one user at a time, which waits for its
    /// copies.
    [[nodiscard]] std::byte* staging(std::size_t bytes) const { return staging_.at_least(bytes); }
    /// Queues a copy. Both addresses are on a device or in pinned memory.
    void queue_copy(void* to, const void* from, std::size_t bytes) const {
        if (bytes != 0)
            impl::check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream()), "cudaMemcpyAsync");
    }

    /// Waits until all queued work is complete. Must not be called in a step.
    void synchronize() const { impl::check_cuda(cudaStreamSynchronize(stream_.get()), "cudaStreamSynchronize"); }

private:
    [[nodiscard]] static int checked(int ordinal) {
        const int count = cuda_devices();
        require<DeviceError>(ordinal >= 0 && ordinal < count, "there is no GPU ", ordinal, ": this process sees ",
                             count, count == 1 ? ", GPU 0" : ", GPUs 0 to ",
                             count == 1 ? std::string() : text(count - 1));
        return ordinal;
    }

    int ordinal_;
    CudaOptions options_;
    int multiprocessors_ = 0;
    impl::CudaStream stream_;
    mutable cudaStream_t other_stream_ = nullptr;
    impl::CudnnHandle cudnn_;
    impl::CublasLtHandle cublas_;
    StepScalars step_scalars_;
    mutable CudaArena sums_;
    mutable impl::CudaStaging staging_;
};

class CudaQueue;

/// An NVIDIA GPU.
struct Cuda {
    static constexpr std::string_view name = "Cuda";
    static constexpr bool has_nccl = true;
    /// Whether the host can read the device's memory.
    static constexpr bool host_memory = false;
    /// Work is queued and the host continues: a training has at most two complete steps queued behind an incomplete one.
    static constexpr int max_steps_in_flight = 3;
    /// Each pass of an optimiser is a launch, so neighbouring parameters are updated in one launch.
    static constexpr bool joins_segments = true;
    using Options = CudaOptions;
    using Context = CudaContext;
    using Arena = CudaArena;
    using Kernels = Cuda;
    /// Defined in parallel/cuda_queue.hpp.
    using Queue = CudaQueue;

    /// Queues a copy between two devices' memory.
    static void copy_between(CudaContext& context, void* to, const void* from, std::size_t bytes) {
        context.queue_copy(to, from, bytes);
    }
    /// The number of free bytes on the calling thread's device.
    [[nodiscard]] static std::size_t available_memory() {
        [[maybe_unused]] const int count = cuda_devices();
        std::size_t free = 0, total = 0;
        impl::check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
        return free;
    }
    /// Queues a copy on the context's stream; returns when `from` may be changed.
    static void copy_from_host(CudaContext& context, std::byte* to, const std::byte* from, std::size_t bytes) {
        if (bytes == 0) return;
        impl::check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, context.stream()), "cudaMemcpyAsync");
        context.synchronize();
    }
    /// Returns when the copy is complete.
    static void copy_to_host(CudaContext& context, std::byte* to, const std::byte* from, std::size_t bytes) {
        if (bytes == 0) return;
        impl::check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, context.stream()), "cudaMemcpyAsync");
        context.synchronize();
    }
    /// "CUDA 13.0, cuDNN 9.19.0, cuBLASLt 13.1.0": the versions that, with the GPU, determine the bits of a result.
    [[nodiscard, gnu::cold]] static std::string library_version() {
        int runtime = 0;
        impl::check_cuda(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
        const auto cudnn = static_cast<std::int64_t>(cudnnGetVersion()),
                   cublas = static_cast<std::int64_t>(cublasLtGetVersion());
        return text("CUDA ", runtime / 1000, '.', runtime % 1000 / 10, ", cuDNN ", cudnn / 10000, '.',
                    cudnn % 10000 / 100, '.', cudnn % 100, ", cuBLASLt ", cublas / 10000, '.', cublas % 10000 / 100,
                    '.', cublas % 100);
    }
    /// Calls add(name, text) for each `machine_property` of this machine, and for TF32, which is a setting of the run.
    /// `options` are CudaOptions.
    template <class Options, class Add>
    static void describe(const Options& options, Add&& add) {
        add(machine_property::gpu, gpu_name());
        add(machine_property::cuda, library_version());
        if (options.tf32) add("tf32", std::string("on"));
        if (options.deterministic) add(machine_property::deterministic, std::string("on"));
    }
    /// The name of the first GPU that the process sees.
    [[nodiscard, gnu::cold]] static std::string gpu_name() {
        cudaDeviceProp properties{};
        return cudaGetDeviceProperties(&properties, 0) == cudaSuccess ? properties.name : "a GPU without a name";
    }
};

static_assert(Device<Cuda>);

}  // namespace cupola::inline CUPOLA_ABI
