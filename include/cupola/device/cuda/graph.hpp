// SPDX-License-Identifier: Apache-2.0
//
// Work that is queued once and run many times: a CUDA graph of the work that a function queues on a context's stream.
// The host launches all of it with one call.
//
// Capturing runs nothing and waits for nothing. An operation that cannot be captured (a wait, a copy from memory that
// is not pinned, a library that does not allow it) ends the capture; refused() then returns the reason, and the caller
// queues the work each time.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/device/cuda.hpp>
#include <cupola/device/impl/cuda/cuda_error.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

using CudaGraph = CudaHandle<cudaGraph_t, &cudaGraphDestroy>;
using CudaGraphExec = CudaHandle<cudaGraphExec_t, &cudaGraphExecDestroy>;

class CapturedWork {
public:
    /// The length of Nodes, which counts nodes per cudaGraphNodeType; the last entry counts all newer types.
    static constexpr std::size_t node_types = 16;
    using Nodes = std::array<std::int64_t, node_types>;

    /// Captures the work that body() queues, and replaces the former graph. A DeviceError of body or, once the capture
    /// has begun, of CUDA is stored as the reason of refused(); other exceptions of body are rethrown. During the
    /// capture the calls of this thread are restricted, not those of other threads.
    template <class Body>
    void capture(const CudaContext& context, Body&& body) {
        destroy();
        const auto scope = context.team();
        check_cuda(cudaStreamBeginCapture(context.stream(), cudaStreamCaptureModeThreadLocal),
                   "cudaStreamBeginCapture");
        try {
            body();
            context.launch_joined();
        } catch (const DeviceError& error) {
            refused_ = error.what();
            context.discard_joined();
        } catch (...) {
            context.discard_joined();
            end(context.stream());
            graph_ = {};
            throw;
        }
        finish(context.stream());
    }

    [[nodiscard]] bool captured() const { return static_cast<bool>(exec_); }
    /// The reason why the last capture failed; empty if it succeeded.
    [[nodiscard]] const std::string& refused() const { return refused_; }

    /// Whether the captured work begins with one kernel, on which everything else depends.
    [[nodiscard]] bool begins_with_kernel() const { return first_ != nullptr; }
    /// Sets the first kernel of the next launches, and its arguments, given by their addresses in the order of the
    /// parameters. Launches that were queued before keep theirs.
    void set_first_kernel(const void* kernel, dim3 grid, dim3 block, void** arguments) const {
        require(captured() && begins_with_kernel(), "there is no captured work that begins with a kernel");
        cudaKernelNodeParams parameters{};
        parameters.func = const_cast<void*>(kernel);
        parameters.gridDim = grid;
        parameters.blockDim = block;
        parameters.kernelParams = arguments;
        check_cuda(cudaGraphExecKernelNodeSetParams(exec_.get(), first_, &parameters),
                   "cudaGraphExecKernelNodeSetParams");
    }

    /// Queues the captured work.
    void launch(const CudaContext& context) const {
        require(captured(), "there is no captured work to launch", refused_.empty() ? "" : ": ", refused_);
        check_cuda(cudaGraphLaunch(exec_.get(), context.stream()), "cudaGraphLaunch");
    }

    /// Must not be called while the graph runs.
    void destroy() {
        first_ = nullptr;
        exec_ = {};
        graph_ = {};
        refused_.clear();
    }

    /// The nodes of the graph that run on the device: kernels, copies and fills.
    [[nodiscard]] std::int64_t launches() const { return launches_; }

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
    /// Ends a capture, which may be invalid, and clears the error that invalidated it.
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
                const Nodes counted = nodes();
                first_ = first_kernel();
                launches_ = counted[cudaGraphNodeTypeKernel] + counted[cudaGraphNodeTypeMemcpy] +
                            counted[cudaGraphNodeTypeMemset];
                return;
            } catch (const DeviceError& error) {
                refused_ = error.what();
                cudaGetLastError();
            }
        }
        exec_ = {};
        graph_ = {};
    }

    /// Null if the graph begins with anything else.
    [[nodiscard]] cudaGraphNode_t first_kernel() const {
        std::size_t count = 0;
        check_cuda(cudaGraphGetRootNodes(graph_.get(), nullptr, &count), "cudaGraphGetRootNodes");
        if (count != 1) return nullptr;
        cudaGraphNode_t node = nullptr;
        check_cuda(cudaGraphGetRootNodes(graph_.get(), &node, &count), "cudaGraphGetRootNodes");
        cudaGraphNodeType type{};
        check_cuda(cudaGraphNodeGetType(node, &type), "cudaGraphNodeGetType");
        return type == cudaGraphNodeTypeKernel ? node : nullptr;
    }

    CudaGraph graph_;
    CudaGraphExec exec_;
    cudaGraphNode_t first_ = nullptr;
    std::int64_t launches_ = 0;
    std::string refused_;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
