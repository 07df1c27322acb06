// SPDX-License-Identifier: Apache-2.0
//
// An NVIDIA GPU as a device: memory, a stream, and the handles of cuDNN and cuBLASLt. Device `ordinal` of a training is
// the GPU of that number (CUDA_VISIBLE_DEVICES selects the visible GPUs), unless `devices_per_gpu` devices share each
// GPU: each of them then has its own stream, handles and memory, as devices on several GPUs have.
//
// The context first checks that a driver and such a GPU exist, and throws DeviceError otherwise. Work of a context is
// queued on its stream and runs in order; copy_to_host waits for the data that the host reads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/finite.hpp>
#include <cupola/device/cuda_pinned.hpp>
#include <cupola/device/device.hpp>
#include <cupola/device/impl/cuda/cuda_error.hpp>
#include <cupola/device/impl/joined_work.hpp>
#include <cupola/device/plan_choices.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

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
    if (status == cudaErrorNoDevice) {
        cudaGetLastError();  // the error is reported here
        count = 0;
    } else {
        impl::check_cuda(status, "cudaGetDeviceCount");
    }
    if (count > 0) return count;
    const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
    throw DeviceError(text("this process sees no NVIDIA GPU: there is a driver for CUDA ", version_text(driver),
                           ", but no device (CUDA_VISIBLE_DEVICES ",
                           visible == nullptr ? std::string("is not set")
                           : *visible == '\0' ? std::string("is empty, which hides all")
                                              : text("is ", visible, ", which may hide them"),
                           ")"));
}

namespace impl {

/// While it exists, the calling thread's CUDA calls go to this device. It ignores the errors of a lost device, which
/// those calls report.
class OnCudaDevice {
public:
    explicit OnCudaDevice(int ordinal) {
        check(cudaGetDevice(&before_), "cudaGetDevice");
        if (ordinal != before_) check(cudaSetDevice(ordinal), "cudaSetDevice");
        changed_ = ordinal != before_;
    }
    /// For destructors, which also run where CUDA cannot be used any more: in a child of fork(), or after the driver
    /// has shut down.
    OnCudaDevice(int ordinal, std::nothrow_t) noexcept {
        before_ = -1;
        cudaGetDevice(&before_);  // returns the error of a lost device, and writes its number
        changed_ = before_ >= 0 && ordinal != before_;
        if (changed_) cudaSetDevice(ordinal);
    }
    OnCudaDevice(const OnCudaDevice&) = delete;
    OnCudaDevice& operator=(const OnCudaDevice&) = delete;
    ~OnCudaDevice() {
        if (changed_) cudaSetDevice(before_);
    }

private:
    static void check(cudaError_t status, std::string_view call) {
        if (!loses_device(status)) check_cuda(status, call);
    }
    int before_ = 0;
    bool changed_ = false;
};

/// "CUDA 13.0": the CUDA version that the driver supports.
[[nodiscard, gnu::cold]] inline std::string driver_text() {
    int driver = 0;
    check_cuda(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
    return text("CUDA ", driver / 1000, '.', driver % 1000 / 10);
}

/// The compute capability of a GPU: 90 is 9.0.
[[nodiscard, gnu::cold]] inline int compute_capability(int gpu) {
    int major = 0, minor = 0;
    check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, gpu), "cudaDeviceGetAttribute");
    check_cuda(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, gpu), "cudaDeviceGetAttribute");
    return major * 10 + minor;
}

/// "GPU 0 (NVIDIA H200) has compute capability 9.0".
[[nodiscard, gnu::cold]] inline std::string capability_text(int gpu) {
    cudaDeviceProp properties{};
    check_cuda(cudaGetDeviceProperties(&properties, gpu), "cudaGetDeviceProperties");
    const int capability = compute_capability(gpu);
    return text("GPU ", gpu, " (", properties.name, ") has compute capability ", capability / 10, '.', capability % 10);
}

/// The least compute capability that CUDA 13 and cuDNN 9 for it support: 7.5.
inline constexpr int least_capability = 75;

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
    /// Whether matrix products and convolutions in float may round their factors to TF32, with 10 bits of significand,
    /// which tensor cores multiply eight times as fast as float32. Otherwise all computation is in float32.
    bool tf32 = false;
    /// The same for convolutions alone, which is PyTorch's default: its torch.backends.cudnn.allow_tf32 is true, and
    /// its precision of matrix products in float is "highest".
    bool tf32_convolutions = false;
    /// Restricts the choice to algorithms whose results have the same bits each time.
    bool deterministic = false;
    /// Seconds of the GPU for timing the candidates of one plan: the algorithms that cuDNN offers for a direction of a
    /// convolution, or cuBLASLt for a product. They are timed when the plan is made, once for all devices of one kind.
    /// Candidates for which no time is left are not used. The time until the GPU has reached its full clock, at most a
    /// quarter of a second, and the loading of the libraries' code do not count. With 0 nothing is timed, and the first
    /// candidate that the rules allow is used.
    double plan_seconds = 0.5;
    /// The algorithms of cuDNN and cuBLASLt to use. For an operation without an entry, the algorithm that is chosen is
    /// added. Copies of these options share it, and so do the devices of a training; another run uses the same
    /// algorithms if it begins with the same entries. If null, each device chooses for itself.
    std::shared_ptr<PlanChoices> plan_choices = std::make_shared<PlanChoices>();
    /// Whether the gradients of a layer's weights and of its input are computed side by side, on two streams. Each then
    /// has its own scratch memory. The bits are the same.
    bool side_by_side_gradients = true;
    /// Whether a kernel of Cupola that directly follows another kernel, of Cupola or of a library, may be launched
    /// before that one has ended, and waits on the GPU for its end (programmatic dependent launch, from compute
    /// capability 9.0). The bits are the same.
    bool dependent_launch = false;
    /// Whether work whose parts are separated by a barrier of all blocks may be one kernel (a cooperative launch),
    /// where the GPU can hold all its blocks at a time. Otherwise each part is a kernel, and the log says so where a
    /// GPU cannot hold them. The bits are the same.
    bool cooperative_launch = true;
    /// Whether linear layers that are too small to fill a GPU, and the cross-entropy that follows them, are computed by
    /// one kernel of Cupola where nothing is queued between them, in place of products by cuBLASLt: see
    /// ops/cuda/impl/linear_chain.cuh. Sums are added in another order.
    bool linear_chains = true;
    /// The GPU that is device 0 of the training; its devices are GPUs with consecutive numbers. Processes on one
    /// machine that see the same GPUs each begin with a different one.
    int first_gpu = 0;
    /// The number of devices of a training that share a GPU: device d is on GPU first_gpu + d / devices_per_gpu. For
    /// testing trainings with several devices on a machine with fewer GPUs: such a training has the bits of one with a
    /// GPU per device, and is not faster. NcclAllReduce needs a GPU per device.
    int devices_per_gpu = 1;

    /// The GPU of a device of the training. Throws InvalidArgument for devices_per_gpu below 1.
    [[nodiscard]] int gpu_of(int device) const {
        require(devices_per_gpu >= 1, "devices_per_gpu must be 1 or more, not ", devices_per_gpu);
        return first_gpu + device / devices_per_gpu;
    }
};

namespace impl {
class StepConstants;
}

/// The addresses, on the device, of the values that change between the runs of a step that is captured once and run
/// many times. Null outside such a step: launches then take all values as arguments.
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
    /// Throws DeviceError if there is no driver or no such GPU, or a GPU that is too old.
    CudaContext(int ordinal, const CudaOptions& options)
        : ordinal_(ordinal), gpu_(checked(ordinal, options)), options_(options) {
        const impl::OnCudaDevice scope(gpu_);
        require(impl::is_finite(options.plan_seconds) && options.plan_seconds >= 0 && options.plan_seconds <= 1e9,
                "plan_seconds must be at least 0, not ", options.plan_seconds);
        if (options_.plan_choices == nullptr) options_.plan_choices = std::make_shared<PlanChoices>();
        options_.plan_choices->set_driver(impl::driver_text());
        cudaDeviceProp properties{};
        impl::check_cuda(cudaGetDeviceProperties(&properties, gpu_), "cudaGetDeviceProperties");
        gpu_name_ = properties.name;
        constexpr int least_for_dependent_launch = 90;
        dependent_launch_ = options.dependent_launch && impl::compute_capability(gpu_) >= least_for_dependent_launch;
        impl::check_cuda(cudaDeviceGetAttribute(&multiprocessors_, cudaDevAttrMultiProcessorCount, gpu_),
                         "cudaDeviceGetAttribute");
        impl::check_cuda(cudaStreamCreateWithFlags(stream_.out(), cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
        impl::check_cudnn(cudnnCreate(cudnn_.out()), "cudnnCreate");
        impl::check_cudnn(cudnnSetStream(cudnn_.get(), stream_.get()), "cudnnSetStream");
        impl::check_cublas(cublasLtCreate(cublas_.out()), "cublasLtCreate");
        int cooperative = 0;
        impl::check_cuda(cudaDeviceGetAttribute(&cooperative, cudaDevAttrCooperativeLaunch, gpu_),
                         "cudaDeviceGetAttribute");
        if (cooperative == 0 && options_.cooperative_launch) {
            options_.plan_choices->note_once(
                text("GPU ", gpu_, " (", gpu_name_,
                     ") has no cooperative launches: parts of a step are kernels of their own"));
        }
        cooperative_launch_ = cooperative != 0 && options_.cooperative_launch;
        constexpr std::size_t grid_counters = 2;
        sums_ = CudaArena(sums_bytes + grid_counters * sizeof(unsigned), "the sums of a GPU");
        if (!options.side_by_side_gradients) return;
        impl::check_cuda(cudaStreamCreateWithFlags(side_stream_.out(), cudaStreamNonBlocking),
                         "cudaStreamCreateWithFlags");
        for (impl::CudaEvent* const event : {&forked_, &side_done_})
            impl::check_cuda(cudaEventCreateWithFlags(event->out(), cudaEventDisableTiming),
                             "cudaEventCreateWithFlags");
    }
    CudaContext(const CudaContext&) = delete;
    CudaContext& operator=(const CudaContext&) = delete;
    /// The libraries need the handles' device to be the calling thread's.
    ~CudaContext() {
        const auto scope = team(std::nothrow);
        sums_ = {};
        cublas_ = {};
        cudnn_ = {};
        forked_ = {};
        side_done_ = {};
        side_stream_ = {};
        stream_ = {};
    }

    /// While the result exists, the calling thread works on this device.
    [[nodiscard]] impl::OnCudaDevice team() const { return impl::OnCudaDevice(gpu_); }
    [[nodiscard]] impl::OnCudaDevice team(std::nothrow_t) const noexcept { return {gpu_, std::nothrow}; }
    /// From now on the calling thread's CUDA calls go to this device.
    void own_thread([[maybe_unused]] int devices) const { impl::check_cuda(cudaSetDevice(gpu_), "cudaSetDevice"); }

    /// The device's number in its training.
    [[nodiscard]] int ordinal() const { return ordinal_; }
    [[nodiscard]] int gpu() const { return gpu_; }
    /// Memory that was made for a context is on the GPU of every context with an equal place, and is used in the order
    /// of the same stream.
    struct Place {
        int gpu = -1, ordinal = -1;
        bool operator==(const Place&) const = default;
    };
    [[nodiscard]] Place place() const { return {gpu_, ordinal_}; }
    [[nodiscard]] const CudaOptions& options() const { return options_; }
    /// "NVIDIA H200".
    [[nodiscard]] const std::string& gpu_name() const { return gpu_name_; }
    /// The algorithms of this device, never null.
    [[nodiscard]] PlanChoices& plan_choices() const { return *options_.plan_choices; }
    /// The largest scratch memory of plans that are made from now on; the library may have a smaller limit of its own.
    [[nodiscard]] std::size_t max_workspace() const { return max_workspace_; }
    void set_max_workspace(std::size_t bytes) { max_workspace_ = bytes; }
    [[nodiscard]] int multiprocessors() const { return multiprocessors_; }
    /// Whether the device can run all blocks of a kernel at the same time, so that they may wait for each other, and
    /// the options allow it. False on other streams than the context's own.
    [[nodiscard]] bool cooperative_launch() const {
        return cooperative_launch_ && (other_stream_ == nullptr || other_stream_ == side_stream_.get());
    }
    /// The counter for the barriers of a cooperative kernel that is queued now: one per stream of the context, and used
    /// by nothing else.
    [[nodiscard]] unsigned* grid_counter() const {
        return reinterpret_cast<unsigned*>(sums_.data() + sums_bytes) + (other_stream_ != nullptr ? 1 : 0);
    }
    /// The stream that work is queued on: the context's own, unless a StreamScope exists. Joined work is launched
    /// first.
    [[nodiscard]] cudaStream_t stream() const {
        launch_joined();
        follows_kernel_ = false;
        return current_stream();
    }
    /// The stream for a kernel of Cupola that is queued now, and whether the kernel may be launched before the work
    /// that precedes it has ended.
    struct NextKernel {
        cudaStream_t stream;
        bool dependent;
    };
    /// `can_wait` says whether the kernel is one that may be launched early.
    [[nodiscard]] NextKernel next_kernel(bool can_wait = true) const {
        launch_joined();
        const bool dependent = std::exchange(follows_kernel_, launches_early());
        return {current_stream(), dependent && can_wait};
    }
    /// The stream for a call of a library, which queues kernels on it. A kernel of Cupola after it may be launched
    /// early: it waits until the library's kernel has ended, whether or not that kernel allows an early launch of its
    /// successor.
    [[nodiscard]] cudaStream_t stream_of_library() const {
        launch_joined();
        follows_kernel_ = launches_early();
        return current_stream();
    }

    /// While it exists, kernels that are queued on the context go to another stream of its device.
    class StreamScope {
    public:
        StreamScope(const CudaContext& context, cudaStream_t stream) : context_(context) {
            context_.launch_joined();
            context_.follows_kernel_ = false;
            context_.other_stream_ = stream;
        }
        StreamScope(const StreamScope&) = delete;
        StreamScope& operator=(const StreamScope&) = delete;
        /// Joined work must have been launched.
        ~StreamScope() {
            context_.follows_kernel_ = false;
            context_.other_stream_ = nullptr;
        }

    private:
        const CudaContext& context_;
    };

    /// Queues the work of `main` and of `side`, which depend on what was queued before and not on each other: side by
    /// side, on two streams, if `on_two_streams` and the options allow it, and otherwise one after the other. What is
    /// queued next waits for both. In captured work they are branches of the graph.
    template <class Main, class Side>
    void queue_side_by_side(bool on_two_streams, Main&& main, Side&& side) const {
        if (!on_two_streams || !side_stream_ || other_stream_ != nullptr) {
            main();
            side();
            return;
        }
        impl::check_cuda(cudaEventRecord(forked_.get(), stream()), "cudaEventRecord");
        impl::check_cuda(cudaStreamWaitEvent(side_stream_.get(), forked_.get(), 0), "cudaStreamWaitEvent");
        main();
        launch_joined();
        {
            const StreamScope scope(*this, side_stream_.get());
            const CudnnStreamScope cudnn_scope(*this, side_stream_.get());
            side();
            launch_joined();
            impl::check_cuda(cudaEventRecord(side_done_.get(), side_stream_.get()), "cudaEventRecord");
        }
        impl::check_cuda(cudaStreamWaitEvent(stream(), side_done_.get(), 0), "cudaStreamWaitEvent");
    }

    // Joined work: small pieces of work of one kind that do not depend on each other are collected, and launched as one
    // kernel as soon as other work is queued.

    /// The collected work of type `Work`. If work of another type was collected before, that is launched, and the
    /// result is new. See impl::JoinedWork for `Work`.
    template <class Work>
    [[nodiscard]] Work& joined() const {
        if (!joined_.holds<Work>()) launch_joined();
        return joined_.collect<Work>();
    }
    /// The collected work as an object of its base class `Base`, if its type names that as `Work::Base`; null
    /// otherwise.
    template <class Base>
    [[nodiscard]] Base* joined_as() const {
        return joined_.as<Base>();
    }
    /// Launches the work that is collected, if there is any.
    void launch_joined() const { joined_launches_ += joined_.launch(*this); }
    /// The number of launches of joined and of deferred work since the last call.
    [[nodiscard]] std::int64_t take_joined_launches() const { return std::exchange(joined_launches_, 0); }
    void discard_joined() const { joined_.discard(); }

    // Deferred work: joined work whose operands nothing changes, and whose results nothing reads, until
    // launch_deferred() is called. Queueing other work does not launch it.

    /// While it exists, during the queueing of a pass or an update, work may be deferred. What has not been launched at
    /// its end is discarded.
    class DeferScope {
    public:
        explicit DeferScope(const CudaContext& context) : context_(context) {
            context_.defers_ = true;
            context_.follows_kernel_ = false;
        }
        DeferScope(const DeferScope&) = delete;
        DeferScope& operator=(const DeferScope&) = delete;
        ~DeferScope() {
            context_.deferred_.discard();
            context_.defers_ = context_.follows_kernel_ = false;
        }

    private:
        const CudaContext& context_;
    };
    /// Whether a DeferScope exists.
    [[nodiscard]] bool defers() const { return defers_; }
    /// The work of type `Work` that is deferred. Called while a DeferScope exists.
    template <class Work>
    [[nodiscard]] Work& deferred() const {
        if (!deferred_.holds<Work>()) launch_deferred();
        return deferred_.collect<Work>();
    }
    /// From now on the deferred work is joined with the work that is queued next.
    void join_deferred() const {
        launch_joined();
        std::swap(joined_, deferred_);
    }
    /// Launches the joined work, and then what is deferred, if there is any.
    void launch_deferred() const { joined_launches_ += deferred_.launch(*this); }

    /// For a call that queues kernels on the stream; see stream_of_library().
    [[nodiscard]] cudnnHandle_t cudnn() const {
        [[maybe_unused]] const cudaStream_t stream = stream_of_library();
        return cudnn_.get();
    }
    [[nodiscard]] cublasLtHandle_t cublas() const { return cublas_.get(); }
    /// The scalars that operations read on the device while a step is queued.
    [[nodiscard]] const StepScalars& step_scalars() const { return step_scalars_; }
    void set_step_scalars(const StepScalars& step_scalars) { step_scalars_ = step_scalars; }
    /// Device memory for sums, initially 0; ops/cuda/impl/sums_memory.hpp has its layout, and nothing else may use it.
    [[nodiscard]] std::byte* sums() const { return sums_.data(); }
    static constexpr std::size_t sums_bytes = std::size_t{1} << 15;
    /// Pinned memory of the host, the same for each call with the same number of bytes. It has one user at a time,
    /// which waits for its copies.
    [[nodiscard]] std::byte* staging(std::size_t bytes) const { return staging_.at_least(bytes); }
    /// Queues a copy. Both addresses are on a device or in pinned memory.
    void queue_copy(void* to, const void* from, std::size_t bytes) const {
        if (bytes != 0)
            impl::check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream()), "cudaMemcpyAsync");
    }

    /// Waits until all queued work is complete. Must not be called in a step.
    void synchronize() const {
        launch_joined();
        impl::check_cuda(cudaStreamSynchronize(stream_.get()), "cudaStreamSynchronize");
    }

private:
    [[nodiscard]] bool launches_early() const { return dependent_launch_ && defers_; }
    [[nodiscard]] cudaStream_t current_stream() const {
        return other_stream_ != nullptr ? other_stream_ : stream_.get();
    }

    /// While it exists, cuDNN queues on another stream.
    class CudnnStreamScope {
    public:
        CudnnStreamScope(const CudaContext& context, cudaStream_t stream) : context_(context) {
            impl::check_cudnn(cudnnSetStream(context.cudnn_.get(), stream), "cudnnSetStream");
        }
        CudnnStreamScope(const CudnnStreamScope&) = delete;
        CudnnStreamScope& operator=(const CudnnStreamScope&) = delete;
        ~CudnnStreamScope() { cudnnSetStream(context_.cudnn_.get(), context_.stream_.get()); }

    private:
        const CudaContext& context_;
    };

    [[nodiscard]] static int checked(int ordinal, const CudaOptions& options) {
        const int gpu = ordinal < 0 ? ordinal : options.gpu_of(ordinal), count = cuda_devices();
        const bool shared = options.devices_per_gpu > 1;
        require<DeviceError>(
            gpu >= 0 && gpu < count, "there is no GPU ", gpu,
            shared ? text(" for device ", ordinal, " with devices_per_gpu ", options.devices_per_gpu) : std::string(),
            ": this process sees ", count, count == 1 ? ", GPU 0" : ", GPUs 0 to ",
            count == 1 ? std::string() : text(count - 1));
        if (impl::compute_capability(gpu) < impl::least_capability) {
            throw DeviceError(text(impl::capability_text(gpu), ", and CUDA ", CUDART_VERSION / 1000, " needs ",
                                   impl::least_capability / 10, '.', impl::least_capability % 10, " or more"));
        }
        return gpu;
    }

    int ordinal_, gpu_;
    CudaOptions options_;
    std::string gpu_name_;
    std::size_t max_workspace_ = std::numeric_limits<std::size_t>::max();
    int multiprocessors_ = 0;
    impl::CudaStream stream_, side_stream_;
    /// The side stream waits for the first when it is forked; the context's stream waits for the second when it is
    /// joined.
    impl::CudaEvent forked_, side_done_;
    mutable cudaStream_t other_stream_ = nullptr;
    bool dependent_launch_ = false, cooperative_launch_ = false;
    /// Whether the work that was queued last on the current stream is a kernel, of Cupola or of a library. Only
    /// maintained with `dependent_launch_`, and while a DeferScope exists, during which all work is queued through the
    /// context.
    mutable bool follows_kernel_ = false;
    impl::CudnnHandle cudnn_;
    impl::CublasLtHandle cublas_;
    StepScalars step_scalars_;
    mutable impl::JoinedWork<CudaContext> joined_, deferred_;
    mutable bool defers_ = false;
    mutable std::int64_t joined_launches_ = 0;
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
    /// Work is queued and the host continues: a training has at most two complete steps queued behind an incomplete
    /// one.
    static constexpr int max_steps_in_flight = 3;
    /// The alignment that cuBLASLt requires of its workspaces, and that of cudaMalloc, with which cuDNN's engines are
    /// tested.
    static constexpr std::size_t scratch_alignment = 256;
    /// Each pass of an optimiser is a launch, so neighbouring parameters are updated in one launch.
    static constexpr bool joins_segments = true;
    using Options = CudaOptions;
    using Context = CudaContext;
    using Arena = CudaArena;
    using Kernels = Cuda;
    /// Defined in parallel/cuda/queue.hpp.
    using Queue = CudaQueue;

    /// Queues a copy between two devices' memory.
    static void copy_between(CudaContext& context, void* to, const void* from, std::size_t bytes) {
        context.queue_copy(to, from, bytes);
    }
    /// Throws DeviceError if this program has no code for the context's GPU. Defined in ops/cuda/training_step.hpp, as
    /// only nvcc knows the kernels.
    static void require_code(const CudaContext& context);
    /// The number of free bytes on the calling thread's device.
    [[nodiscard]] static std::size_t available_memory() {
        [[maybe_unused]] const int count = cuda_devices();
        std::size_t free = 0, total = 0;
        impl::check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
        return free;
    }
    /// The bytes that `devices` devices may use together if each uses the same number; the devices on one GPU share its
    /// memory.
    [[nodiscard, gnu::cold]] static std::size_t available_memory(const CudaOptions& options, int devices) {
        const int count = cuda_devices(), last = options.gpu_of(devices - 1);
        std::size_t least = ~std::size_t{0};
        for (int gpu = options.first_gpu; gpu <= last && gpu < count; ++gpu) {
            const impl::OnCudaDevice scope(gpu);
            const int before = (gpu - options.first_gpu) * options.devices_per_gpu;
            least = std::min(least, available_memory() /
                                        static_cast<std::size_t>(std::min(options.devices_per_gpu, devices - before)));
        }
        return least == ~std::size_t{0} ? 0 : least * static_cast<std::size_t>(devices);
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
    /// The plans are those made so far. `options` are CudaOptions.
    template <class Options, class Add>
    static void describe(const Options& options, Add&& add) {
        add(machine_property::gpu, gpu_name());
        add(machine_property::cuda, library_version());
        if (options.tf32 || options.tf32_convolutions) add("tf32", std::string(options.tf32 ? "on" : "convolutions"));
        if (!options.linear_chains) add("linear_chains", std::string("off"));
        if (!options.deterministic) return;
        add(machine_property::deterministic, std::string("on"));
        // Deterministic algorithms give a later run the bits of an earlier one only if they are the same algorithms.
        const std::string plans = options.plan_choices == nullptr ? std::string() : options.plan_choices->fingerprint();
        if (!plans.empty()) add(machine_property::plans, plans);
    }
    /// The lines about the plans that were made since the last call, for a run to print. `options` are CudaOptions.
    template <class Options>
    [[nodiscard]] static std::vector<std::string> take_lines(const Options& options) {
        return options.plan_choices == nullptr ? std::vector<std::string>() : options.plan_choices->take_lines();
    }
    /// The name of the first GPU that the process sees.
    [[nodiscard, gnu::cold]] static std::string gpu_name() {
        cudaDeviceProp properties{};
        return cudaGetDeviceProperties(&properties, 0) == cudaSuccess ? properties.name : "a GPU without a name";
    }
};

static_assert(Device<Cuda>);

}}  // namespace cupola::CUPOLA_ABI
