// SPDX-License-Identifier: Apache-2.0
//
// DataParallel<Net, Loss, Optimizer, Averaging, Device, Statistics>: a network trained by R replicas on 1 to R devices.
//
// Each device has one worker thread, one copy of the parameters and one arena for activations; its replicas run there
// in order, each with a gradient row of its own. A step: every replica's forward and backward; all devices meet; each
// device averages its slice of the columns; all meet again; each device updates its parameters with the whole average,
// then their moving averages, which gives the same bits on each. With ConcatMean the trained model does not depend on
// the number of devices.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <cupola/net/plan.hpp>
#include <cupola/optim/optimizer.hpp>
#include <cupola/parallel/averaging.hpp>
#include <cupola/parallel/impl/first_not_finite.hpp>
#include <cupola/parallel/impl/trained_network.hpp>
#include <cupola/parallel/impl/training_mistake.hpp>
#include <cupola/parallel/inspection.hpp>
#include <cupola/parallel/step_report.hpp>
#include <cupola/tensor/batch.hpp>
#include <cupola/tensor/require_batch.hpp>

namespace cupola::inline CUPOLA_ABI {

template <class Net, class Loss, class Optimizer, class Averaging, class D, class Statistics>
    requires(impl::is_trainable<Net, Loss, Optimizer, Averaging, D, Statistics>() && !impl::is_queued<D>)
class DataParallel<Net, Loss, Optimizer, Averaging, D, Statistics>
    : public impl::TrainedNetwork<Net, Loss, Optimizer, Averaging, D, Statistics> {
    using Base = impl::TrainedNetwork<Net, Loss, Optimizer, Averaging, D, Statistics>;

public:
    using typename Base::Context;
    using typename Base::Options;

    /// Makes the plans and allocates all memory. Throws InvalidArgument, DeviceError, or OutOfMemory before anything is
    /// allocated that does not fit.
    [[gnu::cold]] explicit DataParallel(const Options& options) : Base(options) {}

    /// The step that comes next; 0 before the first.
    using Base::step;

    /// Trains one step. `batches(step, replica, context)` gives a replica's batch; it is called on the thread of the
    /// replica's device. Throws DivergedError when a loss or a gradient is not finite: no parameter has changed then.
    /// The report is valid until the next step.
    template <class Batches>
        requires std::is_invocable_r_v<BatchView, Batches&, std::int64_t, int, Context&>
    const StepReport& step(Batches&& batches) {
        return step(batches, [](const Inspection<D>&) {});
    }

    /// The same; `inspector` is called with an `Inspection<D>` between the averaging and the update, on the first
    /// device's thread. What it throws comes out of here, after the step.
    template <class Batches, class Inspector>
        requires std::is_invocable_r_v<BatchView, Batches&, std::int64_t, int, Context&> &&
                 std::is_invocable_v<Inspector&, const Inspection<D>&>
    const StepReport& step(Batches&& batches, Inspector&& inspector) {
        require_batches(batches, Net::input, options_.replicas);
        threads_.run([&](int device) { step_on(device, batches, inspector); });
        finish_step();
        if (at(0).error) std::rethrow_exception(std::exchange(at(0).error, nullptr));
        return tally_.report();
    }

    /// The same with one batch for each replica.
    const StepReport& step(std::span<const BatchView> batches) {
        require(batches.size() == static_cast<std::size_t>(options_.replicas), "a step of ", options_.replicas,
                " replicas takes as many batches, not ", batches.size());
        return step([&](std::int64_t, int replica, Context&) { return batches[static_cast<std::size_t>(replica)]; });
    }

private:
    using Base::at, Base::replica_at, Base::batch_samples, Base::plan_options, Base::synchronized;
    using Base::checks_after, Base::require_equal_parameters;
    using Base::first_replica, Base::columns_of, Base::statistics_row, Base::row, Base::average_row;
    using Base::gradient_rows, Base::take_statistics, Base::update_parameters;
    using Base::in_step_, Base::tally_, Base::step_;
    using Base::options_, Base::threads_, Base::devices_, Base::replicas_, Base::regularized_;
    using typename Base::DeviceState, typename Base::Element;
    using typename Base::Replica;

    template <class Batches, class Inspector>
    void step_on(int device, Batches& batches, Inspector& inspector) {
        DeviceState& state = at(device);
        const auto team = state.worker.context().team();
        state.error = nullptr;
        state.averaged = false;
        state.attempt([&] { begin_step(device); });
        for (int part = 0; part < options_.accumulation; ++part) {
            if constexpr (synchronized) {
                run_together(device, part, batches);
            } else {
                for_each_replica(device, [&](int replica) {
                    Plan<D, Element>* const plan = begin_batch(state, replica, part, batches);
                    if (plan == nullptr) return;
                    const Replica& r = replica_at(replica);
                    const PassBuffers buffers{.running = state.worker.buffers(), .batch = r.statistics};
                    const float* const parameters = state.worker.parameters();
                    const float* const logits =
                        plan->forward(state.worker.context(), r.batch.samples, parameters, r.key, buffers);
                    if (!find_loss(state, replica, *plan, logits)) return;
                    plan->backward(state.worker.context(), r.batch.samples, parameters, row(replica), r.key,
                                   r.samples > 0);
                    replica_at(replica).samples += r.batch.size;
                });
            }
        }
        state.attempt([&] { finish_gradients(device); });
        state.ready = state.error == nullptr;
        meet(state);  // every gradient is there
        if (all_ready()) state.attempt([&] { state.averaged = average(device); });
        meet(state);  // the average is there, and gradients may be overwritten
        if (state.error) std::rethrow_exception(state.error);
        if (!all_averaged()) return;
        // What an inspector throws comes after the update, which all devices make.
        if (device == 0) state.attempt([&] { inspector(inspection(state)); });
        update(state);
    }

    void meet(DeviceState& state) {
        const Stopwatch watch(state.worker.times(), StepPart::waiting);
        threads_.meet();
    }

    void begin_step(int device) {
        DeviceState& state = at(device);
        for (std::size_t i = 0; i < regularized_.size(); ++i) {
            const Stopwatch watch(state.worker.times(), StepPart::regularization);
            const RegularizedParameter& r = regularized_[i];
            const std::span<const float> weights(state.worker.parameters() + r.offset,
                                                 static_cast<std::size_t>(r.size));
            state.regularization[i] = 0.5 * r.coefficient * sum_of_squares(state.worker.context(), weights);
        }
        for (int replica = first_replica(device); replica < first_replica(device + 1); ++replica) {
            replica_at(replica).samples = 0;
            replica_at(replica).batch = {};
            replica_at(replica).has_finite_loss = true;
            replica_at(replica).culprit.clear();
            tally_.begin(replica);
        }
    }

    template <class Work>
    void for_each_replica(int device, Work&& work) {
        for (int replica = first_replica(device); replica < first_replica(device + 1); ++replica) {
            at(device).attempt([&] { work(replica); });
        }
    }

    /// Fetches a replica's batch number `part` of this step; null if there is nothing to compute.
    template <class Batches>
    Plan<D, Element>* begin_batch(DeviceState& state, int replica, int part, Batches& batches, std::size_t lane = 0) {
        Replica& r = replica_at(replica);
        batch_samples(part, replica) = 0;
        if (!r.has_finite_loss) return nullptr;
        const std::int64_t place = step_ * options_.accumulation + part;
        const BatchView batch = [&]() -> BatchView {
            const Stopwatch watch(state.worker.times(), StepPart::data);
            return batches(place, replica, state.worker.context());
        }();
        require_batch(batch, Net::input);
        batch_samples(part, replica) = batch.size;
        if (batch.size == 0) return nullptr;
        Plan<D, Element>* const plan = state.worker.plan_for(plan_options(batch.size), state.worker.parameters(), lane);
        require(plan != nullptr, "a batch has ", batch.size, " samples, and plans were made for batch_size ",
                options_.batch_size, " and other_batch_sizes only");
        // Each batch's gradient is weighed by its samples before the replicas' sums are merged: equal weights cancel.
        require(!synchronized || options_.accumulation == 1 || batch.size == options_.batch_size,
                "with synchronised statistics and accumulation every batch has batch_size samples, ",
                options_.batch_size, ", or none, not ", batch.size);
        r.batch = batch;
        r.key = {.seed = options_.seed,
                 .step = static_cast<std::uint32_t>(place),
                 .first_sample = replica * options_.batch_size};
        r.statistics = statistics_row(part, replica);
        return plan;
    }

    /// The loss of a replica's batch, and its gradient where backward begins; false if it is not finite.
    bool find_loss(DeviceState& state, int replica, Plan<D, Element>& plan, const float* logits) {
        Replica& r = replica_at(replica);
        Context& context = state.worker.context();
        const LossResult result = [&] {
            const Stopwatch watch(state.worker.times(), StepPart::loss);
            return options_.loss.data.template operation<D>().forward(context, logits, r.batch.labels, r.batch.size,
                                                                      plan.output_gradient());
        }();
        ReplicaReport& report = tally_.of(replica);
        report.correct += result.correct;
        report.parts[0].value += result.sum;
        if (!std::isfinite(result.sum)) {
            r.has_finite_loss = false;
            r.culprit = where_not_finite(state, r, nullptr);
            return false;
        }
        // The loss's gradient is that of the mean over this batch; several batches count by their samples.
        if (options_.accumulation > 1) {
            const auto weight =
                static_cast<double>(r.batch.size) / static_cast<double>(options_.batch_size * options_.accumulation);
            scale(context,
                  std::span(plan.output_gradient(), static_cast<std::size_t>(r.batch.size * Net::output_shape.size())),
                  weight);
        }
        return true;
    }

    /// The replicas of all devices in step: they stop wherever the network merges statistics of the whole global batch.
    template <class Batches>
    void run_together(int device, int part, Batches& batches) {
        DeviceState& state = at(device);
        Context& context = state.worker.context();
        const float* const parameters = state.worker.parameters();
        const std::size_t exchanges = in_step_.exchanges();
        for (int replica = first_replica(device); replica < first_replica(device + 1); ++replica)
            in_step_.plan(replica) = nullptr;
        for_each_replica(device, [&](int replica) {
            const auto lane = static_cast<std::size_t>(replica - first_replica(device));
            in_step_.plan(replica) = begin_batch(state, replica, part, batches, lane);
        });
        const double* merged = nullptr;
        for (std::size_t k = 0; k <= exchanges; ++k) {
            for_each_replica(device, [&](int replica) {
                Plan<D, Element>*& plan = in_step_.plan(replica);
                if (plan == nullptr) return;
                const Replica& r = replica_at(replica);
                const PassBuffers buffers{.running = state.worker.buffers(), .batch = r.statistics};
                const float* const logits = plan->forward_segment(context, k, r.batch.samples, parameters, r.key,
                                                                  buffers, merged, in_step_.partial(k, replica));
                if (k == exchanges && !find_loss(state, replica, *plan, logits)) plan = nullptr;
            });
            if (k < exchanges) merged = exchange(device, Direction::forward, k, k);
        }
        for (std::size_t k = 0; k <= exchanges; ++k) {
            for_each_replica(device, [&](int replica) {
                Plan<D, Element>* const plan = in_step_.plan(replica);
                if (plan == nullptr) return;
                Replica& r = replica_at(replica);
                plan->backward_segment(context, k, r.batch.samples, parameters, row(replica), r.key, r.samples > 0,
                                       merged, in_step_.partial(exchanges + k, replica));
                if (k == exchanges) r.samples += r.batch.size;
            });
            if (k < exchanges) merged = exchange(device, Direction::backward, k, exchanges + k);
        }
    }

    /// All meet, and each device merges all replicas' sums.
    const double* exchange(int device, Direction direction, std::size_t k, std::size_t turn) {
        DeviceState& state = at(device);
        const int first = first_replica(device), last = first_replica(device + 1);
        for (int replica = first; replica < last; ++replica) in_step_.publish(turn, replica, !state.error);
        meet(state);  // every replica's sums are there
        state.attempt([&] { in_step_.merge(direction, k, turn, first, last, state.merged); });
        return state.merged.data();
    }

    /// Completes the replicas' reports, and their gradients where batches were smaller than they were weighed for.
    void finish_gradients(int device) {
        DeviceState& state = at(device);
        for (int replica = first_replica(device); replica < first_replica(device + 1); ++replica) {
            const Replica& r = replica_at(replica);
            ReplicaReport& report = tally_.of(replica);
            if (!r.has_finite_loss) report.total = report.parts[0].value;
            if (r.samples == 0) continue;
            const std::int64_t expected = options_.batch_size * options_.accumulation;
            if (options_.accumulation > 1 && r.samples != expected) {
                scale(state.worker.context(),
                      std::span(row(replica), static_cast<std::size_t>(Net::parameter_elements)),
                      static_cast<double>(expected) / static_cast<double>(r.samples));
            }
            tally_.complete(replica, r.samples, state.regularization);
        }
    }

    /// Averages this device's slice of the columns; false if it is not finite. A NaN in a batch need not reach the loss
    /// (max(NaN, 0) is 0 in a processor's instruction), but it does reach the gradient.
    bool average(int device) {
        DeviceState& state = at(device);
        const Stopwatch watch(state.worker.times(), StepPart::averaging);
        const auto [begin, end] = columns_of(device);
        const std::span<float> mean(average_row(device) + begin, static_cast<std::size_t>(end - begin));
        const GradientRows gradients = gradient_rows(state, begin, end, [&](int r) { return replica_at(r).samples; });
        require(gradients.total_samples > 0, "step ", step_, " has no samples on any replica");
        // One replica's gradient is the average, in place.
        if (options_.replicas > 1) options_.averaging.average(state.worker.context(), gradients, mean);
        return all_finite(state.worker.context(), mean);
    }

    [[nodiscard]] Inspection<D> inspection(DeviceState& state) {
        constexpr auto elements = static_cast<std::size_t>(Net::parameter_elements);
        const Replica& r = *std::find_if(replicas_.begin(), replicas_.end(),
                                         [](const Replica& replica) { return replica.samples > 0; });
        inspected_statistics_ = synchronized ? r.statistics : nullptr;
        return {step_,
                state.worker.context(),
                std::span<const float>(state.worker.parameters(), elements),
                std::span<const float>(average_row(0), elements),
                r.batch,
                r.key,
                this,
                [](void* object, const BatchView& batch, const PassKey& key, void* visitor,
                   typename Inspection<D>::VisitOutput visit) {
                    auto& self = *static_cast<DataParallel*>(object);
                    auto& worker = self.at(0).worker;
                    worker.inspect(worker.template inspection_plan<Net>(batch.size), batch.samples, key,
                                   self.inspected_statistics_, [&](std::size_t layer, std::span<const float> values) {
                                       visit(visitor, layer, values);
                                   });
                }};
    }

    void update(DeviceState& state) {
        auto& worker = state.worker;
        state.updating = true;
        update_parameters(state);
        if constexpr (Net::buffer_elements > 0) update_statistics(state);
        worker.parameters_changed();
        if (!checks_after(step_)) return;
        const std::span<const float> parameters(worker.parameters(), static_cast<std::size_t>(Net::parameter_elements));
        if (options_.devices > 1) state.hash = hash_of(worker.context(), parameters);
        state.finite = all_finite(worker.context(), parameters) &&
                       all_finite({worker.buffers(), static_cast<std::size_t>(Net::buffer_elements)});
    }

    /// Every device updates its own running statistics, with the same bits.
    void update_statistics(DeviceState& state) {
        const Stopwatch watch(state.worker.times(), StepPart::statistics);
        take_statistics(
            state, state.worker.buffers(), [&](int part, int r) { return batch_samples(part, r); },
            [&](int part, int r) { return statistics_row(part, r); });
    }

    void finish_step() {
        if (!all_finite_losses()) throw_loss_not_finite();
        tally_.finish(step_, options_.optimizer.learning_rate_at(step_));
        if (!all_averaged()) throw_gradient_not_finite();
        if (checks_after(step_)) {
            require_equal_parameters(step_);
            Base::require_finite_state(step_);
        }
        for (DeviceState& state : devices_) state.updating = false;
        ++step_;
    }

    [[nodiscard]] bool all_ready() const {
        return std::all_of(devices_.begin(), devices_.end(), [](const DeviceState& state) { return state.ready; }) &&
               all_finite_losses();
    }
    [[nodiscard]] bool all_finite_losses() const {
        return std::all_of(replicas_.begin(), replicas_.end(), [](const Replica& r) { return r.has_finite_loss; }) &&
               std::all_of(tally_.report().replicas.begin(), tally_.report().replicas.end(),
                           [](const ReplicaReport& replica) { return std::isfinite(replica.total); });
    }
    [[nodiscard]] bool all_averaged() const {
        return std::all_of(devices_.begin(), devices_.end(), [](const DeviceState& state) { return state.averaged; });
    }

    // What can go wrong in a step.

    [[nodiscard, gnu::cold]] static std::string where_not_finite(DeviceState& state, const Replica& r,
                                                                 const float* gradient) {
        Plan<D, Element>& plan = state.worker.template inspection_plan<Net>(r.batch.size);
        return impl::first_not_finite(state.worker, plan, Net::rows, r.batch, r.key, gradient);
    }

    /// Statistics that replicas share make every loss no number: the culprit is the replica whose own batch shows one.
    [[noreturn, gnu::cold]] void throw_loss_not_finite() const {
        const std::vector<ReplicaReport>& reports = tally_.report().replicas;
        std::size_t found = 0;
        while (replicas_[found].has_finite_loss && std::isfinite(reports[found].total)) ++found;
        for (std::size_t r = replicas_.size(); r-- > 0;) {
            if (!replicas_[r].culprit.empty()) found = r;
        }
        impl::throw_diverged(
            step_, text("the loss of replica ", found, " is ", reports[found].total),
            replicas_[found].has_finite_loss ? std::string() : impl::shown_culprit(replicas_[found].culprit),
            static_cast<int>(found));
    }

    /// Finds whose gradient it is: the slow way, for the step that failed.
    [[noreturn, gnu::cold]] void throw_gradient_not_finite() {
        int found = -1;
        std::string where;
        threads_.run([&](int device) {
            for (int r = 0; device == 0 && r < options_.replicas && found < 0; ++r) {
                const std::span<const float> values(row(r), static_cast<std::size_t>(Net::parameter_elements));
                if (tally_.of(r).samples == 0 || all_finite(at(0).worker.context(), values)) continue;
                found = r;
                where = impl::shown_culprit(where_not_finite(at(0), replica_at(r), row(r)));
                if (options_.accumulation > 1) {
                    where +=
                        text("; of its ", options_.accumulation, " batches the last that has samples was searched");
                }
            }
        });
        impl::throw_diverged(
            step_,
            text(found < 0 ? std::string("the averaged gradient") : text("the gradient of replica ", found),
                 " is not finite"),
            where, found);
    }

    const float* inspected_statistics_ = nullptr;
};

}  // namespace cupola::inline CUPOLA_ABI
