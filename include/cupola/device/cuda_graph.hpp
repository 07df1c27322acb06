// SPDX-License-Identifier: Apache-2.0
//
// Work that is queued once and run many times: a CUDA graph of what a function queues on a context's stream. A launch
// of the whole is one call of the host's.
//
// Capturing runs nothing and waits for nothing. What cannot be captured (a wait, a copy from memory that is not pinned,
// a library that does not allow it) ends it, refused() says why, and the caller queues the work each time.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/device/cuda.hpp>
#include <cupola/device/impl/cuda_error.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

using CudaGraph = CudaHandle<cudaGraph_t, &cudaGraphDestroy>;
using CudaGraphExec = CudaHandle<cudaGraphExec_t, &cudaGraphExecDestroy>;

class CapturedWork {
public:
    /// How many nodes a graph has of each cudaGraphNodeType; the last is of all that are newer.
    static constexpr std::size_t node_types = 16;
    using Nodes = std::array<std::int64_t, node_types>;

    /// Captures what body() queues, in place of what there was. A DeviceError of body's, or of CUDA's once the capture
    /// has begun, is stored as the reason of refused(); other exceptions of body are rethrown. During the capture the
    /// calls of this thread are restricted, not those of others.
    template <class Body>
    void capture(const CudaContext& context, Body&& body) {
        destroy();
        const auto scope = context.team();
        check_cuda(cudaStreamBeginCapture(context.stream(), cudaStreamCaptureModeThreadLocal),
                   "cudaStreamBeginCapture");
        try {
            body();
        } catch (const DeviceError& error) {
            refused_ = error.what();
        } catch (...) {
            end(context.stream());
            graph_ = {};
            throw;
        }
        finish(context.stream());
    }

    [[nodiscard]] bool captured() const { return static_cast<bool>(exec_); }
    /// Why the last capture was refused; empty where it was not.
    [[nodiscard]] const std::string& refused() const { return refused_; }

    /// Queues the captured work.
    void launch(const CudaContext& context) const {
        require(captured(), "there is no captured work to launch", refused_.empty() ? "" : ": ", refused_);
        check_cuda(cudaGraphLaunch(exec_.get(), context.stream()), "cudaGraphLaunch");
    }

    /// Not while it runs.
    void destroy() {
        exec_ = {};
        graph_ = {};
        refused_.clear();
    }

    [[nodiscard, gnu::cold]] Nodes nodes() const {
        Nodes result{};
        if (!graph_) return result;
        std::size_t count = 0;
        check_cuda(cudaGraphGetNodes(graph_.get(), nullptr, &count), "cudaGraphGetNodes");
        std::vector<cudaGraphNode_t> all(count);
        if (count != 0) check_cuda(cudaGraphGetNodes(graph_.get(), all.data(), &count), "cudaGraphGetNodes");
        for (cudaGraphNode_t node : all) {
            cudaGraphNodeType type{};
            check_cuda(cudaGraphNodeGetType(node, &type), "cudaGraphNodeGetType");
            ++result[std::min(static_cast<std::size_t>(type), node_types - 1)];
        }
        return result;
    }

private:
    /// Ends a capture, which may have been broken, and forgets the error that broke it.
    cudaError_t end(cudaStream_t stream) {
        graph_ = {};
        const cudaError_t status = cudaStreamEndCapture(stream, graph_.out());
        cudaGetLastError();
        return status;
    }

    [[gnu::cold]] void finish(cudaStream_t stream) {
        const cudaError_t ended = end(stream);
        if (refused_.empty()) {
            try {
                check_cuda(ended, "cudaStreamEndCapture");
                check_cuda(cudaGraphInstantiate(exec_.out(), graph_.get(), 0), "cudaGraphInstantiate");
                check_cuda(cudaGraphUpload(exec_.get(), stream), "cudaGraphUpload");
                return;
            } catch (const DeviceError& error) {
                refused_ = error.what();
                cudaGetLastError();
            }
        }
        exec_ = {};
        graph_ = {};
    }

    CudaGraph graph_;
    CudaGraphExec exec_;
    std::string refused_;
};

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
