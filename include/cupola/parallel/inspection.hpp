// SPDX-License-Identifier: Apache-2.0
//
// Inspection: a look into a step, between the averaging and the update, for summaries. What fusion and the memory plan never
// wrote is computed again, into scratch: a run has the same bits with and without.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include <cupola/parallel/impl/device_worker.hpp>
#include <cupola/tensor/batch.hpp>

namespace cupola::inline CUPOLA_ABI {

/// Passed to the inspector of `training.step(batches, inspector)`, on the first device's thread; valid during the call.
template <class Device>
class Inspection {
public:
    using PlanFunction = Plan<Device>& (*)(impl::DeviceWorker<Device>&, std::int64_t);

    Inspection(std::int64_t step, impl::DeviceWorker<Device>& worker, std::span<const float> gradient, const BatchView& batch,
               const PassKey& key, PlanFunction plan)
        : step_(step), worker_(&worker), gradient_(gradient), batch_(batch), key_(key), plan_(plan) {}

    [[nodiscard]] std::int64_t step() const { return step_; }
    [[nodiscard]] typename Device::Context& context() const { return worker_->context(); }
    /// The parameters before the update, and the gradient averaged over the replicas, laid out as the arena.
    [[nodiscard]] std::span<const float> parameters() const { return {worker_->parameters(), gradient_.size()}; }
    [[nodiscard]] std::span<const float> averaged_gradient() const { return gradient_; }
    /// The first replica's batch.
    [[nodiscard]] const BatchView& batch() const { return batch_; }

    /// Calls visit(row, values) for every layer of the network in its order: its output for the first replica's batch.
    template <class Visit>
    void for_each_activation(Visit&& visit) const {
        worker_->inspect(plan_(*worker_, batch_.size), batch_.samples, key_, std::forward<Visit>(visit));
    }

private:
    std::int64_t step_;
    impl::DeviceWorker<Device>* worker_;
    std::span<const float> gradient_;
    BatchView batch_;
    PassKey key_;
    PlanFunction plan_;
};

}  // namespace cupola::inline CUPOLA_ABI
