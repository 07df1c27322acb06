// SPDX-License-Identifier: Apache-2.0
//
// PartCopies of `Cuda`: each device of a group copies what enters its parts on one stream and what leaves them on
// another, while its own stream computes. Events order the streams; the host waits for none of them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <new>
#include <span>
#include <string_view>
#include <vector>

#include <cupola/device/cuda.hpp>
#include <cupola/device/cuda/arena.hpp>
#include <cupola/ops/cuda/training_step.hpp>
#include <cupola/parallel/pipeline/part_columns.hpp>
#include <cupola/parallel/pipeline/part_copies.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

template <>
class PartCopies<Cuda> {
public:
    static constexpr bool possible = true, needed = true;

    using Lane = PartLane;

    /// A point in a lane of one device, which is always the same device.
    class Mark {
        friend class PartCopies;
        CudaEvent event_;
    };

    /// The context must outlive the object.
    [[gnu::cold]] explicit PartCopies(CudaContext& context) : context_(context) {
        const auto scope = context.team();
        for (CudaStream* const stream : {&arriving_, &leaving_})
            check_cuda(cudaStreamCreateWithFlags(stream->out(), cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    }
    PartCopies(const PartCopies&) = delete;
    PartCopies& operator=(const PartCopies&) = delete;
    ~PartCopies() {
        const auto scope = context_.team(std::nothrow);
        arriving_ = {};
        leaving_ = {};
    }

    /// Sets the mark after all work that the lane has now.
    void record(Lane lane, Mark& mark) const {
        const auto scope = context_.team();
        if (!mark.event_)
            check_cuda(cudaEventCreateWithFlags(mark.event_.out(), cudaEventDisableTiming), "cudaEventCreateWithFlags");
        check_cuda(cudaEventRecord(mark.event_.get(), stream_of(lane)), "cudaEventRecord");
    }
    /// What the lane is given from now on begins when the mark of any device, as it was recorded last, is reached.
    void wait_for(Lane lane, const Mark& mark) const {
        const auto scope = context_.team();
        if (mark.event_) check_cuda(cudaStreamWaitEvent(stream_of(lane), mark.event_.get(), 0), "cudaStreamWaitEvent");
    }
    /// Copies between two devices' memory.
    void copy(Lane lane, void* to, const void* from, std::size_t bytes) const {
        const auto scope = context_.team();
        if (bytes != 0)
            check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_of(lane)), "cudaMemcpyAsync");
    }
    /// Queues the work of a pass. Its random numbers have the step of its key: that in the status is of the batch that
    /// was taken last.
    template <class Work>
    void queue(Work&& work) const {
        const NoStepScalars no_scalars(context_);
        const CudaContext::DeferScope scope(context_);
        work();
        context_.launch_joined();
        context_.launch_deferred();
        static_cast<void>(context_.take_joined_launches());
    }
    /// Throws DeviceError if work of the device has failed; by any thread.
    void require_working() const {
        const cudaError_t status = cudaStreamQuery(arriving_.get());
        if (status == cudaSuccess) return;
        if (status != cudaErrorNotReady) throw_cuda_error(status, "cudaStreamQuery", context_.gpu());
        cudaGetLastError();  // not an error, but CUDA stores it as one
    }
    /// An array in the memory of the devices of a group, which all of them read and write; on one GPU it is one piece.
    [[nodiscard, gnu::cold]] static CudaArena arena(std::size_t bytes, std::string_view what,
                                                    std::span<const OwnedFrom> owned,
                                                    std::span<CudaContext* const> contexts) {
        std::vector<int> gpus;
        for (const CudaContext* const context : contexts) {
            if (std::ranges::find(gpus, context->gpu()) == gpus.end()) gpus.push_back(context->gpu());
        }
        if (gpus.size() == 1) return {bytes, what};
        std::vector<CudaPiece> pieces;
        for (const OwnedFrom& each : owned)
            pieces.push_back({static_cast<std::size_t>(each.begin) * sizeof(float), contexts[each.device]->gpu()});
        return {bytes, what, pieces, gpus};
    }
    template <class V>
    static void write(const CudaContext& context, V* to, const V& value) {
        queue_set(context, to, value);
    }

private:
    /// While it exists, launches take all values as arguments.
    class NoStepScalars {
    public:
        explicit NoStepScalars(CudaContext& context) : context_(context), scalars_(context.step_scalars()) {
            context.set_step_scalars({});
        }
        NoStepScalars(const NoStepScalars&) = delete;
        NoStepScalars& operator=(const NoStepScalars&) = delete;
        ~NoStepScalars() { context_.set_step_scalars(scalars_); }

    private:
        CudaContext& context_;
        StepScalars scalars_;
    };
    [[nodiscard]] cudaStream_t stream_of(Lane lane) const {
        if (lane == Lane::work) return context_.stream();
        return lane == Lane::arriving ? arriving_.get() : leaving_.get();
    }

    CudaContext& context_;
    CudaStream arriving_, leaving_;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
