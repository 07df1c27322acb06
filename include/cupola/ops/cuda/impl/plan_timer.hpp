// SPDX-License-Identifier: Apache-2.0
//
// The time of the candidates of a plan: runs on memory of their own, timed by the device's events, within a limit of
// time. A candidate runs once to load its code, once to find out how often it has to run for a time that can be
// measured, and then three times as often; the least time counts. Those runs are captured and launched as a graph, because a call
// of a library may take the host longer than its kernel the device. Its operands are small random numbers of either sign.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/function_ref.hpp>
#include <cupola/core/monotonic_seconds.hpp>
#include <cupola/device/cuda.hpp>
#include <cupola/device/cuda_graph.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

/// What the candidates of one plan run with.
struct PlanTrial {
    /// The stream that a candidate's run queues its work on.
    cudaStream_t stream = nullptr;
    /// The limit for all candidates together, 0 for none to be timed.
    double seconds = 0;
    /// The bytes of the tensors that a candidate reads and writes.
    std::vector<std::size_t> tensors = {};
};

class PlanTimer {
public:
    enum class Result : std::uint8_t { fastest, slower, failed, no_memory };
    /// The share of the time of a candidate that one that is ranked after it must take at most to be chosen.
    static constexpr double faster = 0.98;
    using Run = FunctionRef<void(std::byte* workspace, std::span<const void* const> tensors)>;

    /// Nothing is timed where there is no trial, no time or no memory for the tensors, or where the stream is captured.
    [[gnu::cold]] explicit PlanTimer(const PlanTrial* trial) {
        if (trial == nullptr || !(trial->seconds > 0)) return;
        cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
        check_cuda(cudaStreamIsCapturing(trial->stream, &capture), "cudaStreamIsCapturing");
        if (capture != cudaStreamCaptureStatusNone) return;
        std::size_t bytes = 0;
        for (const std::size_t tensor : trial->tensors) bytes += padded(tensor);
        try {
            tensors_ = CudaArena(bytes, "the operands of a plan that is timed");
        } catch (const OutOfMemory& error) {
            why_ = error.what();
            return;
        }
        stream_ = trial->stream;
        limit_ = trial->seconds;
        began_ = monotonic_seconds();
        fill();
        std::byte* place = tensors_.data();
        for (const std::size_t tensor : trial->tensors) {
            pointers_.push_back(place);
            place += padded(tensor);
        }
        for (CudaEvent& event : events_) check_cuda(cudaEventCreate(event.out()), "cudaEventCreate");
        record(0);
        times_ = true;
    }

    [[nodiscard]] bool times() const { return times_; }
    /// Why nothing can be timed, where that is for lack of memory.
    [[nodiscard]] const std::string& why() const { return why_; }
    /// Whether the limit is reached; not before a first candidate has been timed.
    [[nodiscard]] bool is_over() const { return timed_ > 0 && std::max(spent_, elapsed()) >= limit_; }
    /// The seconds since the first candidate could run, by the host's clock.
    [[nodiscard]] double elapsed() const { return times_ ? monotonic_seconds() - began_ : 0; }

    /// Times a candidate. `fastest` if it takes less time than `faster` of each before: of two that are alike, the one
    /// that the library ranks first is taken each time. `failed` where `run` throws DeviceError; throws it where the device
    /// computes nothing more.
    [[gnu::cold]] Result offer(std::size_t workspace_bytes, Run run) {
        if (workspace_bytes > workspace_.size()) {
            try {
                workspace_ = {};
                workspace_ = CudaArena(workspace_bytes, "the scratch memory of a plan that is timed");
            } catch (const OutOfMemory&) {
                return Result::no_memory;
            }
        }
        double time = 0;
        try {
            time = seconds_of([&] { run(workspace_bytes == 0 ? nullptr : workspace_.data(), pointers_); });
        } catch (const DeviceError&) {
            check_cuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
            cudaGetLastError();  // the error is of this candidate alone
            return Result::failed;
        }
        last_ = time;
        const bool first = timed_++ == 0;
        if (first || time < faster * seconds_) {
            next_ = first ? 0 : seconds_;
            seconds_ = time;
            return Result::fastest;
        }
        next_ = timed_ == 2 ? time : std::min(next_, time);
        return Result::slower;
    }

    /// The seconds of a run: of the fastest, and the least of the others; and the number of candidates.
    [[nodiscard]] double seconds() const { return seconds_; }
    [[nodiscard]] double next_seconds() const { return next_; }
    [[nodiscard]] int timed() const { return timed_; }
    /// The seconds of a run of the last candidate that was timed.
    [[nodiscard]] double last_seconds() const { return last_; }

private:
    static constexpr std::size_t padding = 256;
    [[nodiscard]] static std::size_t padded(std::size_t bytes) { return (bytes + padding - 1) / padding * padding; }

    void record(std::size_t event) { check_cuda(cudaEventRecord(events_[event].get(), stream_), "cudaEventRecord"); }
    [[nodiscard]] double seconds_between(std::size_t from, std::size_t to) {
        float milliseconds = 0;
        check_cuda(cudaEventElapsedTime(&milliseconds, events_[from].get(), events_[to].get()), "cudaEventElapsedTime");
        return static_cast<double>(milliseconds) / 1e3;
    }
    /// The seconds of what `work` queues.
    [[nodiscard]] double seconds_of_work(FunctionRef<void()> work) {
        record(1);
        work();
        record(2);
        check_cuda(cudaEventSynchronize(events_[2].get()), "cudaEventSynchronize");
        // By the host's clock and by the device's: a plan takes time to be made, too.
        spent_ = std::max(elapsed(), seconds_between(0, 2));
        return seconds_between(1, 2);
    }
    /// A graph of `runs` runs; empty where the stream cannot be captured with them.
    [[nodiscard]] CudaGraphExec graph_of(int runs, FunctionRef<void()> run) {
        CudaGraph graph;
        CudaGraphExec exec;
        bool captured = cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal) == cudaSuccess;
        if (captured) {
            try {
                for (int i = 0; i < runs; ++i) run();
            } catch (const DeviceError&) {
                captured = false;
            }
            captured = cudaStreamEndCapture(stream_, graph.out()) == cudaSuccess && captured;
        }
        if (!captured || cudaGraphInstantiate(exec.out(), graph.get(), 0) != cudaSuccess ||
            cudaGraphUpload(exec.get(), stream_) != cudaSuccess) {
            cudaGetLastError();
            exec = {};
        }
        return exec;
    }
    [[nodiscard]] double seconds_of(FunctionRef<void()> run) {
        // An event is exact to half a microsecond, and the launch of a kernel takes a few.
        constexpr double long_enough = 100e-6;
        constexpr int rounds = 3, max_runs = 20;
        static_cast<void>(seconds_of_work(run));
        double least = seconds_of_work(run);
        // Compared with a run that was launched as this one was.
        const bool slow = timed_ > 0 && least > 2 * single_;
        single_ = timed_ > 0 ? std::min(single_, least) : least;
        if (spent_ >= limit_ || slow) return least;
        const double wanted = std::ceil(long_enough / std::max(least, 1e-9));
        const int runs = static_cast<int>(std::clamp(wanted, 1.0, static_cast<double>(max_runs)));
        const CudaGraphExec graph = graph_of(runs, run);
        const auto all = [&] {
            if (graph) {
                check_cuda(cudaGraphLaunch(graph.get(), stream_), "cudaGraphLaunch");
            } else {
                for (int i = 0; i < runs; ++i) run();
            }
        };
        for (int round = 0; round < rounds && spent_ < limit_; ++round)
            least = std::min(least, seconds_of_work(all) / runs);
        return least;
    }

    /// Every 16 bits are a sign, 0111100 and eight random bits: 0.008 to 0.03 in float and in bfloat16, 1 to 1.25 in half.
    void fill() {
        std::vector<std::uint16_t> pattern(std::min(tensors_.size(), std::size_t{1} << 16) / sizeof(std::uint16_t));
        std::uint32_t state = 1;
        for (std::uint16_t& word : pattern) {
            state = state * 1664525U + 1013904223U;
            word = static_cast<std::uint16_t>((state >> 31 << 15) | 0x3C00U | (state >> 16 & 0xFFU));
        }
        const std::size_t known = pattern.size() * sizeof(std::uint16_t);
        if (known == 0) return;
        check_cuda(cudaMemcpyAsync(tensors_.data(), pattern.data(), known, cudaMemcpyHostToDevice, stream_),
                   "cudaMemcpyAsync");
        for (std::size_t done = known; done < tensors_.size();) {
            const std::size_t part = std::min(done, tensors_.size() - done);
            check_cuda(
                cudaMemcpyAsync(tensors_.data() + done, tensors_.data(), part, cudaMemcpyDeviceToDevice, stream_),
                "cudaMemcpyAsync");
            done += part;
        }
        check_cuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    }

    cudaStream_t stream_ = nullptr;
    double limit_ = 0, began_ = 0, spent_ = 0, seconds_ = 0, next_ = 0, last_ = 0;
    /// The least time of a run that was launched on its own.
    double single_ = 0;
    int timed_ = 0;
    bool times_ = false;
    std::string why_;
    CudaArena tensors_, workspace_;
    std::vector<const void*> pointers_;
    /// The beginning of all, and the beginning and the end of some runs.
    std::array<CudaEvent, 3> events_;
};

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
