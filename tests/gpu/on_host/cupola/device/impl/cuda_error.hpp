// SPDX-License-Identifier: Apache-2.0
//
// A GPU's stream without a GPU: see ../cuda.hpp in this folder. What is queued is kept, with its arguments by value,
// and runs in its order when the host waits; when it looks at an event, a few pieces of work go on. So memory of the
// host that is written again too early, or a number that is read too early, shows in the results. Also the few names of
// CUDA that our headers call themselves.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

/// What CUDA refuses while a stream is captured.
struct CaptureRefused : DeviceError {
    using DeviceError::DeviceError;
};

/// What a test asks of the GPUs that there are none of, and what it learns.
struct OnHost {
    static constexpr int devices = 4;
    /// Held while work runs: kernels of two devices never run at once.
    static inline std::recursive_mutex lock;
    /// How many pieces of work go on at each look at an event.
    static inline std::atomic<int> pace = 3;
    /// Captures are refused.
    static inline std::atomic<bool> refuse_captures = false;
    /// The work of this device that fails after so many others; -1 for none. A device that has failed stays so.
    static inline std::atomic<int> failing_device = -1;
    static inline std::atomic<std::int64_t> work_until_failure = 0;
    static inline std::atomic<std::int64_t> captures = 0, launches_of_captures = 0, waits = 0;

    static void fail(int device, std::int64_t after) {
        work_until_failure = after;
        failing_device = device;
    }
    static void mend() { failing_device = -1; }
};

class HostStream {
public:
    /// Answers whether it is done; one that waits for another stream is asked again.
    using Work = std::function<bool()>;
    using List = std::vector<std::shared_ptr<Work>>;

    explicit HostStream(int ordinal) : ordinal_(ordinal) {}

    [[nodiscard]] int ordinal() const { return ordinal_; }

    template <class Do>
    void queue(Do work) {
        queue_waiting([work]() mutable {
            work();
            return true;
        });
    }
    template <class Do>
    void queue_waiting(Do work) {
        const std::lock_guard guard(OnHost::lock);
        check("launch");
        require<DeviceError>(current() == ordinal_, "CUDA's launch failed on device ", current(),
                             " with cudaErrorInvalidResourceHandle: the stream is of device ", ordinal_);
        auto kept = std::make_shared<Work>(std::move(work));
        if (capturing_ != nullptr)
            capturing_->push_back(std::move(kept));
        else
            add(std::move(kept));
    }
    void queue_all(const List& list) {
        const std::lock_guard guard(OnHost::lock);
        check("cudaGraphLaunch");
        refuse_in_capture("cudaGraphLaunch");
        for (const auto& work : list) add(work);
    }

    void wait() {
        refuse_in_capture("cudaStreamSynchronize");
        ++OnHost::waits;
        wait_for(queued());
    }
    void wait_for(std::uint64_t number) {
        std::int64_t idle = 0;
        while (!reached(number)) {
            if (run(1) != 0) {
                idle = 0;
                continue;
            }
            require<DeviceError>(++idle < 1'000'000, "device ", ordinal_, " waits for ever");
            pause();
        }
    }

    /// Runs at most `most` pieces of work, and answers how many there were that could go on.
    int run(int most) {
        const std::lock_guard guard(OnHost::lock);
        check("cudaStreamQuery");
        int done = 0;
        if (running_) return done;
        const Running running(running_);
        for (; done < most && !list_.empty(); ++done) {
            if (OnHost::failing_device == ordinal_ && OnHost::work_until_failure-- <= 0) failed_ = true;
            if (failed_ || !(*list_.front())()) break;
            list_.pop_front();
            ++finished_;
        }
        check("cudaStreamQuery");
        return done;
    }
    /// The same for a stream that another one's work waits for: if its device has failed it does not get on, and the
    /// one that waits has no error of its own.
    int run_for_another(int most) {
        try {
            return run(most);
        } catch (const DeviceError&) {
            return 0;
        }
    }

    [[nodiscard]] std::uint64_t queued() const {
        const std::lock_guard guard(OnHost::lock);
        return queued_;
    }
    [[nodiscard]] bool reached(std::uint64_t number) const {
        const std::lock_guard guard(OnHost::lock);
        return finished_ >= number;
    }

    void begin_capture(List* list) {
        const std::lock_guard guard(OnHost::lock);
        refuse_in_capture("cudaStreamBeginCapture");
        capturing_ = list;
        thread_captures() = true;
    }
    void end_capture() {
        const std::lock_guard guard(OnHost::lock);
        capturing_ = nullptr;
        thread_captures() = false;
    }
    [[nodiscard]] bool captures() const { return capturing_ != nullptr; }

    /// What may not be called by a thread that captures.
    static void refuse_in_capture(std::string_view call) {
        if (!thread_captures()) return;
        throw CaptureRefused(
            text("CUDA's ", call, " failed on device ", current(),
                 " with cudaErrorStreamCaptureUnsupported: operation not permitted when stream is capturing"));
    }
    /// The calling thread's device.
    [[nodiscard]] static int& current() {
        thread_local int device = 0;
        return device;
    }
    static void pause() {
        const std::timespec short_while{.tv_sec = 0, .tv_nsec = 20'000};
        nanosleep(&short_while, nullptr);
    }

private:
    struct Running {
        explicit Running(bool& flag) : of(flag) { of = true; }
        Running(const Running&) = delete;
        Running& operator=(const Running&) = delete;
        ~Running() { of = false; }
        bool& of;
    };

    void add(std::shared_ptr<Work> work) {
        list_.push_back(std::move(work));
        ++queued_;
    }
    void check(std::string_view call) const {
        require<DeviceError>(!failed_, "CUDA's ", call, " failed on device ", ordinal_,
                             " with cudaErrorIllegalAddress: an illegal memory access was encountered");
    }
    [[nodiscard]] static bool& thread_captures() {
        thread_local bool captures = false;
        return captures;
    }

    int ordinal_;
    std::deque<std::shared_ptr<Work>> list_;
    std::uint64_t queued_ = 0, finished_ = 0;
    List* capturing_ = nullptr;
    bool running_ = false, failed_ = false;
};

/// A place in the work of a stream.
struct HostEvent {
    std::shared_ptr<HostStream> stream;
    std::uint64_t number = 0;
};

}  // namespace impl

// Names of CUDA.

using cudaStream_t = std::shared_ptr<impl::HostStream>;
using cudaEvent_t = const impl::HostEvent*;
enum cudaError_t { cudaSuccess, cudaErrorNotReady };
enum cudaMemcpyKind {
    cudaMemcpyHostToHost,
    cudaMemcpyHostToDevice,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice,
    cudaMemcpyDefault
};

inline cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                                   const cudaStream_t& stream) {
    if (bytes != 0) stream->queue([=] { std::memcpy(to, from, bytes); });
    return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, const cudaStream_t& stream) {
    if (bytes != 0) stream->queue([=] { std::memset(to, value, bytes); });
    return cudaSuccess;
}
/// The stream goes on when the event has happened: the other one is driven to it.
inline cudaError_t cudaStreamWaitEvent(const cudaStream_t& stream, cudaEvent_t event, unsigned = 0) {
    if (event->stream == nullptr) return cudaSuccess;
    stream->queue_waiting([other = event->stream, number = event->number] {
        while (!other->reached(number) && other->run_for_another(1) != 0) {
        }
        return other->reached(number);
    });
    return cudaSuccess;
}
inline cudaError_t cudaEventQuery(cudaEvent_t event) {
    if (event->stream == nullptr || event->stream->reached(event->number)) return cudaSuccess;
    event->stream->run(impl::OnHost::pace);
    return event->stream->reached(event->number) ? cudaSuccess : cudaErrorNotReady;
}
inline cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    impl::HostStream::refuse_in_capture("cudaEventSynchronize");
    if (event->stream != nullptr) event->stream->wait_for(event->number);
    return cudaSuccess;
}
inline cudaError_t cudaSetDevice(int device) {
    impl::HostStream::current() = device;
    return cudaSuccess;
}
inline const char* cudaGetErrorString(cudaError_t) { return "no error"; }

namespace impl {

/// What fails here throws by itself.
inline void check_cuda(cudaError_t, std::string_view) {}

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
