// SPDX-License-Identifier: Apache-2.0
//
// A chain of kernels that do nothing, as a graph: the least time from one kernel of a captured step to the next.
#pragma once

#include <cuda_runtime.h>

#include <cupola/device/cuda.hpp>
#include <cupola/device/cuda/graph.hpp>
#include <cupola/device/cuda/launch.cuh>

#include "../../../standard.hpp"

namespace bench {

// With a name for all: the emulator knows the names of exported functions.
__global__ void __launch_bounds__(32) empty_kernel() { cupola::impl::begin_kernel(); }

/// The device of the context is the calling thread's.
class EmptyChain {
public:
    static constexpr int kernels = 2000;
    static constexpr std::string_view name = "empty_kernel";

    explicit EmptyChain(const cupola::CudaContext& context)
        : context_(context), longer_(chain(kernels)), shorter_(chain(few)) {
        for (cupola::impl::CudaEvent& event : events_)
            cupola::impl::check_cuda(cudaEventCreate(event.out()), "cudaEventCreate");
    }

    /// From the begin of a kernel to the begin of the next: of a long chain without a short one, so that the launch of a graph is not in
    /// it; the least of several times. The first ones are not counted: the GPU wakes, and its clock rises while it works.
    [[nodiscard]] double seconds_per_kernel() const {
        constexpr int rounds = 20, not_counted = 20;
        double of_longer = 0, of_shorter = 0;
        for (int round = 0; round < not_counted + rounds; ++round) {
            const double longer = seconds_of(longer_), shorter = seconds_of(shorter_);
            const bool first = round <= not_counted;
            of_longer = first ? longer : std::min(of_longer, longer);
            of_shorter = first ? shorter : std::min(of_shorter, shorter);
        }
        return (of_longer - of_shorter) / (kernels - few);
    }
    /// Runs the long chain, and waits for it.
    void run() const { static_cast<void>(seconds_of(longer_)); }

private:
    static constexpr int few = 200;

    [[nodiscard]] cupola::impl::CudaGraphExec chain(int count) const {
        // The kernel's code is loaded before the capture, as that of a training's first step.
        cupola::impl::launch_kernel(empty_kernel, 1, 32, context_);
        cupola::impl::check_cuda(cudaStreamSynchronize(context_.stream()), "cudaStreamSynchronize");
        cupola::impl::CudaGraph graph;
        cupola::impl::CudaGraphExec exec;
        cupola::impl::check_cuda(cudaStreamBeginCapture(context_.stream(), cudaStreamCaptureModeThreadLocal),
                                 "cudaStreamBeginCapture");
        for (int i = 0; i < count; ++i) cupola::impl::launch_kernel(empty_kernel, 1, 32, context_);
        cupola::impl::check_cuda(cudaStreamEndCapture(context_.stream(), graph.out()), "cudaStreamEndCapture");
        cupola::impl::check_cuda(cudaGraphInstantiate(exec.out(), graph.get(), 0), "cudaGraphInstantiate");
        return exec;
    }
    [[nodiscard]] double seconds_of(const cupola::impl::CudaGraphExec& exec) const {
        const auto record = [&](std::size_t i) {
            cupola::impl::check_cuda(cudaEventRecord(events_[i].get(), context_.stream()), "cudaEventRecord");
        };
        record(0);
        cupola::impl::check_cuda(cudaGraphLaunch(exec.get(), context_.stream()), "cudaGraphLaunch");
        record(1);
        cupola::impl::check_cuda(cudaEventSynchronize(events_[1].get()), "cudaEventSynchronize");
        float milliseconds = 0;
        cupola::impl::check_cuda(cudaEventElapsedTime(&milliseconds, events_[0].get(), events_[1].get()),
                                 "cudaEventElapsedTime");
        return static_cast<double>(milliseconds) * 1e-3;
    }

    const cupola::CudaContext& context_;
    cupola::impl::CudaGraphExec longer_, shorter_;
    std::array<cupola::impl::CudaEvent, 2> events_;
};

}  // namespace bench
