// SPDX-License-Identifier: Apache-2.0
//
// DataParallel on a device whose work is queued: the host says what is to be done and goes on, at most two steps ahead.
//
//   queue(batches)   queues a step; waits only for the one before the last, and throws what became of it
//   collect(ahead)   the oldest step's report that nobody has collected, if more than `ahead` are left; else null
//   step(batches)    queues a step and waits for its report, as on every device
//
// In a step, for each replica: its batch goes to where captured work reads it; then one CUDA graph packs the weights,
// runs forward and backward. Then the replicas agree on a gradient, uncaptured: by NCCL on the devices, or by the
// policy's own average() on each device's slice of the columns. Then one graph checks the average, updates the
// parameters and their moving averages. What changes from step to step (the number of the step, the learning rate) is
// written to the device by small kernels before.
//
// A gradient that is not finite turns off every later update (`sound` below) and keeps the batch where it is: the
// error, at most two steps later, names the right step and what the search found, and the parameters are those before
// that step.
//
// A loss's operation on such a device has `queue(context, logits, labels, batch, gradient, LossReport*)`, which waits
// for nothing, and `result_of(report)`, which reads what arrived.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <cupola/device/cuda.hpp>
#include <cupola/ops/cudnn/training_step.hpp>
#include <cupola/parallel/averaging.hpp>
#include <cupola/parallel/cuda_concat_mean.hpp>
#include <cupola/parallel/impl/queued_device.hpp>
#include <cupola/parallel/impl/queued_training.hpp>
#include <cupola/parallel/impl/training_mistake.hpp>
#include <cupola/parallel/inspection.hpp>
#include <cupola/tensor/require_batch.hpp>

namespace cupola::inline CUPOLA_ABI {

template <class Net, class Loss, class Optimizer, class Averaging, class D, class Statistics>
    requires(impl::is_trainable<Net, Loss, Optimizer, Averaging, D, Statistics>() && impl::is_queued<D>)
class DataParallel<Net, Loss, Optimizer, Averaging, D, Statistics>
    : public impl::QueuedTraining<Net, Loss, Optimizer, Averaging, D, Statistics> {
    using Base = impl::QueuedTraining<Net, Loss, Optimizer, Averaging, D, Statistics>;

public:
    using typename Base::Context;
    using typename Base::Options;

    /// Makes the plans and allocates all memory, and with NcclAllReduce meets the other processes. Throws
    /// InvalidArgument, DeviceError, or OutOfMemory: before anything is allocated if what the memory report counts does
    /// not fit.
    [[gnu::cold]] explicit DataParallel(const Options& options)
        : Base(options), weighted_(static_cast<std::size_t>(options.devices)) {}

    /// The step that is queued next; 0 before the first.
    using Base::step;
    /// How many steps are queued at most before the oldest is waited for.
    using Base::most_ahead;

    /// Queues a step. `batches(step, replica, context)` gives a replica's batch, in memory that its device reads (the
    /// device's, or pinned); it is called on the thread of that device. What the host itself writes there stays as it
    /// is until a batch of the second step after this one is asked for; what is queued on the context may be queued at
    /// once. Throws InvalidArgument for a batch of a size that no plan was made for, or a step without samples; and
    /// what became of an earlier step: DivergedError, InvalidArgument for a label that is no class, DeviceError.
    /// Reports that nobody collected in time are dropped.
    template <class Batches>
        requires std::is_invocable_r_v<BatchView, Batches&, std::int64_t, int, Context&>
    void queue(Batches&& batches) {
        queue_step(batches, static_cast<NoInspector*>(nullptr));
    }
    /// The same; `inspector` is called with an `Inspection<D>` between the averaging and the update, on the first
    /// device's thread, which waits for that: its numbers are in the host's memory. What it throws comes out of here,
    /// after the step.
    template <class Batches, class Inspector>
        requires std::is_invocable_r_v<BatchView, Batches&, std::int64_t, int, Context&> &&
                 std::is_invocable_v<Inspector&, const Inspection<D>&>
    void queue(Batches&& batches, Inspector&& inspector) {
        queue_step(batches, &inspector);
    }

    /// Queues a step and waits for its report, which is valid until two more steps are queued. Throws as `queue` does.
    template <class Batches>
        requires std::is_invocable_r_v<BatchView, Batches&, std::int64_t, int, Context&>
    const StepReport& step(Batches&& batches) {
        queue(batches);
        return Base::last_report();
    }
    template <class Batches, class Inspector>
        requires std::is_invocable_r_v<BatchView, Batches&, std::int64_t, int, Context&> &&
                 std::is_invocable_v<Inspector&, const Inspection<D>&>
    const StepReport& step(Batches&& batches, Inspector&& inspector) {
        queue(batches, inspector);
        return Base::last_report();
    }
    /// The same with one batch for each replica.
    const StepReport& step(std::span<const BatchView> batches) {
        require(batches.size() == static_cast<std::size_t>(options_.replicas), "a step of ", options_.replicas,
                " replicas takes as many batches, not ", batches.size());
        return step([&](std::int64_t, int replica, Context&) { return batches[static_cast<std::size_t>(replica)]; });
    }

private:
    using Base::at, Base::plan_options, Base::row, Base::average_row, Base::first_replica, Base::columns_of,
        Base::checks_after;
    using Base::elements, Base::loss_scale, Base::captures_update, Base::sums_on_devices;
    using Base::options_, Base::threads_, Base::devices_, Base::regularized_, Base::step_;
    using Base::queue_of, Base::local, Base::size_of, Base::sizes_of, Base::samples_of, Base::key_of, Base::wait_for,
        Base::wait_for_queue;
    using typename Base::DeviceState, typename Base::Element;

    struct NoInspector {
        void operator()(const Inspection<D>&) const {}
    };

    // A step, queued.

    template <class Batches, class Inspector>
    void queue_step(Batches& batches, Inspector* inspector) {
        require_batches(batches, Net::input, options_.replicas);
        Base::make_room();
        for (std::int64_t& samples : sizes_of(step_)) samples = 0;
        inspected_ = nullptr;
        threads_.run([&](int device) { queue_on(device, batches, inspector); });
        for (DeviceState& device : devices_) device.updating = false;
        ++step_;
        if (inspected_) std::rethrow_exception(std::exchange(inspected_, nullptr));
    }

    template <class Batches, class Inspector>
    void queue_on(int device, Batches& batches, Inspector* inspector) {
        DeviceState& state = at(device);
        state.error = nullptr;
        state.attempt([&] {
            wait_for(device, step_ - most_ahead);
            for (int part = 0; part < options_.accumulation; ++part) {
                for (int r = first_replica(device); r < first_replica(device + 1); ++r)
                    queue_batch(device, r, part, batches);
            }
            for (int r = first_replica(device); r < first_replica(device + 1); ++r) weigh(state, r);
        });
        state.ready = state.error == nullptr;
        meet();  // all know how many samples there are, and whether all are there
        if (!all<&DeviceState::ready>()) {
            if (state.error) std::rethrow_exception(state.error);
            return;
        }
        if (!sums_on_devices) {
            std::int64_t samples = 0;
            for (int r = 0; r < options_.replicas; ++r) samples += samples_of(step_, r);
            require(samples > 0, "step ", step_, " has no samples on any replica");
        }
        state.updating = true;  // from here on an error leaves the parameters of devices apart
        average(device);
        state.attempt([&] { queue_update(device, inspector); });
        if (state.error) std::rethrow_exception(state.error);
    }

    void meet() {
        if (options_.devices > 1) threads_.meet();
    }
    template <bool DeviceState::*flag>
    [[nodiscard]] bool all() const {
        return std::all_of(devices_.begin(), devices_.end(), [](const DeviceState& state) { return state.*flag; });
    }

    template <class Batches>
    void queue_batch(int device, int replica, int part, Batches& batches) {
        DeviceState& state = at(device);
        Context& context = state.worker.context();
        impl::QueuedDevice& queue = queue_of(device);
        const BatchView batch = batches(step_ * options_.accumulation + part, replica, context);
        require_batch(batch, Net::input);
        if (batch.size == 0) return;
        const float* const parameters = state.worker.parameters();
        const auto [plan, packs] = state.worker.take_plan(plan_options(batch.size), parameters);
        require(plan != nullptr, "a batch has ", batch.size, " samples, and plans were made for batch_size ",
                options_.batch_size, " and other_batch_sizes only");
        const bool accumulates = samples_of(step_, replica) > 0;
        size_of(step_, part, replica) = batch.size;
        const PassKey key = key_of(step_, part, replica);
        const std::size_t number = queue.batch_of(local(replica), part);
        std::byte* const block = queue.on_device();
        float* const samples = queue.samples(local(replica));
        std::int32_t* const labels = queue.labels(local(replica));
        impl::queue_set(context, impl::ReportBlock::step(block), key.step);
        impl::queue_take_batch(context, batch, Net::input.size(), samples, labels, impl::ReportBlock::sound(block));
        queue.work(plan, number, packs, accumulates).queue(context, true, [&, plan = plan, packs = packs] {
            if (packs) plan->prepare(context, parameters, state.worker.buffers());
            const float* const logits =
                plan->forward(context, samples, parameters, key, {.batch = queue.block().statistics(block, number)});
            options_.loss.data.template operation<D>().queue(
                context, logits, labels, batch.size, plan->output_gradient(), queue.block().report(block, number));
            // The loss's gradient is that of the mean over this batch; several batches count by their samples.
            double weight = loss_scale;
            if (options_.accumulation > 1)
                weight *=
                    static_cast<double>(batch.size) / static_cast<double>(options_.batch_size * options_.accumulation);
            if (weight != 1) {
                scale(
                    context,
                    std::span(plan->output_gradient(), static_cast<std::size_t>(batch.size * Net::output_shape.size())),
                    weight);
            }
            plan->backward(context, samples, parameters, row(replica), key, accumulates);
            impl::queue_spoil(context, &queue.block().report(block, number)->sum, row(replica));
        });
    }

    /// Completes a replica's gradient where its batches were smaller than they were weighed for.
    void weigh(DeviceState& state, int replica) {
        const std::int64_t samples = samples_of(step_, replica), expected = options_.batch_size * options_.accumulation;
        if (options_.accumulation == 1 || samples == 0 || samples == expected) return;
        scale(state.worker.context(), std::span(row(replica), elements),
              static_cast<double>(expected) / static_cast<double>(samples));
    }

    // The averaging.

    /// What queue_update divides to get the average, and by what: on the device.
    struct Sums {
        std::span<const float> values;
        const float* divisor;
    };
    [[nodiscard]] Sums sums_of(int device) {
        if constexpr (sums_on_devices) {
            const std::span<const float> sums = queue_of(device).sums();
            return {sums.first(elements), sums.data() + elements};
        } else {
            return {{average_row(device), elements}, impl::ReportBlock::loss_scale(queue_of(device).on_device())};
        }
    }

    void average(int device) {
        DeviceState& state = at(device);
        if constexpr (sums_on_devices) {
            state.attempt([&] { sum_replicas(device); });
            state.has_sum = state.error == nullptr;
            meet();
            if (!all<&DeviceState::has_sum>())
                return;  // a sum that one device leaves out is one that the others wait for
            state.attempt([&] { queue_sum(device); });
            meet();
        } else if (options_.devices == 1) {
            state.attempt([&] { average_columns(state, 0, Net::parameter_elements); });
        } else {
            // Gradients and slices of the average go from device to device, so each is waited for on the device that
            // made it.
            state.attempt([&] { wait_for_queue(device); });
            threads_.meet();
            const auto [begin, end] = columns_of(device);
            state.attempt([&, begin = begin, end = end] {
                average_columns(state, begin, end);
                wait_for_queue(device);
            });
            threads_.meet();
            state.attempt([&] {
                take_other_slices(device);
                wait_for_queue(device);
            });
            threads_.meet();  // queue_update() divides the average where the others have read it
        }
    }

    void sum_replicas(int device) {
        Context& context = at(device).worker.context();
        const std::span<float> sums = queue_of(device).sums();
        auto& [rows, weights] = weighted_rows(device);
        float total = 0;
        for (int r = first_replica(device); r < first_replica(device + 1); ++r) {
            const auto samples = static_cast<float>(samples_of(step_, r));
            if (samples == 0) continue;
            rows.push_back(row(r));
            weights.push_back(samples);
            total += samples;
        }
        impl::queue_weighted_sum(context, rows, weights, sums.first(elements));
        impl::queue_set(context, sums.data() + elements, total * loss_scale);
    }
    /// The first steps are waited for: a kernel that is loaded, or a graph that is made, behind a sum of NCCL's that
    /// waits for another device might wait for that device too.
    void queue_sum(int device) {
        constexpr int first_steps = 3;
        Context& context = at(device).worker.context();
        impl::QueuedDevice& queue = queue_of(device);
        Base::group().sum(device, queue.sums(), context.stream(), step_);
        if (queue.count_step() <= first_steps) {
            queue.gradients_ready().record(context);
            Base::group().wait(device, queue.gradients_ready().get(), step_);
        }
    }
    struct WeightedRows {
        std::vector<const float*> rows;
        std::vector<float> weights;
    };
    [[nodiscard]] WeightedRows& weighted_rows(int device) {
        WeightedRows& found = weighted_[static_cast<std::size_t>(device)];
        found.rows.clear();
        found.weights.clear();
        return found;
    }

    /// The policy's average of the columns [begin, end).
    void average_columns(DeviceState& state, std::int64_t begin, std::int64_t end) {
        Context& context = state.worker.context();
        if (options_.replicas == 1) return;  // its gradient is the average, in place
        const GradientRows gradients =
            Base::gradient_rows(state, begin, end, [&](int r) { return samples_of(step_, r); });
        const std::span<float> mean(average_row(context.ordinal()) + begin, static_cast<std::size_t>(end - begin));
        options_.averaging.average(context, gradients, mean);
    }

    void take_other_slices(int device) {
        for (int other = 0; other < options_.devices; ++other) {
            if (other == device) continue;
            const auto [begin, end] = columns_of(other);
            at(device).worker.context().queue_copy(average_row(device) + begin, average_row(other) + begin,
                                                   static_cast<std::size_t>(end - begin) * sizeof(float));
        }
    }

    // The update.

    template <class Inspector>
    void queue_update(int device, Inspector* inspector) {
        DeviceState& state = at(device);
        Context& context = state.worker.context();
        impl::QueuedDevice& queue = queue_of(device);
        std::byte* const block = queue.on_device();
        const Sums sums = sums_of(device);
        if (captures_update) {
            gather_or_update(state, queue, false);
            impl::queue_constants(context, queue.constants());
        }
        const bool inspects = inspector != nullptr && device == 0;
        queue.update().queue(context, captures_update && inspector == nullptr, [&] {
            impl::queue_mean(context, sums.values, sums.divisor, std::span(average_row(device), elements),
                             impl::ReportBlock::sound(block));
            for (std::size_t i = 0; i < regularized_.size(); ++i) {
                const std::span<const float> weights(state.worker.parameters() + regularized_[i].offset,
                                                     static_cast<std::size_t>(regularized_[i].size));
                queue_sum_of_squares(context, weights, impl::ReportBlock::regularization(block) + i);
            }
            if (inspects) inspect(state, *inspector);
            gather_or_update(state, queue, true);
        });
        state.worker.parameters_changed();
        if (checks_after(step_)) {
            const std::span<const float> parameters(state.worker.parameters(), elements);
            if (options_.devices > 1) queue_hash_of(context, parameters, impl::ReportBlock::hash(block));
            queue_all_finite(context, parameters, impl::ReportBlock::finite(block));
        }
        impl::queue_publish(context, block, queue.arrived(step_), queue.block().bytes());
        queue.finished(step_).record(context);
    }

    /// The optimiser's and the moving averages' passes over the parameters; `launching` as StepConstants has it.
    void gather_or_update(DeviceState& state, impl::QueuedDevice& queue, bool launching) {
        queue.constants().begin(launching);
        Base::update_parameters(state);
    }

    /// Waits, and shows the inspector copies. What it throws is kept: the update comes after it, on every device.
    template <class Inspector>
    [[gnu::cold]] void inspect(DeviceState& state, Inspector& inspector) {
        using Worker = impl::DeviceWorker<D, Element>;
        auto& worker = state.worker;
        int replica = 0;
        while (replica + 1 < options_.replicas && samples_of(step_, replica) == 0) ++replica;
        const int part = Base::last_part(step_, replica), its_device = Base::device_of(replica);
        const std::int64_t size = size_of(step_, part, replica), numbers = size * Net::input.size();
        impl::QueuedDevice& its_queue = queue_of(its_device);
        float* its_samples = its_queue.samples(local(replica));
        std::int32_t* its_labels = its_queue.labels(local(replica));
        if constexpr (sums_on_devices) {  // the copies would wait without an end for a process that is gone
            queue_of(0).gradients_ready().record(worker.context());
            Base::group().wait(0, queue_of(0).gradients_ready().get(), step_);
        }
        if (its_device != 0) {  // no replica of this device has samples, so there is room for theirs
            float* const samples_here = queue_of(0).samples(0);
            std::int32_t* const labels_here = queue_of(0).labels(0);
            worker.context().queue_copy(samples_here, its_samples, static_cast<std::size_t>(numbers) * sizeof(float));
            worker.context().queue_copy(labels_here, its_labels, static_cast<std::size_t>(size) * sizeof(std::int32_t));
            its_samples = samples_here;
            its_labels = labels_here;
        }
        const std::vector<float> parameters = on_host(worker.context(), worker.parameters(), elements);
        const std::vector<float> gradient = on_host(worker.context(), average_row(0), elements);
        const std::vector<float> samples = on_host(worker.context(), its_samples, static_cast<std::size_t>(numbers));
        const std::vector<std::int32_t> labels = on_host(worker.context(), its_labels, static_cast<std::size_t>(size));
        inspected_samples_ = its_samples;
        const Inspection<D> inspection(
            step_, worker.context(), parameters, gradient, {samples.data(), labels.data(), size, Net::input},
            key_of(step_, part, replica), this,
            [](void* object, const BatchView& batch, const PassKey& key, void* visitor,
               typename Inspection<D>::VisitOutput visit) {
                auto& self = *static_cast<DataParallel*>(object);
                if (batch.size == 0) return;  // another process has all samples
                Worker& its = self.at(0).worker;
                impl::queue_set(its.context(), impl::ReportBlock::step(self.queue_of(0).on_device()), key.step);
                its.inspect(its.template inspection_plan<Net>(batch.size), self.inspected_samples_, key, nullptr,
                            [&](std::size_t layer, std::span<const float> values) {
                                visit(visitor, layer, on_host(its.context(), values.data(), values.size()));
                            });
            });
        try {
            inspector(inspection);
        } catch (...) {
            inspected_ = std::current_exception();
        }
    }

    template <class V>
    [[nodiscard, gnu::cold]] static std::vector<V> on_host(Context& context, const V* from, std::size_t count) {
        std::vector<V> result(count);
        D::copy_to_host(context, reinterpret_cast<std::byte*>(result.data()), reinterpret_cast<const std::byte*>(from),
                        count * sizeof(V));
        return result;
    }

    std::vector<WeightedRows> weighted_;
    std::exception_ptr inspected_;
    const float* inspected_samples_ = nullptr;
};

}  // namespace cupola::inline CUPOLA_ABI
