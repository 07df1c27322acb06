// SPDX-License-Identifier: Apache-2.0
//
// The context of a GPU: its stream, the handles of cuDNN and cuBLASLt, and the work that is joined before it is queued.
//
// It first checks that a driver and such a GPU exist, and throws DeviceError otherwise. Its work is queued on its
// stream and runs in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include <cupola/core/error.hpp>
#include <cupola/core/finite.hpp>
#include <cupola/device/cuda/arena.hpp>
#include <cupola/device/cuda/devices.hpp>
#include <cupola/device/cuda/options.hpp>
#include <cupola/device/cuda/pinned.hpp>
#include <cupola/device/impl/cuda/cuda_error.hpp>
#include <cupola/device/impl/joined_work.hpp>
#include <cupola/device/plan_choices.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

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
        const bool shared = options.devices_per_gpu > 1 && ordinal > 0;
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

}}  // namespace cupola::CUPOLA_ABI
