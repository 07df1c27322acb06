// SPDX-License-Identifier: Apache-2.0
//
// PipelinePasses: the batches of a step where the network is in parts (net/pipeline/split.hpp): each device of a group
// runs the passes of its parts in the order of the timetable, as soon as the values that they read are there.
//
// A batch enters a part from the memory of the part before, which keeps it until the gradient that leaves the part has
// been written there. So a value and its gradient are read and written by the device of the later part alone.
//
// Devices with memory of their own (PartCopies) copy the value, and the gradient, on streams of their own; each thread
// waits until what its device needs has been queued, and the device until it is there. Parameters and gradients of a
// part are in the memory of its device; after a step the reports and statistics are copied to the first device, where
// the update is. The work of such a step is queued anew each time.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>

#include <cupola/core/fixed_array.hpp>
#include <cupola/net/pipeline/cut_info.hpp>
#include <cupola/net/plan.hpp>
#include <cupola/parallel/pipeline/make_part_workers.hpp>
#include <cupola/parallel/pipeline/part_columns.hpp>
#include <cupola/parallel/pipeline/part_copies.hpp>
#include <cupola/parallel/pipeline/part_workers.hpp>
#include <cupola/parallel/pipeline/pass_board.hpp>
#include <cupola/parallel/replicas/peers.hpp>
#include <cupola/parallel/replicas/replica_placement.hpp>
#include <cupola/parallel/replicas/replicas.hpp>
#include <cupola/parallel/replicas/status.hpp>
#include <cupola/parallel/step/batches.hpp>
#include <cupola/parallel/step/replica_losses.hpp>
#include <cupola/parallel/step/replica_passes.hpp>
#include <cupola/parallel/step/step_functions.hpp>
#include <cupola/tensor/batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The passes of a step where the network is in parts. A "device" of a DeviceStep is a group.
template <class D, class T>
class PipelinePasses final : public JointPasses<D, T> {
    using Kernels = typename D::Kernels;
    using Step = DeviceStep<D, T>;
    using NetworkPlan = Plan<Kernels, T>;
    using Batches = TakenBatches<D, T>;
    using Workers = PartWorkers<Kernels, T>;
    using Copies = PartCopies<Kernels>;
    using Mark = typename Copies::Mark;

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

        // Where values are copied.

        /// The ends of the passes, as on the board: of a backward pass after the copy of the gradient.
        FixedArray<Mark> marks;
        /// Of each part and slot, the end of the last batch of the step that had it; null if there was none.
        FixedArray<FixedArray<const Mark*>> freed;
        /// The beginning of the step on the first device, and of each device the end of its part of the step.
        Mark begun;
        FixedArray<Mark> ended;
        /// Of each device: what has arrived, and what has left.
        FixedArray<Mark> arrived, left;
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
        [[nodiscard]] std::size_t device() const { return workers.device_of(part); }
        /// That of the device of the part; null if it is the first one.
        [[nodiscard]] PartMemory<Kernels>* memory() const { return workers.memory(device()); }
        [[nodiscard]] std::size_t place() const { return part * group.count + batch; }
        [[nodiscard]] Mark& forward_mark() const { return group.marks[place()]; }
        [[nodiscard]] Mark& backward_mark() const { return group.marks[group.in_parts.size() + place()]; }
        /// The elements of the value that enters the part.
        [[nodiscard]] std::size_t input_elements() const {
            return static_cast<std::size_t>(of_step().view.size * here().plan->nodes().front().input.size());
        }
    };
    [[nodiscard]] static Workers& workers_of(DeviceState<D, T>& group) { return static_cast<Workers&>(*group.parts); }
    void run(Step& step, BatchSource source);
    void run(Step& step, std::size_t device, BatchSource source);

    // Where values are copied, on the thread of the device.

    /// Copies the status from the first device.
    void begin(Step& step, std::size_t device);
    /// Copies the reports and statistics to the first device.
    void give_back(Step& step, std::size_t device);
    /// The first device continues when the others are done with the step, which may have failed.
    void join(Step& step);
    /// The lanes wait until the work of the batch that had the slot before is complete.
    void wait_for_slot(const Pass& pass);
    /// Copies what the pass of the part needs of the batch.
    void receive(const Pass& pass);
    /// Copies the gradient of the batch to the device of the part before.
    void send_gradient(const Pass& pass);
    /// Queues the work of a pass.
    template <class Work>
    void queue_work(const Pass& pass, Work&& work);
    /// False if a device has failed.
    [[nodiscard]] static bool wait_for_input(const Pass& pass, PipelineWork work);
    void forward(const Pass& pass, BatchSource source);
    void backward(const Pass& pass);
    /// Fetches the batch, in a slot of the first part. Returns which weights it begins with packing.
    Packing take(const Pass& pass, BatchSource source);
    [[nodiscard]] PlanInputs inputs(const Pass& pass) const;
    [[nodiscard]] const float* parameters(const Pass& pass) { return replicas_.parameters(pass.of_step().replica); }
    [[nodiscard]] float* row(const Pass& pass) { return replicas_.gradients().row(pass.of_step().replica); }
    [[nodiscard]] static float* running(const Pass& pass) { return pass.step.state.worker.buffers(); }
    [[nodiscard]] std::byte* status(const Pass& pass) {
        return pass.memory() == nullptr ? pass.step.state.queue->status() : pass.memory()->status();
    }
    /// The batch in the memory of the last part's device.
    [[nodiscard]] BatchView targets(const Pass& pass) {
        const BatchView& batch = pass.of_step().view;
        return pass.memory() == nullptr ? batch : pass.workers.batch_in_last(pass.here().slot).view(batch.size);
    }

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
      free_slots(workers.cut().parts()),
      marks(Copies::needed ? 2 * in_parts.size() : 0),
      freed(workers.cut().parts()),
      ended(workers.cut().devices),
      arrived(workers.cut().devices),
      left(workers.cut().devices) {
    for (std::size_t k = 0; k < free_slots.size(); ++k) {
        free_slots[k] = FixedArray<bool>(workers.slot_count(k));
        freed[k] = FixedArray<const Mark*>(workers.slot_count(k));
    }
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
    for (FixedArray<const Mark*>& of_part : group.freed) {
        for (const Mark*& mark : of_part) mark = nullptr;
    }
    const int first = replicas_.placement().first_replica(step.device),
              replicas = replicas_.placement().replicas_of(step.device);
    for (std::size_t b = 0; b < group.count; ++b) {
        group.batches[b].pass = {};
        group.batches[b].replica = first + static_cast<int>(b) % replicas;
    }
    workers.change_with(step.state.worker.plans());
    if constexpr (Copies::needed) workers.copies(workers.first_device()).record(Copies::Lane::work, group.begun);
    workers.run([&](std::size_t device) { run(step, device, source); });
    if constexpr (Copies::needed) join(step);
    group.board.rethrow();
    // After all passes, because the part that has the first element of a row may run backward for a later batch while
    // the first part runs for an earlier one. A NaN stays one, whatever is added.
    step.state.queue->queue([&] {
        for (const Batch& batch : group.batches) {
            if (batch.pass.plan != nullptr) losses_.poison(step.device, batch.replica, batch.pass);
        }
    });
}

template <class D, class T>
void PipelinePasses<D, T>::run(Step& step, std::size_t device, BatchSource source) {
    Workers& workers = workers_of(step.state);
    Group& group = *groups_[static_cast<std::size_t>(step.device)];
    const CutInfo& cut = workers.cut();
    const auto batches = static_cast<std::int64_t>(group.count);
    try {
        if constexpr (Copies::needed) begin(step, device);
        for (std::int64_t i = 0; i < cut.actions(device, cut.parts(), batches); ++i) {
            const PipelineAction action = cut.action(device, i, cut.parts(), batches);
            const Pass pass{step, workers, group, action.part, static_cast<std::size_t>(action.batch)};
            if (!wait_for_input(pass, action.work)) return;
            [[maybe_unused]] const auto team = pass.context().team();
            if (action.work == PipelineWork::forward) {
                forward(pass, source);
                group.board.set_done(pass.place());
            } else {
                backward(pass);
                group.board.set_done(group.in_parts.size() + pass.place());
            }
        }
        if constexpr (Copies::needed) give_back(step, device);
    } catch (...) {
        group.board.fail(std::current_exception());
    }
}

template <class D, class T>
bool PipelinePasses<D, T>::wait_for_input(const Pass& pass, PipelineWork work) {
    const std::size_t place = pass.place(), passes = pass.group.in_parts.size();
    if (work == PipelineWork::forward) return pass.part == 0 || pass.group.board.wait_for(place - pass.group.count);
    return pass.group.board.wait_for(pass.is_last() ? place : passes + place + pass.group.count);
}

template <class D, class T>
Packing PipelinePasses<D, T>::take(const Pass& pass, BatchSource source) {
    Batch& batch = pass.of_step();
    const int replicas = replicas_.placement().replicas_of(pass.step.device);
    note(pass.step.device, "batch");
    batch.pass = batches_.take_with(
        pass.step, batch.replica, static_cast<int>(pass.batch) / replicas, source, [&](std::int64_t size) {
            return pass.workers.take(0, pass.here().slot, replicas_.settings().plan_options(size),
                                     replicas_.parameters(batch.replica));
        });
    pass.here().plan = batch.pass.plan;
    if (batch.pass.plan == nullptr) return Packing::none;
    batch.view = pass.workers.keep(pass.here().slot, batches_.of(batch.replica).batch);
    batch.key = batches_.of(batch.replica).key;
    return batch.pass.packs;
}

template <class D, class T>
PlanInputs PipelinePasses<D, T>::inputs(const Pass& pass) const {
    if (pass.part == 0) return pass.of_step().view;
    if constexpr (std::same_as<T, float>) {
        if (pass.workers.copies_behind(pass.part - 1)) return pass.workers.received(pass.part, pass.here().slot);
        return pass.before().plan->own_output(0);
    } else {
        return static_cast<const float*>(nullptr);  // it has been converted
    }
}

template <class D, class T>
template <class Work>
void PipelinePasses<D, T>::queue_work(const Pass& pass, Work&& work) {
    if constexpr (Copies::needed) {
        const Copies& copies = pass.workers.copies(pass.device());
        if (pass.memory() != nullptr) return copies.queue(work);
        pass.step.state.queue->queue([&] { copies.queue(work); });
    } else {
        work();
    }
}

template <class D, class T>
void PipelinePasses<D, T>::begin(Step& step, std::size_t device) {
    Workers& workers = workers_of(step.state);
    PartMemory<Kernels>* const own = workers.memory(device);
    const Copies& copies = workers.copies(device);
    const Mark& begun = groups_[static_cast<std::size_t>(step.device)]->begun;
    copies.wait_for(Copies::Lane::arriving, begun);
    copies.wait_for(Copies::Lane::leaving, begun);
    if (own == nullptr) return;
    copies.wait_for(Copies::Lane::work, begun);
    copies.copy(Copies::Lane::work, own->status(), step.state.queue->status(), sizeof(StepStatus));
}

template <class D, class T>
void PipelinePasses<D, T>::give_back(Step& step, std::size_t device) {
    Workers& workers = workers_of(step.state);
    PartMemory<Kernels>* const own = workers.memory(device);
    if (own == nullptr) return;
    const Group& group = *groups_[static_cast<std::size_t>(step.device)];
    const Copies& copies = workers.copies(device);
    const auto copy = [&](auto* to, const auto* from, std::int64_t first, std::int64_t count) {
        copies.copy(Copies::Lane::work, to + first, from + first, static_cast<std::size_t>(count) * sizeof(*to));
    };
    const StatusLayout& layout = step.state.layout;
    std::byte *const to = step.state.queue->status(), *const from = own->status();
    const bool has_losses = workers.device_of(workers.cut().parts() - 1) == device;
    for (const Batch& batch : group.batches) {
        if (batch.pass.plan == nullptr) continue;
        const std::size_t number = batch.pass.number;
        for (std::size_t k = 0; k < workers.cut().parts(); ++k) {
            const ElementRange& buffers = workers.buffers_of(k);
            if (workers.device_of(k) == device)
                copy(layout.statistics(to, number), layout.statistics(from, number), buffers.begin, buffers.size());
        }
        if (!has_losses) continue;
        copy(layout.report(to, number), layout.report(from, number), 0, 1);
        copy(layout.reports_of_losses(to, number), layout.reports_of_losses(from, number), 0,
             static_cast<std::int64_t>(replicas_.settings().losses));
        if (replicas_.settings().reads_ids()) copy(layout.bad_id(to, number), layout.bad_id(from, number), 0, 1);
    }
}

template <class D, class T>
void PipelinePasses<D, T>::join(Step& step) {
    Workers& workers = workers_of(step.state);
    Group& group = *groups_[static_cast<std::size_t>(step.device)];
    // Also after a step that has failed: the next one writes to what may still be copied.
    workers.run([&](std::size_t device) {
        try {
            const Copies& copies = workers.copies(device);
            copies.record(Copies::Lane::arriving, group.arrived[device]);
            copies.record(Copies::Lane::leaving, group.left[device]);
            copies.wait_for(Copies::Lane::work, group.arrived[device]);
            copies.wait_for(Copies::Lane::work, group.left[device]);
            if (device != workers.first_device()) copies.record(Copies::Lane::work, group.ended[device]);
        } catch (...) {
            group.board.fail(std::current_exception());
        }
    });
    for (std::size_t device = 0; device < group.ended.size(); ++device) {
        if (device != workers.first_device())
            workers.copies(workers.first_device()).wait_for(Copies::Lane::work, group.ended[device]);
    }
}

template <class D, class T>
void PipelinePasses<D, T>::wait_for_slot(const Pass& pass) {
    const Mark* const freed = pass.group.freed[pass.part][pass.here().slot];
    if (freed == nullptr) return;
    const Copies& copies = pass.workers.copies(pass.device());
    copies.wait_for(Copies::Lane::arriving, *freed);
    copies.wait_for(Copies::Lane::work, *freed);
}

template <class D, class T>
void PipelinePasses<D, T>::receive(const Pass& pass) {
    const Copies& copies = pass.workers.copies(pass.device());
    const BatchView& batch = pass.of_step().view;
    copies.wait_for(Copies::Lane::arriving,
                    Pass{pass.step, pass.workers, pass.group, pass.part - 1, pass.batch}.forward_mark());
    if (pass.workers.copies_behind(pass.part - 1)) {
        T* const to = [&]() -> T* {
            if constexpr (std::same_as<T, float>) {
                return pass.workers.received(pass.part, pass.here().slot);
            } else {
                return pass.here().plan->place_of_batch();
            }
        }();
        copies.copy(Copies::Lane::arriving, to, pass.before().plan->own_output(0), pass.input_elements() * sizeof(T));
    }
    if (pass.is_last() && pass.memory() != nullptr) {
        const BatchSpan to = pass.workers.batch_in_last(pass.here().slot);
        for (std::size_t i = 0; i < to.columns().size(); ++i) {
            const ColumnSpec& column = to.columns()[i];
            copies.copy(Copies::Lane::arriving, to.data(i), batch.data_of(column.name, column.type),
                        static_cast<std::size_t>(batch.size) * column.bytes());
        }
    }
    Mark& arrived = pass.group.arrived[pass.device()];
    copies.record(Copies::Lane::arriving, arrived);
    copies.wait_for(Copies::Lane::work, arrived);
}

template <class D, class T>
void PipelinePasses<D, T>::send_gradient(const Pass& pass) {
    const Copies& copies = pass.workers.copies(pass.device());
    copies.record(Copies::Lane::work, pass.backward_mark());
    if (pass.part > 0 && pass.here().plan->options().input_gradient && pass.workers.copies_behind(pass.part - 1)) {
        copies.wait_for(Copies::Lane::leaving, pass.backward_mark());
        copies.copy(Copies::Lane::leaving, pass.before().plan->own_output_gradient(0),
                    pass.here().plan->own_input_gradient(), pass.input_elements() * sizeof(T));
        copies.record(Copies::Lane::leaving, pass.backward_mark());
    }
    pass.group.freed[pass.part][pass.here().slot] = &pass.backward_mark();
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
    if constexpr (Copies::needed) wait_for_slot(pass);
    const float* const values = parameters(pass);
    Packing packs = Packing::none;
    if (pass.part == 0) {
        packs = take(pass, source);
        if (here.plan == nullptr) return;
    } else {
        const auto taken =
            pass.workers.take(pass.part, here.slot, replicas_.settings().plan_options(batch.view.size), values);
        here.plan = taken.plan;
        packs = taken.packs;
        if constexpr (Copies::needed) receive(pass);
    }
    free[here.slot] = false;
    if (pass.part == 0) note(pass.step.device, "forward");
    const bool own_type = in_own_type(pass);
    queue_work(pass, [&] {
        auto& context = pass.context();
        here.plan->prepare(context, values, running(pass), nullptr, packs);
        if constexpr (!std::same_as<T, float>) {
            if (pass.part > 0 && !pass.workers.copies_behind(pass.part - 1)) {
                Kernels::copy_between(context, here.plan->place_of_batch(), pass.before().plan->own_output(0),
                                      pass.input_elements() * sizeof(T));
            }
        }
        const PassBuffers buffers{.running = running(pass),
                                  .batch = pass.step.state.layout.statistics(status(pass), batch.pass.number),
                                  .batch_is_converted = pass.part > 0 ? !std::same_as<T, float> : batch.pass.converted,
                                  .keeps_outputs = own_type};
        static_cast<void>(here.plan->forward(context, inputs(pass), values, batch.key, buffers));
        if (!pass.is_last()) return;
        BatchPass<Kernels, T> of_losses = batch.pass;
        of_losses.plan = here.plan;
        std::byte* const block = status(pass);
        if (replicas_.settings().reads_ids() && block != pass.step.state.queue->status())
            Copies::write(context, pass.step.state.layout.bad_id(block, of_losses.number), no_bad_id);
        losses_.queue(pass.step.device, context, of_losses, targets(pass), own_type, block);
    });
    if constexpr (Copies::needed) pass.workers.copies(pass.device()).record(Copies::Lane::work, pass.forward_mark());
}

template <class D, class T>
void PipelinePasses<D, T>::backward(const Pass& pass) {
    Batch& batch = pass.of_step();
    const InPart here = pass.here();
    if (here.plan == nullptr) return;
    if (pass.part == 0) note(pass.step.device, "backward");
    const float* const values = parameters(pass);
    // A plan for fewer samples, or of another replica's parameters, may have run since.
    const Packing packs =
        pass.workers.take(pass.part, here.slot, replicas_.settings().plan_options(here.plan->options().batch), values)
            .packs;
    if constexpr (Copies::needed) {
        if (!pass.is_last()) {
            const Pass behind{pass.step, pass.workers, pass.group, pass.part + 1, pass.batch};
            pass.workers.copies(pass.device()).wait_for(Copies::Lane::work, behind.backward_mark());
        }
    }
    queue_work(pass, [&] {
        auto& context = pass.context();
        here.plan->prepare(context, values, running(pass), nullptr, packs);
        here.plan->backward(context, inputs(pass), values, row(pass), batch.key, batch.pass.accumulates, {},
                            in_own_type(pass));
        if (pass.part > 0 && here.plan->options().input_gradient && !pass.workers.copies_behind(pass.part - 1)) {
            Kernels::copy_between(context, pass.before().plan->own_output_gradient(0), here.plan->own_input_gradient(),
                                  pass.input_elements() * sizeof(T));
        }
    });
    if constexpr (Copies::needed) send_gradient(pass);
    pass.group.free_slots[pass.part][here.slot] = true;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
