// SPDX-License-Identifier: Apache-2.0
//
// A point in a context's stream whose completion the host can query without waiting.
#pragma once

#include <cupola/core/error.hpp>
#include <cupola/device/cuda.hpp>
#include <cupola/device/impl/cuda/cuda_error.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

class StepEvent {
public:
    /// Records the completion of all work queued so far, always for the same context. `captured`: the stream is being
    /// captured, and work outside the graph waits for the event, which then completes anew with each launch of the
    /// graph.
    void record(const CudaContext& context, bool captured = false) {
        const auto scope = context.team();
        device_ = context.gpu();
        if (!event_)
            check_cuda(cudaEventCreateWithFlags(event_.out(), cudaEventDisableTiming), "cudaEventCreateWithFlags");
        check_cuda(cudaEventRecordWithFlags(event_.get(), context.stream(),
                                            captured ? cudaEventRecordExternal : cudaEventRecordDefault),
                   "cudaEventRecordWithFlags");
    }
    /// True before the first record(). Throws DeviceError for an error on the device.
    [[nodiscard]] bool happened() const {
        if (!event_) return true;
        const cudaError_t status = cudaEventQuery(event_.get());
        if (status == cudaErrorNotReady) {
            cudaGetLastError();  // not an error, but CUDA stores it as one
            return false;
        }
        if (status != cudaSuccess) throw_cuda_error(status, "cudaEventQuery", device_);
        return true;
    }
    [[nodiscard]] cudaEvent_t get() const { return event_.get(); }

private:
    CudaEvent event_;
    int device_ = -1;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
