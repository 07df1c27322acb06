// SPDX-License-Identifier: Apache-2.0
//
// NcclAllReduce on `Cuda`: each bucket of the gradient is summed over all ranks on a separate stream while the backward
// pass continues. That stream also adds the weighted rows of the device's replicas.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <cupola/device/cuda.hpp>
#include <cupola/ops/cuda/training_step.hpp>
#include <cupola/parallel/agreement.hpp>
#include <cupola/parallel/cuda/queue.hpp>
#include <cupola/parallel/nccl_all_reduce.hpp>
#include <cupola/processes/agreement/collective_processes.hpp>
#include <cupola/processes/nccl/bucket_all_reduce.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

template <class Device, class Element>
    requires(Device::has_nccl)
class NcclCollective<Device, Element> {
    using AllReduce = NcclBucketAllReduce<NcclCalls, Element>;

public:
    NcclCollective(const NcclAllReduce& policy, const CollectiveSetup& setup)
        : elements_(setup.elements),
          loss_scale_(setup.loss_scale),
          memory_(static_cast<std::size_t>(setup.devices)),
          weights_(memory_.size()),
          sums_(policy, {setup.first_replicas.begin(), setup.first_replicas.end()}, setup.elements,
                {setup.ordinals.begin(), setup.ordinals.end()}) {}

    [[nodiscard]] static std::int64_t bucket_elements(const NcclAllReduce& policy) {
        return policy.bucket_bytes / static_cast<std::int64_t>(sizeof(Element));
    }
    [[nodiscard, gnu::cold]] static ProcessNumber process(const NcclAllReduce& policy) {
        const NcclAllReduce started = policy.as_launched();
        return {started.processes, started.process};
    }
    [[nodiscard, gnu::cold]] static std::vector<int> lost(const NcclAllReduce& policy) {
        if (policy.environment == nullptr) return {};
        return {policy.environment->lost().begin(), policy.environment->lost().end()};
    }
    [[nodiscard]] bool healthy() const { return sums_.healthy(); }

    void join(int device, CudaQueue&, CudaContext&, const RankBlocks& blocks) {
        CudaArena& memory = memory_[static_cast<std::size_t>(device)];
        const auto floats = static_cast<std::size_t>(AllReduce::memory_floats(elements_));
        memory = CudaArena(floats * sizeof(float), text("the summed gradients of device ", device));
        sums_.join(device, reinterpret_cast<float*>(memory.data()), blocks);
    }

    /// The update of the previous step reads its sums until the first bucket of this step is complete.
    void begin(int device, CudaQueue&, CudaContext&, const StepShape& shape) {
        auto& member = sums_.member(device);
        const float scale = shape.scaled ? loss_scale_ : 1.0F;
        weights_[static_cast<std::size_t>(device)] = {
            .to = member.weight(), .from = shape.weight_here, .value = static_cast<float>(shape.samples_here) * scale};
        member.begin(shape.step);
    }

    void give(int device, CudaQueue& queue, CudaContext& context, std::size_t k, const GradientBucket& bucket,
              const WeightedGradients& rows) {
        auto& member = sums_.member(device);
        member.give(bucket, queue.bucket_event(k), [&](cudaStream_t stream, const GradientBucket& group) {
            const CudaContext::StreamScope scope(context, stream);
            const auto begin = static_cast<std::size_t>(group.begin);
            const std::span<Element> to = member.values().subspan(begin, static_cast<std::size_t>(group.end) - begin);
            std::array<const float*, WeightedSumAt::max_rows> parts{};
            require(rows.rows.size() <= parts.size(), "NcclAllReduce adds the gradients of at most ", parts.size(),
                    " replicas of a device, not of ", rows.rows.size());
            for (std::size_t r = 0; r < rows.rows.size(); ++r) parts[r] = rows.rows[r] + begin;
            queue_weighted_sum(context, {parts.data(), rows.rows.size()}, rows.weights, to,
                               begin == 0 ? weights_[static_cast<std::size_t>(device)] : FloatWrite{});
        });
    }

    SumsOfGradient<Element> finish(int device, CudaQueue&, CudaContext& context) {
        return sums_.member(device).finish(context.stream());
    }

    [[nodiscard]] const float* all_reduce_number(int device, CudaQueue&, CudaContext& context, std::int64_t step,
                                                 const float* number) {
        return sums_.member(device).all_reduce_number(step, context.stream(), number);
    }

    void gather(int device, CudaQueue&, CudaContext&, const ExchangeName& name, std::span<const std::byte> mine,
                std::span<std::byte> all) {
        sums_.member(device).gather(name, mine, all);
    }
    void wait(int device, CudaQueue& queue, std::int64_t step, bool finished) {
        sums_.member(device).wait_for(finished ? queue.finished_event(step) : queue.mark_event(), step);
    }
    void break_off(int device, std::int64_t step, const std::string& why) noexcept {
        sums_.break_off(device, step, why);
    }
    void end(int device, CudaQueue& queue) noexcept {
        try {
            if (healthy()) return queue.synchronize();
            queue.mark();
            sums_.member(device).wait_for_broken_off(queue.mark_event());
        } catch (const Error&) {  // the work of a GPU that failed has ended too
        }
    }

private:
    std::int64_t elements_;
    float loss_scale_;
    std::vector<CudaArena> memory_;
    /// The weight of each device in this step, written by the kernel of its last bucket.
    std::vector<FloatWrite> weights_;
    AllReduce sums_;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
