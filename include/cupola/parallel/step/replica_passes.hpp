// SPDX-License-Identifier: Apache-2.0
//
// ReplicaPasses: queues the batches of a step on every device: they are taken (TakenBatches) and run forward, through
// the loss (ReplicaLosses) and backward, one replica after another, and the gradients are added up in the replicas'
// rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>

#include <cupola/core/function_ref.hpp>
#include <cupola/device/queue.hpp>
#include <cupola/net/plan.hpp>
#include <cupola/parallel/replicas/peers.hpp>
#include <cupola/parallel/replicas/replicas.hpp>
#include <cupola/parallel/replicas/sample_counts.hpp>
#include <cupola/parallel/step/batches.hpp>
#include <cupola/parallel/step/replica_losses.hpp>
#include <cupola/parallel/step/step_functions.hpp>
#include <cupola/tensor/batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// What a device's queue has recorded of a step: in step/step_recordings.hpp for a queue that repeats work.
template <class Recording>
class StepRecordings;

/// A queue that repeats nothing has nothing to keep.
template <class Recording>
    requires std::is_empty_v<Recording>
class StepRecordings<Recording> {
public:
    explicit StepRecordings(int) {}

    template <class Visit>
    void for_each(int, Visit&&) const {}
};

/// The passes of a step that are not those of one batch after another: where the replicas of all devices run in step
/// (SynchronizedPasses), and where the network is in parts (PipelinePasses).
template <class D, class T>
class JointPasses {
public:
    JointPasses() = default;
    JointPasses(const JointPasses&) = delete;
    JointPasses& operator=(const JointPasses&) = delete;
    virtual ~JointPasses() = default;
    /// Queues all batches of the device's replicas. Returns false if a device with which it runs has failed.
    virtual bool queue(DeviceStep<D, T>& step, typename TakenBatches<D, T>::BatchSource source) = 0;
};

/// Members with a DeviceStep are called by that device's thread.
template <class D, class T>
class ReplicaPasses {
    using Kernels = typename D::Kernels;
    using Step = DeviceStep<D, T>;
    using State = DeviceState<D, T>;
    using NetworkPlan = Plan<Kernels, T>;
    using Batches = TakenBatches<D, T>;
    using BatchPass = impl::BatchPass<Kernels, T>;

public:
    [[gnu::cold]] ~ReplicaPasses();
    using BatchSource = typename Batches::BatchSource;

    /// Where the agreement takes buckets, the device's last backward of a step marks each of them in the queue, and the
    /// rows are not completed.
    [[gnu::cold]] ReplicaPasses(const StepFunctions<D>& functions, Replicas<D, T>& replicas, Peers& peers,
                                SampleCounts& counts);

    /// From now on batches are run by a JointPasses, which is made of the parts of a pass.
    template <class Joint>
    [[gnu::cold]] void run_jointly() {
        joint_ = std::make_unique<Joint>(functions_, replicas_, peers_, batches_, losses_, trace_);
    }

    /// Queues the batches of all replicas of a device. An exception of a replica is stored in the device's state, and
    /// the rest of the device's work is left out. Returns false if the replicas run in step and another device has
    /// failed.
    bool queue(Step& step, BatchSource source);

    /// Queues the batches of one replica of the device alone, with the samples of step.samples_of. Throws their
    /// exception.
    void queue_replica(Step& step, int replica, BatchSource source);

    /// The factor that makes a replica's row the gradient of its mean loss: each of several batches is weighted as a
    /// part of full batches.
    [[nodiscard]] double completion(std::int64_t step, int replica) const;

    /// The batches that were taken last.
    [[nodiscard]] Batches& batches() { return batches_; }

    /// Calls visit(recording) for each recording of a device.
    template <class Visit>
    void for_each_recording(int device, Visit&& visit) const {
        recordings_.for_each(device, visit);
    }
    void trace(StepTrace trace) { trace_ = trace; }

private:
    void note(int device, const char* name) {
        if (trace_) trace_(device, name);
    }
    void queue_batch(Step& step, int replica, int part, BatchSource source);
    /// Inside queued work: the pass of a batch. `marks`: whether it marks the buckets.
    void run(int device, int replica, const BatchPass& pass, const BatchView& batch, const RngKey& key, bool marks);
    /// Queues, for each replica of the device, the scaling of a gradient whose batches were smaller than the full
    /// batches that they were weighted as parts of.
    void complete(Step& step);
    void complete(Step& step, int replica);

    const StepFunctions<D>& functions_;
    Replicas<D, T>& replicas_;
    Peers& peers_;
    const SampleCounts& counts_;
    StepTrace trace_{};
    Batches batches_;
    ReplicaLosses<D, T> losses_;
    StepRecordings<typename D::Queue::Recording> recordings_;
    /// Null where each replica runs alone.
    std::unique_ptr<JointPasses<D, T>> joint_;
};

template <class D, class T>
ReplicaPasses<D, T>::~ReplicaPasses() = default;

template <class D, class T>
ReplicaPasses<D, T>::ReplicaPasses(const StepFunctions<D>& functions, Replicas<D, T>& replicas, Peers& peers,
                                   SampleCounts& counts)
    : functions_(functions),
      replicas_(replicas),
      peers_(peers),
      counts_(counts),
      batches_(functions, replicas),
      losses_(functions, replicas),
      recordings_(replicas.placement().device_count()) {}

template <class D, class T>
bool ReplicaPasses<D, T>::queue(Step& step, BatchSource source) {
    if (joint_ != nullptr) {
        if (!joint_->queue(step, source)) return false;
    } else {
        for (int part = 0; part < functions_.gradient_accumulation_steps; ++part)
            batches_.for_each_replica(step, [&](int replica) { queue_batch(step, replica, part, source); });
    }
    if (!replicas_.settings().takes_buckets) complete(step);
    return true;
}

template <class D, class T>
void ReplicaPasses<D, T>::complete(Step& step) {
    batches_.for_each_replica(step, [&](int replica) { complete(step, replica); });
}

template <class D, class T>
void ReplicaPasses<D, T>::complete(Step& step, int replica) {
    const double factor = completion(step.step, step.samples_for(replica));
    if (factor == 1) return;
    const std::span<float> row(replicas_.gradients().row(replica), replicas_.elements());
    step.state.queue->queue(
        [this, device = step.device, row, factor] { scale(replicas_.context(device), row, factor); });
}

template <class D, class T>
void ReplicaPasses<D, T>::queue_replica(Step& step, int replica, BatchSource source) {
    for (int part = 0; part < functions_.gradient_accumulation_steps; ++part) queue_batch(step, replica, part, source);
    complete(step, replica);
}

template <class D, class T>
double ReplicaPasses<D, T>::completion(std::int64_t step, int replica) const {
    const std::int64_t samples = counts_.of_replica(step, replica),
                       expected = functions_.batch_size * functions_.gradient_accumulation_steps;
    if (functions_.gradient_accumulation_steps == 1 || samples == 0) return 1;
    return static_cast<double>(expected) / static_cast<double>(samples);
}

template <class D, class T>
void ReplicaPasses<D, T>::queue_batch(Step& step, int replica, int part, BatchSource source) {
    note(step.device, "batch");
    const BatchPass pass = batches_.take(step, replica, part, source);
    if (pass.plan == nullptr) return;
    note(step.device, "forward");
    note(step.device, "loss");
    note(step.device, "backward");
    const bool marks = replicas_.settings().takes_buckets && pass.last;
    if (marks) step.marked = true;
    const auto work = [this, pass, marks, batch = batches_.of(replica).batch, key = batches_.of(replica).key,
                       device = step.device, replica] { run(device, replica, pass, batch, key, marks); };
    if constexpr (repeats_work<D>)
        step.state.queue->queue(recordings_.of(step.device, pass.number, pass.plan,
                                               static_cast<int>(pass.packs) + 3 * (pass.accumulates ? 1 : 0)),
                                true, work);
    else
        step.state.queue->queue(work);
}

template <class D, class T>
void ReplicaPasses<D, T>::run(int device, int replica, const BatchPass& pass, const BatchView& batch, const RngKey& key,
                              bool marks) {
    State& here = replicas_.at(device);
    auto& context = here.context();
    const float* const parameters = replicas_.parameters(replica);
    pass.plan->prepare(context, parameters, here.worker.buffers(), nullptr, pass.packs);
    const bool own_type = functions_.queues_own_type();
    const PassBuffers buffers{.running = here.worker.buffers(),
                              .batch = here.layout.statistics(here.queue->status(), pass.number),
                              .batch_is_converted = pass.converted,
                              .keeps_outputs = own_type};
    static_cast<void>(pass.plan->forward(context, batch, parameters, key, buffers));
    losses_.queue(device, context, pass, batch, own_type);
    // The last bucket is sent together with the weight of the device's samples.
    if (marks && replicas_.settings().weighted) here.weigh(replicas_.settings().constant_loss_scale());
    const std::size_t buckets = pass.plan->buckets().size();
    const auto ready = [&](std::size_t k) {
        if (k + 1 < buckets) here.queue->mark_bucket(k);
    };
    using BucketReady = typename NetworkPlan::BucketReady;
    pass.plan->backward(context, batch, parameters, replicas_.gradients().row(replica), key, pass.accumulates,
                        marks ? BucketReady(ready) : BucketReady(), own_type);
    // Element 0 is in the last bucket, so a loss that is not finite is sent with that bucket.
    losses_.poison(device, replica, pass);
    if (marks) here.queue->mark_bucket(buckets - 1);
}

}}}  // namespace cupola::CUPOLA_ABI::impl
