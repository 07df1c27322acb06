// SPDX-License-Identifier: Apache-2.0
//
// A place in a stream's work that the host asks for: see ../cuda.hpp in this folder.
#pragma once

#include <memory>

#include <cupola/device/cuda.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

class StepEvent {
public:
    void record(const CudaContext& context) {
        const auto scope = context.team();
        HostStream::refuse_in_capture("cudaEventRecord");
        *event_ = {context.stream(), context.stream()->queued()};
    }
    [[nodiscard]] bool happened() const { return cudaEventQuery(event_.get()) == cudaSuccess; }
    [[nodiscard]] cudaEvent_t get() const { return event_.get(); }

private:
    std::unique_ptr<HostEvent> event_ = std::make_unique<HostEvent>();
};

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
