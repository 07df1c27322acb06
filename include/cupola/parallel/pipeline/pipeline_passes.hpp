// SPDX-License-Identifier: Apache-2.0
//
// PipelinePasses: the batches of a step where the network is in parts (net/pipeline/split.hpp): each device of a group
// runs the passes of its parts in the order of the timetable, as soon as the values that they read are there.
//
// A batch enters a part from the memory of the part before, which keeps it until the gradient that leaves the part has
// been written there. So a value and its gradient are read and written by the device of the later part alone.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>

#include <cupola/core/fixed_array.hpp>
#include <cupola/net/pipeline/cut_info.hpp>
#include <cupola/net/plan.hpp>
#include <cupola/parallel/pipeline/part_workers.hpp>
#include <cupola/parallel/pipeline/pass_board.hpp>
#include <cupola/parallel/replicas/peers.hpp>
#include <cupola/parallel/replicas/replicas.hpp>
#include <cupola/parallel/step/batches.hpp>
#include <cupola/parallel/step/replica_losses.hpp>
#include <cupola/parallel/step/replica_passes.hpp>
#include <cupola/parallel/step/step_functions.hpp>
#include <cupola/parallel/step/step_trace.hpp>
#include <cupola/tensor/batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The passes of a step where the network is in parts,
/// for devices whose work is complete when it is queued. A "device" of a DeviceStep is a group.
template <class D, class T>
class PipelinePasses final : public JointPasses<D, T> {
    using Kernels = typename D::Kernels;
    using Step = DeviceStep<D, T>;
    using NetworkPlan = Plan<Kernels, T>;
    using Batches = TakenBatches<D, T>;
    using Workers = PartWorkers<Kernels, T>;

public:
    using BatchSource = typename Batches::BatchSource;

    /// All must outlive the object.
    [[gnu::cold]] PipelinePasses(const StepFunctions<D>& functions, Replicas<D, T>& replicas, Peers& peers,
                                 Batches& batches, ReplicaLosses<D, T>& losses, const StepTrace& trace);

    /// Runs the batches of all replicas of a group. An exception of one of its devices, after which the others leave
    /// the step, is the group's.
    bool queue(Step& step, BatchSource source) override {
        step.state.attempt([&] { run(step, source); });
        return true;
    }

private:
    /// A batch of the step, which the first part has taken: in the order in which one device would compute them.
    struct Batch {
        BatchPass<Kernels, T> pass;
        BatchView view;
        RngKey key;
        int replica = 0;
    };
    /// Of a batch in a part.
    struct InPart {
        /// Null if the batch has no samples.
        NetworkPlan* plan = nullptr;
        std::size_t slot = 0;
    };
    struct Group {
        explicit Group(std::size_t batch_count, const Workers& workers);
        std::size_t count;
        FixedArray<Batch> batches;
        /// Of part k and batch b: k * count + b.
        FixedArray<InPart> in_parts;
        /// The forward passes of the parts, and then the backward passes.
        PassBoard board;
        /// Of each part, which slots are free.
        FixedArray<FixedArray<bool>> free_slots;
    };

    /// Of the actions of one device; `parts` are the group's.
    struct Pass {
        Step& step;
        Workers& workers;
        Group& group;
        std::size_t part, batch;

        [[nodiscard]] InPart& here() const { return group.in_parts[part * group.count + batch]; }
        [[nodiscard]] InPart& before() const { return group.in_parts[(part - 1) * group.count + batch]; }
        [[nodiscard]] bool is_last() const { return part + 1 == workers.cut().parts(); }
        [[nodiscard]] Batch& of_step() const { return group.batches[batch]; }
        [[nodiscard]] typename Kernels::Context& context() const { return workers.context(part); }
    };
    [[nodiscard]] static Workers& workers_of(DeviceState<D, T>& group) { return static_cast<Workers&>(*group.parts); }
    void run(Step& step, BatchSource source);
    void run(Step& step, std::size_t device, BatchSource source);
    /// False if a device has failed.
    [[nodiscard]] static bool wait_for_input(const Pass& pass, PipelineWork work);
    void forward(const Pass& pass, BatchSource source);
    void backward(const Pass& pass);
    /// Fetches the batch, in a slot of the first part. Returns whether it begins with packing weights.
    bool take(const Pass& pass, BatchSource source);
    [[nodiscard]] PlanInputs inputs(const Pass& pass) const;

    [[nodiscard]] bool in_own_type(const Pass& pass) const { return !pass.is_last() || functions_.queues_own_type(); }
    void note(int device, const char* name) {
        if (trace_) trace_(device, name);
    }

    const StepFunctions<D>& functions_;
    Replicas<D, T>& replicas_;
    Batches& batches_;
    ReplicaLosses<D, T>& losses_;
    const StepTrace& trace_;
    FixedArray<std::unique_ptr<Group>> groups_;
};

template <class D, class T>
PipelinePasses<D, T>::Group::Group(std::size_t batch_count, const Workers& workers)
    : count(batch_count),
      batches(batch_count),
      in_parts(workers.cut().parts() * batch_count),
      board(2 * in_parts.size()),
      free_slots(workers.cut().parts()) {
    for (std::size_t k = 0; k < free_slots.size(); ++k) free_slots[k] = FixedArray<bool>(workers.slot_count(k));
}

template <class D, class T>
PipelinePasses<D, T>::PipelinePasses(const StepFunctions<D>& functions, Replicas<D, T>& replicas, Peers&,
                                     Batches& batches, ReplicaLosses<D, T>& losses, const StepTrace& trace)
    : functions_(functions),
      replicas_(replicas),
      batches_(batches),
      losses_(losses),
      trace_(trace),
      groups_(replicas.devices().size()) {
    for (std::size_t g = 0; g < groups_.size(); ++g) {
        const int here = replicas_.placement().replicas_of(static_cast<int>(g));
        groups_[g] = std::make_unique<Group>(static_cast<std::size_t>(here * functions_.gradient_accumulation_steps),
                                             workers_of(replicas_.at(static_cast<int>(g))));
    }
}

template <class D, class T>
void PipelinePasses<D, T>::run(Step& step, BatchSource source) {
    Workers& workers = workers_of(step.state);
    Group& group = *groups_[static_cast<std::size_t>(step.device)];
    group.board.clear();
    for (FixedArray<bool>& of_part : group.free_slots) {
        for (bool& free : of_part) free = true;
    }
    const int first = replicas_.placement().first_replica(step.device),
              replicas = replicas_.placement().replicas_of(step.device);
    for (std::size_t b = 0; b < group.count; ++b) {
        group.batches[b].pass = {};
        group.batches[b].replica = first + static_cast<int>(b) % replicas;
    }
    workers.change_with(step.state.worker.plans());
    workers.run([&](std::size_t device) { run(step, device, source); });
    group.board.rethrow();
    // Behind all passes, because the part that has the first element of a row may run backward for a later batch while
    // the first part runs for an earlier one. A NaN stays one, whatever is added.
    for (const Batch& batch : group.batches) {
        if (batch.pass.plan != nullptr) losses_.poison(step.device, batch.replica, batch.pass);
    }
}

template <class D, class T>
void PipelinePasses<D, T>::run(Step& step, std::size_t device, BatchSource source) {
    Workers& workers = workers_of(step.state);
    Group& group = *groups_[static_cast<std::size_t>(step.device)];
    const CutInfo& cut = workers.cut();
    const auto batches = static_cast<std::int64_t>(group.count);
    try {
        for (std::int64_t i = 0; i < cut.actions(device, cut.parts(), batches); ++i) {
            const PipelineAction action = cut.action(device, i, cut.parts(), batches);
            const Pass pass{step, workers, group, action.part, static_cast<std::size_t>(action.batch)};
            if (!wait_for_input(pass, action.work)) return;
            [[maybe_unused]] const auto team = pass.context().team();
            const std::size_t place = pass.part * group.count + pass.batch;
            if (action.work == PipelineWork::forward) {
                forward(pass, source);
                group.board.set_done(place);
            } else {
                backward(pass);
                group.board.set_done(group.in_parts.size() + place);
            }
        }
    } catch (...) {
        group.board.fail(std::current_exception());
    }
}

template <class D, class T>
bool PipelinePasses<D, T>::wait_for_input(const Pass& pass, PipelineWork work) {
    const std::size_t place = pass.part * pass.group.count + pass.batch, passes = pass.group.in_parts.size();
    if (work == PipelineWork::forward) return pass.part == 0 || pass.group.board.wait_for(place - pass.group.count);
    return pass.group.board.wait_for(pass.is_last() ? place : passes + place + pass.group.count);
}

template <class D, class T>
bool PipelinePasses<D, T>::take(const Pass& pass, BatchSource source) {
    Batch& batch = pass.of_step();
    const int replicas = replicas_.placement().replicas_of(pass.step.device);
    note(pass.step.device, "batch");
    batch.pass = batches_.take_with(
        pass.step, batch.replica, static_cast<int>(pass.batch) / replicas, source, [&](std::int64_t size) {
            return pass.workers.take(0, pass.here().slot, replicas_.settings().plan_options(size),
                                     replicas_.parameters(batch.replica));
        });
    pass.here().plan = batch.pass.plan;
    if (batch.pass.plan == nullptr) return false;
    batch.view = pass.workers.keep(pass.here().slot, batches_.of(batch.replica).batch);
    batch.key = batches_.of(batch.replica).key;
    return batch.pass.packs;
}

template <class D, class T>
PlanInputs PipelinePasses<D, T>::inputs(const Pass& pass) const {
    if (pass.part == 0) return pass.of_step().view;
    if constexpr (std::same_as<T, float>) {
        return pass.before().plan->own_output(0);
    } else {
        return static_cast<const float*>(nullptr);  // it has been converted
    }
}

template <class D, class T>
void PipelinePasses<D, T>::forward(const Pass& pass, BatchSource source) {
    Batch& batch = pass.of_step();
    InPart& here = pass.here();
    here = {};
    if (pass.part > 0 && batch.pass.plan == nullptr) return;
    // A timetable that can be run leaves one free.
    FixedArray<bool>& free = pass.group.free_slots[pass.part];
    while (!free[here.slot]) ++here.slot;
    const float* const parameters = replicas_.parameters(batch.replica);
    bool packs = false;
    if (pass.part == 0) {
        packs = take(pass, source);
        if (here.plan == nullptr) return;
    } else {
        const auto taken =
            pass.workers.take(pass.part, here.slot, replicas_.settings().plan_options(batch.view.size), parameters);
        here.plan = taken.plan;
        packs = taken.packs;
    }
    free[here.slot] = false;
    if (pass.part == 0) note(pass.step.device, "forward");
    auto& context = pass.context();
    const DeviceState<D, T>& of_group = pass.step.state;
    float* const running = pass.step.state.worker.buffers();
    if (packs) here.plan->prepare(context, parameters, running);
    if constexpr (!std::same_as<T, float>) {
        if (pass.part > 0) {
            const std::int64_t elements = batch.view.size * here.plan->nodes().front().input.size();
            Kernels::copy_between(context, here.plan->place_of_batch(), pass.before().plan->own_output(0),
                                  static_cast<std::size_t>(elements) * sizeof(T));
        }
    }
    const bool own_type = in_own_type(pass);
    const PassBuffers buffers{.running = running,
                              .batch = of_group.layout.statistics(pass.step.state.queue->status(), batch.pass.number),
                              .batch_is_converted = pass.part > 0 && !std::same_as<T, float>,
                              .keeps_outputs = own_type};
    static_cast<void>(here.plan->forward(context, inputs(pass), parameters, batch.key, buffers));
    if (!pass.is_last()) return;
    BatchPass<Kernels, T> of_losses = batch.pass;
    of_losses.plan = here.plan;
    losses_.queue(pass.step.device, context, of_losses, batch.view, own_type);
}

template <class D, class T>
void PipelinePasses<D, T>::backward(const Pass& pass) {
    Batch& batch = pass.of_step();
    const InPart here = pass.here();
    if (here.plan == nullptr) return;
    if (pass.part == 0) note(pass.step.device, "backward");
    auto& context = pass.context();
    const float* const parameters = replicas_.parameters(batch.replica);
    // A plan for fewer samples, or of another replica's parameters, may have run since.
    if (pass.workers
            .take(pass.part, here.slot, replicas_.settings().plan_options(here.plan->options().batch), parameters)
            .packs)
        here.plan->prepare(context, parameters, pass.step.state.worker.buffers());
    here.plan->backward(context, inputs(pass), parameters, replicas_.gradients().row(batch.replica), batch.key,
                        batch.pass.accumulates, {}, in_own_type(pass));
    if (pass.part > 0 && here.plan->options().input_gradient) {
        const std::int64_t elements = batch.view.size * here.plan->nodes().front().input.size();
        Kernels::copy_between(context, pass.before().plan->own_output_gradient(0), here.plan->own_input_gradient(),
                              static_cast<std::size_t>(elements) * sizeof(T));
    }
    pass.group.free_slots[pass.part][here.slot] = true;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
