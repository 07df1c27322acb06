// SPDX-License-Identifier: Apache-2.0
//
// A cuDNN plan: a graph with a chosen engine and knobs, ready to run. It knows its workspace size, and runs on pointers
// that it does not own.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/ops/cuda/impl/cudnn_graph.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// cuDNN's message for the last failed call.
[[nodiscard, gnu::cold]] inline std::string cudnn_words(cudnnStatus_t status) {
    char last[256] = "";
    cudnnGetLastErrorString(last, sizeof last);
    return text(cudnnGetErrorString(status), last[0] != '\0' ? ": " : "", last);
}

/// A graph with a chosen engine and knobs, ready to run.
class CudnnPlan {
public:
    CudnnPlan() = default;
    /// The plan, or nothing where cuDNN rejects it; `refusal` then receives the reason.
    [[nodiscard, gnu::cold]] static std::optional<CudnnPlan> make(const CudnnTarget& target,
                                                                  const CudnnDescriptor& engine_config,
                                                                  std::string& refusal) {
        CudnnPlan plan;
        plan.plan_ = CudnnDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
        if (target.handle != nullptr)
            plan.plan_.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, target.handle);
        if (target.device != nullptr) plan.plan_.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *target.device);
        plan.plan_.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, engine_config);
        const cudnnStatus_t status = plan.plan_.try_finalize();
        if (status != CUDNN_STATUS_SUCCESS) {
            refusal = cudnn_words(status);
            return std::nullopt;
        }
        plan.workspace_ = static_cast<std::size_t>(
            plan.plan_.get<std::int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64));
        return plan;
    }

    explicit operator bool() const { return static_cast<bool>(plan_); }
    [[nodiscard]] std::size_t workspace_bytes() const { return workspace_; }
    /// The graph, the engine and cuDNN's plan for them, as JSON text.
    [[nodiscard, gnu::cold]] std::string description() const {
        return plan_.get_text(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION);
    }

    /// Queues it on the handle's stream. `pointers[i]` is tensor number i. The pointers of the last few calls are kept
    /// in cuDNN's form, so that a step with the same arenas creates no new objects.
    void run(cudnnHandle_t handle, std::byte* workspace, std::span<const void* const> pointers) {
        const CudnnDescriptor& pack = pack_of(workspace, pointers);
        check_cudnn(cudnnBackendExecute(handle, plan_.get(), pack.get()), "cudnnBackendExecute");
    }
    /// Forgets the pointers of former calls, whose memory may be freed.
    void forget_pointers() {
        packs_ = {};
        next_ = 0;
    }

private:
    struct Pack {
        std::byte* workspace = nullptr;
        std::vector<const void*> pointers;
        CudnnDescriptor descriptor;
    };

    const CudnnDescriptor& pack_of(std::byte* workspace, std::span<const void* const> pointers) {
        for (const Pack& pack : packs_) {
            if (pack.descriptor && pack.workspace == workspace && std::ranges::equal(pack.pointers, pointers))
                return pack.descriptor;
        }
        for (const void* pointer : pointers) {
            require<DeviceError>(reinterpret_cast<std::uintptr_t>(pointer) % cudnn_alignment == 0,
                                 "cuDNN was given a tensor at an address that is not a multiple of ", cudnn_alignment,
                                 " bytes");
        }
        Pack& pack = packs_[next_];
        next_ = (next_ + 1) % packs_.size();
        pack = {workspace, {pointers.begin(), pointers.end()}, CudnnDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)};
        std::vector<std::int64_t> ids;
        for (std::int64_t i = 0; i < std::ssize(pointers); ++i) ids.push_back(i);
        pack.descriptor.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids);
        pack.descriptor.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, std::ssize(pointers),
                            pack.pointers.data());
        pack.descriptor.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace);
        pack.descriptor.finalize();
        return pack.descriptor;
    }

    CudnnDescriptor plan_;
    std::size_t workspace_ = 0;
    /// A step reads one of two or three batch buffers.
    std::array<Pack, 4> packs_;
    std::size_t next_ = 0;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
