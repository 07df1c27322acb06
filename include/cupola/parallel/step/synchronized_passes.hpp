// SPDX-License-Identifier: Apache-2.0
//
// SynchronizedPasses: the batches of a step where the replicas of all devices run in step: they stop wherever the
// network merges statistics of the whole global batch.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cupola/core/fixed_array.hpp>
#include <cupola/core/function_ref.hpp>
#include <cupola/net/plan.hpp>
#include <cupola/net/segment_passes.hpp>
#include <cupola/parallel/replicas/peers.hpp>
#include <cupola/parallel/replicas/replicas.hpp>
#include <cupola/parallel/step/batches.hpp>
#include <cupola/parallel/step/replica_losses.hpp>
#include <cupola/parallel/step/replica_passes.hpp>
#include <cupola/parallel/step/step_functions.hpp>
#include <cupola/parallel/step/sync_batch_norm_group.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Members with a DeviceStep are called on every device's thread.
template <class D, class T>
class SynchronizedPasses final : public JointPasses<D, T> {
    using Kernels = typename D::Kernels;
    using Step = DeviceStep<D, T>;
    using NetworkPlan = Plan<Kernels, T>;
    using Batches = TakenBatches<D, T>;

public:
    using BatchSource = typename Batches::BatchSource;

    /// All must outlive the object.
    [[gnu::cold]] SynchronizedPasses(const StepFunctions<D>& functions, Replicas<D, T>& replicas, Peers& peers,
                                     Batches& batches, ReplicaLosses<D, T>& losses, const StepTrace& trace);

    bool queue(Step& step, BatchSource source) override {
        for (int part = 0; part < functions_.gradient_accumulation_steps; ++part)
            if (!queue(step, part, source)) return false;
        return true;
    }

private:
    /// Batch number `part` of each of the device's replicas.
    bool queue(Step& step, int part, BatchSource source);
    void take(Step& step, int part, BatchSource source);
    /// All-reduces the replicas' sums on all devices: each device merges them for itself. Returns false if one failed.
    bool all_reduce(Step& step, Direction direction, std::size_t k, std::size_t turn, const double*& merged);
    /// Calls visit(replica, plan, pass, batch) for the replicas of the device that have samples.
    template <class Visit>
    void for_each_plan(Step& step, Visit&& visit) {
        batches_.for_each_replica(step, [&](int replica) {
            NetworkPlan* const plan = group_.plan(replica);
            if (plan == nullptr) return;
            visit(replica, *plan, passes_[static_cast<std::size_t>(replica)], batches_.of(replica));
        });
    }
    void note(int device, const char* name) {
        if (trace_) trace_(device, name);
    }

    const StepFunctions<D>& functions_;
    Replicas<D, T>& replicas_;
    Peers& peers_;
    Batches& batches_;
    ReplicaLosses<D, T>& losses_;
    const StepTrace& trace_;
    SyncBatchNormGroup<Kernels, T> group_;
    FixedArray<BatchPass<Kernels, T>> passes_;
    /// Pooled sums of the replicas, per device.
    FixedArray<FixedArray<double>> merged_;
};

template <class D, class T>
SynchronizedPasses<D, T>::SynchronizedPasses(const StepFunctions<D>& functions, Replicas<D, T>& replicas, Peers& peers,
                                             Batches& batches, ReplicaLosses<D, T>& losses, const StepTrace& trace)
    : functions_(functions), replicas_(replicas), peers_(peers), batches_(batches), losses_(losses), trace_(trace) {
    const ReplicaPlacement& placement = replicas_.placement();
    group_.make(placement.replicas(), replicas_.at(0).worker.plans().first());
    passes_ = FixedArray<BatchPass<Kernels, T>>(static_cast<std::size_t>(placement.replicas()));
    merged_ = FixedArray<FixedArray<double>>(static_cast<std::size_t>(placement.device_count()));
    for (auto& merged : merged_) merged = FixedArray<double>(group_.largest());
}

template <class D, class T>
void SynchronizedPasses<D, T>::take(Step& step, int part, BatchSource source) {
    const int first = replicas_.placement().first_replica(step.device);
    for (int replica = first; replica < replicas_.placement().first_replica(step.device + 1); ++replica)
        group_.plan(replica) = nullptr;
    batches_.for_each_replica(step, [&](int replica) {
        BatchPass<Kernels, T>& pass = passes_[static_cast<std::size_t>(replica)];
        note(step.device, "batch");
        pass = batches_.take(step, replica, part, source, static_cast<std::size_t>(replica - first));
        auto& worker = step.state.worker;
        if (pass.plan != nullptr)
            pass.plan->prepare(worker.context(), replicas_.parameters(replica), worker.buffers(), nullptr, pass.packs);
        group_.plan(replica) = pass.plan;
    });
}

template <class D, class T>
bool SynchronizedPasses<D, T>::queue(Step& step, int part, BatchSource source) {
    const int device = step.device;
    auto& context = step.state.context();
    const std::size_t all_reduces = group_.all_reduces();
    take(step, part, source);
    note(device, "forward");
    const double* merged = nullptr;
    for (std::size_t k = 0; k <= all_reduces; ++k) {
        for_each_plan(step, [&](int replica, NetworkPlan& plan, const auto& pass, const TakenBatch& batch) {
            const PassBuffers buffers{.running = step.state.worker.buffers(),
                                      .batch = step.state.layout.statistics(step.state.queue->status(), pass.number)};
            static_cast<void>(plan.forward_segment(context, k, batch.batch, replicas_.parameters(replica), batch.key,
                                                   buffers, merged, group_.partial(k, replica)));
            if (k == all_reduces) losses_.queue(device, context, pass, batch.batch);
        });
        if (k < all_reduces && !all_reduce(step, Direction::forward, k, k, merged)) return false;
    }
    note(device, "loss");
    note(device, "backward");
    for (std::size_t k = 0; k <= all_reduces; ++k) {
        for_each_plan(step, [&](int replica, NetworkPlan& plan, const auto& pass, const TakenBatch& batch) {
            plan.backward_segment(context, k, batch.batch, replicas_.parameters(replica),
                                  replicas_.gradients().row(replica), batch.key, pass.accumulates, merged,
                                  group_.partial(all_reduces + k, replica));
            if (k == all_reduces) losses_.poison(device, replica, pass);
        });
        if (k < all_reduces && !all_reduce(step, Direction::backward, k, all_reduces + k, merged)) return false;
    }
    return true;
}

template <class D, class T>
bool SynchronizedPasses<D, T>::all_reduce(Step& step, Direction direction, std::size_t k, std::size_t turn,
                                          const double*& merged) {
    const int first = replicas_.placement().first_replica(step.device),
              last = replicas_.placement().first_replica(step.device + 1);
    for (int replica = first; replica < last; ++replica) group_.contribute(turn, replica, !step.state.error);
    bool all_here = replicas_.arrive_and_wait(step.device);
    if (peers_.exchanges_sums()) {
        // A process that has failed takes part too, so that the others leave the step with it.
        if (step.device == 0) {
            step.state.attempt_always([&] {
                peers_.exchange_sums(step.step, replicas_.first_error(), group_.sums(turn), group_.largest(),
                                     group_.contributions(turn));
            });
        }
        all_here = replicas_.arrive_and_wait(step.device);
    }
    if (!all_here) return false;
    FixedArray<double>& sums = merged_[static_cast<std::size_t>(step.device)];
    step.state.attempt([&] { group_.merge(direction, k, turn, first, last, sums); });
    merged = sums.data();
    return true;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
