// SPDX-License-Identifier: Apache-2.0
//
// Times the candidates of a plan: they run on memory of their own, within a limit of the device's time, and the
// device's events measure them. A candidate runs once to load its code, which does not count, once to find out how many
// runs take a measurable time, and then three times that many; the least time counts. Those runs are captured and
// launched as a graph, because a call of a library may take more of the host's time than its kernel takes of the
// device's. The operands are small random numbers of either sign.
//
// An idle GPU runs at a fraction of its clock, so before the first candidate is timed, it runs until its times have
// settled. The clock of a busy GPU still varies with its power: the best three run once more at the end, in turns, so
// that changes of the clock affect each of them alike.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/function_ref.hpp>
#include <cupola/core/monotonic_seconds.hpp>
#include <cupola/device/cuda.hpp>
#include <cupola/device/cuda/graph.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The conditions under which the candidates of one plan are timed.
struct PlanTrial {
    /// The stream on which a candidate queues its work.
    cudaStream_t stream = nullptr;
    /// The limit for all candidates together, 0 for none to be timed.
    double seconds = 0;
    /// The bytes of the tensors that a candidate reads and writes.
    std::vector<std::size_t> tensors = {};
};

class PlanTimer {
public:
    enum class Result : std::uint8_t { timed, failed, no_memory };
    /// A candidate replaces one that is ranked before it if it takes less than this fraction of its time.
    static constexpr double faster = 0.98;
    using Run = FunctionRef<void(std::byte* workspace, std::span<const void* const> tensors)>;
    /// Runs a candidate by its number: that among those for which offer() has returned `timed`, from 0.
    using RunOne = FunctionRef<void(std::size_t candidate, std::byte* workspace, std::span<const void* const> tensors)>;

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
        times_ = true;
    }

    [[nodiscard]] bool times() const { return times_; }
    /// Why nothing can be timed, if that is for lack of memory.
    [[nodiscard]] const std::string& why() const { return why_; }
    /// Whether the limit is reached; false until a first candidate has been timed. The host's time for loading and
    /// planning depends on what is loaded and cached: it ends the timing only at ten times the limit.
    [[nodiscard]] bool is_over() const {
        constexpr double of_host = 10;
        return !timed_.empty() && (spent_ >= limit_ || monotonic_seconds() - began_ >= of_host * limit_);
    }
    /// The seconds of the device that count for the limit.
    [[nodiscard]] double spent() const { return spent_; }

    /// Times a candidate, whose number is that of the candidates timed before. Returns `failed` if `run` throws
    /// DeviceError; throws DeviceError if the device can no longer compute.
    [[gnu::cold]] Result offer(std::size_t workspace_bytes, Run run) {
        if (!has_workspace(workspace_bytes)) return Result::no_memory;
        std::byte* const workspace = workspace_bytes == 0 ? nullptr : workspace_.data();
        try {
            const double time = measured([&] { run(workspace, pointers_); });
            timed_.push_back({timed_.size(), time, workspace_bytes});
        } catch (const DeviceError&) {
            forget_failure();
            return Result::failed;
        }
        return Result::timed;
    }

    /// The number of the candidate that takes the least time: of those that differ by less than `faster`, the one that
    /// was offered first, which is the one that the library ranks first. Called once, after at least one was timed.
    [[nodiscard, gnu::cold]] std::size_t choose(RunOne run) {
        std::vector<Timed> finalists = best_three();
        const double round = sum_of(finalists);
        const std::size_t workspace = std::ranges::max_element(finalists, {}, &Timed::workspace_bytes)->workspace_bytes;
        // A fraction of the limit. Candidates that take longer differ by more than the clock varies.
        const double most = limit_ / 4;
        if (finalists.size() > 1 && round < most && has_workspace(workspace)) play_off(finalists, run, most);
        const Timed* best = &finalists.front();
        for (const Timed& each : finalists) {
            if (each.seconds < faster * best->seconds) best = &each;
        }
        seconds_ = best->seconds;
        next_ = 0;
        for (const Timed& each : finalists) timed_[each.number] = each;
        for (const Timed& each : timed_) {
            if (each.number != best->number) next_ = next_ > 0 ? std::min(next_, each.seconds) : each.seconds;
        }
        return best->number;
    }

    /// The seconds of a run: of the chosen candidate, and the least of the others; and the number of candidates.
    [[nodiscard]] double seconds() const { return seconds_; }
    [[nodiscard]] double next_seconds() const { return next_; }
    [[nodiscard]] int timed() const { return static_cast<int>(timed_.size()); }
    /// The seconds of a run of a candidate: those of the play-off, if it took part in it.
    [[nodiscard]] double seconds_of(std::size_t candidate) const { return timed_[candidate].seconds; }

private:
    struct Timed {
        std::size_t number = 0;
        double seconds = 0;
        std::size_t workspace_bytes = 0;
    };

    static constexpr std::size_t padding = 256;
    [[nodiscard]] static std::size_t padded(std::size_t bytes) { return (bytes + padding - 1) / padding * padding; }
    [[nodiscard]] static double sum_of(const std::vector<Timed>& candidates) {
        double sum = 0;
        for (const Timed& each : candidates) sum += each.seconds;
        return sum;
    }

    /// Whether `bytes` of scratch memory are available. If not, the scratch memory of earlier candidates has been
    /// freed.
    [[nodiscard]] bool has_workspace(std::size_t bytes) {
        if (bytes <= workspace_.size()) return true;
        try {
            workspace_ = {};
            workspace_ = CudaArena(bytes, "the scratch memory of a plan that is timed");
        } catch (const OutOfMemory&) {
            return false;
        }
        return true;
    }

    void record(std::size_t event) { check_cuda(cudaEventRecord(events_[event].get(), stream_), "cudaEventRecord"); }
    /// The seconds of the device for what `work` queues.
    [[nodiscard]] double seconds_of_work(FunctionRef<void()> work) {
        record(0);
        work();
        record(1);
        check_cuda(cudaEventSynchronize(events_[1].get()), "cudaEventSynchronize");
        float milliseconds = 0;
        check_cuda(cudaEventElapsedTime(&milliseconds, events_[0].get(), events_[1].get()), "cudaEventElapsedTime");
        return static_cast<double>(milliseconds) / 1e3;
    }
    /// Clears the error of a candidate. Throws DeviceError if the device can no longer compute.
    void forget_failure() {
        check_cuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
        cudaGetLastError();
    }
    /// Several runs of a candidate: a graph, or queued one by one if they cannot be captured.
    class Runs {
    public:
        Runs() = default;
        Runs(cudaStream_t stream, int runs, FunctionRef<void()> run) : stream_(stream), runs_(runs) {
            CudaGraph graph;
            bool captured = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess;
            if (captured) {
                try {
                    for (int i = 0; i < runs; ++i) run();
                } catch (const DeviceError&) {
                    captured = false;
                }
                captured = cudaStreamEndCapture(stream, graph.out()) == cudaSuccess && captured;
            }
            if (!captured || cudaGraphInstantiate(exec_.out(), graph.get(), 0) != cudaSuccess ||
                cudaGraphUpload(exec_.get(), stream) != cudaSuccess) {
                cudaGetLastError();
                exec_ = {};
            }
        }
        void queue(FunctionRef<void()> run) const {
            if (exec_) {
                check_cuda(cudaGraphLaunch(exec_.get(), stream_), "cudaGraphLaunch");
            } else {
                for (int i = 0; i < runs_; ++i) run();
            }
        }
        [[nodiscard]] int count() const { return runs_; }

    private:
        cudaStream_t stream_ = nullptr;
        int runs_ = 0;
        CudaGraphExec exec_;
    };
    /// As many runs as take about `seconds`, at most 20.
    [[nodiscard]] Runs runs_for(double seconds, double of_one, FunctionRef<void()> run) const {
        constexpr double max_runs = 20;
        const double wanted = std::ceil(seconds / std::max(of_one, 1e-9));
        return {stream_, static_cast<int>(std::clamp(wanted, 1.0, max_runs)), run};
    }
    [[nodiscard]] double seconds_of_one(const Runs& runs, FunctionRef<void()> run) {
        return seconds_of_work([&] { runs.queue(run); }) / runs.count();
    }

    /// An event is exact to half a microsecond, and the launch of a kernel takes a few.
    static constexpr double long_enough = 100e-6;

    [[nodiscard]] double measured(FunctionRef<void()> run) {
        constexpr int rounds = 3;
        static_cast<void>(seconds_of_work(run));
        double least = seconds_of_work(run);
        // A run that takes longer than that raises the clock by itself.
        const double most = std::min(0.25, limit_ / 2);
        if (timed_.empty() && least < most) {
            settle(least, most, run);
            least = seconds_of_work(run);
        }
        spent_ += 2 * least;
        // Compared with a run that was launched as this one was.
        const bool slow = !timed_.empty() && least > 2 * single_;
        single_ = timed_.empty() ? least : std::min(single_, least);
        if (spent_ >= limit_ || slow) return least;
        Runs runs = runs_for(long_enough, least, run);
        for (int round = 0; round < rounds && spent_ < limit_; ++round) {
            const double of_one = seconds_of_one(runs, run);
            spent_ += runs.count() * of_one;
            least = std::min(least, of_one);
            // The time of a run that was launched alone was mainly the host's.
            if (round == 0 && 2 * runs.count() * of_one < long_enough) runs = runs_for(long_enough, of_one, run);
        }
        return least;
    }

    /// Runs until the least time of 10 ms is not less than that of the 10 ms before, for `most` seconds. An H100
    /// begins at 345 MHz, a sixth of its clock.
    void settle(double of_one, double most, FunctionRef<void()> run) {
        constexpr double span = 10e-3, settled = 0.99, graph_seconds = 1e-3;
        const Runs runs = runs_for(graph_seconds, of_one, run);
        double total = 0, before = std::numeric_limits<double>::infinity();
        while (total < most) {
            double least = std::numeric_limits<double>::infinity(), end = total + span;
            do {
                const double time = seconds_of_one(runs, run);
                total += runs.count() * time;
                least = std::min(least, time);
            } while (total < end && total < most);
            if (least > settled * before) return;
            before = least;
        }
    }

    /// In the order in which they were offered. One that differs from the best by less than `faster` comes before
    /// those that were offered after it.
    [[nodiscard]] std::vector<Timed> best_three() const {
        constexpr std::size_t most = 3;
        const double least = std::ranges::min_element(timed_, {}, &Timed::seconds)->seconds;
        std::vector<Timed> result = timed_;
        const auto rank = [&](const Timed& each) { return faster * each.seconds <= least ? least : each.seconds; };
        std::ranges::stable_sort(result, {}, rank);
        result.resize(std::min(result.size(), most));
        std::ranges::sort(result, {}, &Timed::number);
        return result;
    }
    /// Times the finalists in turns, for at most about `seconds`.
    void play_off(std::vector<Timed>& finalists, RunOne run, double seconds) {
        constexpr int rounds = 5;
        std::vector<Runs> runs;
        const auto queued = [&](std::size_t i) {
            const Timed& each = finalists[i];
            run(each.number, each.workspace_bytes == 0 ? nullptr : workspace_.data(), pointers_);
        };
        for (std::size_t i = 0; i < finalists.size(); ++i)
            runs.push_back(runs_for(long_enough, finalists[i].seconds, [&] { queued(i); }));
        std::vector<double> least(finalists.size(), std::numeric_limits<double>::infinity());
        double total = 0;
        for (int round = 0; round < rounds && total < seconds; ++round) {
            for (std::size_t i = 0; i < finalists.size(); ++i) {
                const double of_one = seconds_of_one(runs[i], [&] { queued(i); });
                total += runs[i].count() * of_one;
                least[i] = std::min(least[i], of_one);
            }
        }
        for (std::size_t i = 0; i < finalists.size(); ++i) finalists[i].seconds = least[i];
        spent_ += total;
    }

    /// Every 16 bits are a sign, 0111100 and eight random bits: 0.008 to 0.03 in float and in bfloat16, 1 to 1.25 in
    /// half.
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
    double limit_ = 0, began_ = 0, spent_ = 0, seconds_ = 0, next_ = 0;
    /// The least time of a run that was launched on its own.
    double single_ = 0;
    bool times_ = false;
    std::string why_;
    std::vector<Timed> timed_;
    CudaArena tensors_, workspace_;
    std::vector<const void*> pointers_;
    /// The beginning and the end of some runs.
    std::array<CudaEvent, 2> events_;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
