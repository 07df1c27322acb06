// SPDX-License-Identifier: Apache-2.0
//
// DataParallel<Net, Loss, Optimizer, Averaging, Device, Statistics>: a network trained by R replicas on 1 to R devices.
//
//   DataParallel<Net, CrossEntropy<10>, Sgd, ConcatMean, Host> training({.replicas = 4, .devices = 2});
//
// Each device has one worker thread, one copy of the parameters and one arena for activations; its replicas run there
// in order, each with a gradient row of its own. In a step every replica runs forward and backward, the replicas agree as
// the policy `Averaging` says (parallel/agreement.hpp), and each device updates its parameters, which gives the same bits
// on each. With ConcatMean the trained model does not depend on the number of devices.
//
// Steps are queued: queue() returns when every device has been told what to do, and at most max_steps_in_flight steps are
// queued whose reports have not been read. On `Host`, where that is 1, a step is complete when queue() returns. What became
// of a step comes with its report: DivergedError for a loss or a gradient that is not finite, InvalidArgument for a label
// that is no class. The parameters are then those before that step.
//
// It is composed of parts, each a header in parallel/impl/: replica_set, step_engine, evaluator, state_transfer,
// finite_search, agreement_check. A training does one thing at a time: a call from a second thread, from inside another call,
// or in a child of fork() throws InvalidArgument.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <cupola/ops/peak_rates.hpp>
#include <cupola/parallel/impl/training_diagnostic.hpp>
#include <cupola/parallel/impl/training_parts.hpp>
#include <cupola/parallel/inspection.hpp>
#include <cupola/parallel/memory_report.hpp>
#include <cupola/parallel/step_report.hpp>
#include <cupola/parallel/training_options.hpp>
#include <cupola/parallel/training_state.hpp>
#include <cupola/tensor/batch.hpp>
#include <cupola/tensor/finite.hpp>
#include <cupola/tensor/require_batch.hpp>
#include <cupola/tensor/tensor.hpp>

namespace cupola::inline CUPOLA_ABI {

template <class Net, class Loss, class Optimizer, class Averaging, class D, class Statistics>
    requires(impl::is_trainable<Net, Loss, Optimizer, Averaging, D, Statistics>())
struct DataParallel<Net, Loss, Optimizer, Averaging, D, Statistics> {
    using NetworkType = Net;
    using Context = typename D::Kernels::Context;
    using LossType = CollectionOf<Loss>;
    using Options = TrainingOptions<Loss, Optimizer, Averaging, typename D::Options, Statistics>;
    using InputExtents = std::remove_cv_t<decltype(Net::input)>;
    using InspectionType = Inspection<typename D::Kernels>;
    /// How many steps are queued at most whose reports have not been read.
    static constexpr std::int64_t max_steps_in_flight = D::max_steps_in_flight;

    /// Makes the plans and allocates all memory. Throws InvalidArgument, DeviceError, or OutOfMemory before anything is
    /// allocated that does not fit.
    [[gnu::cold]] explicit DataParallel(const Options& chosen) : options(chosen), parts_(options) {}

    /// What the training was made with.
    const Options options;

    [[nodiscard]] const MemoryReport& memory() const { return parts_.set_.memory(); }
    /// The step that is queued next; 0 before the first.
    [[nodiscard]] std::int64_t step() const { return parts_.engine_.step(); }
    /// The replicas of all processes of the training.
    [[nodiscard]] int all_replicas() const { return parts_.engine_.agreement().processes() * options.replicas; }

    /// Whether the parameters are those after a whole step: false once an update was broken off, devices' parameters have
    /// parted, or a collective has failed. A loss that diverged leaves the parameters before the step.
    [[nodiscard]] bool healthy() const { return parts_.engine_.healthy(); }

    /// Queues a step. `batches(step, replica, context)` gives a replica's batch, in memory that its device reads; it is called
    /// on the thread of that device. The memory stays as it is until the step's report has been read or, where the device
    /// copies batches, until a batch of max_steps_in_flight - 1 steps later is asked for. Throws InvalidArgument for a
    /// batch of other samples than the network's or of a size that no plan was made for, or a step without samples; and
    /// what became of an earlier step. Reports that nobody asked for in time are dropped.
    template <class Batches>
        requires std::is_invocable_r_v<BatchView, Batches&, std::int64_t, int, Context&>
    void queue(Batches&& batches) {
        queue_step(batches, {});
    }
    /// The same; `inspector` is called with an Inspection between the averaging and the update, on the first device's
    /// thread, which waits for that. What it throws comes out of here, after the step.
    template <class Batches, class Inspector>
        requires std::is_invocable_r_v<BatchView, Batches&, std::int64_t, int, Context&> &&
                 std::is_invocable_v<Inspector&, const InspectionType&>
    void queue(Batches&& batches, Inspector&& inspector) {
        queue_step(batches, inspector);
    }
    /// The report of the oldest step whose report was not read, if more than `max_in_flight` are not; else null. With 0 it
    /// waits for every step that was queued. Valid until max_steps_in_flight - 1 more steps are queued. Throws what became
    /// of that step.
    const StepReport* poll_report(std::int64_t max_in_flight = max_steps_in_flight - 1) {
        const impl::Activity::Scope scope(parts_.activity_, "poll_report()");
        return parts_.engine_.poll(max_in_flight);
    }

    /// Queues a step and waits for its report, which is valid until the next step. Throws as queue() does, and what became of
    /// the step.
    template <class Batches>
        requires std::is_invocable_r_v<BatchView, Batches&, std::int64_t, int, Context&>
    const StepReport& step(Batches&& batches) {
        queue_step(batches, {});
        return last_report();
    }
    template <class Batches, class Inspector>
        requires std::is_invocable_r_v<BatchView, Batches&, std::int64_t, int, Context&> &&
                 std::is_invocable_v<Inspector&, const InspectionType&>
    const StepReport& step(Batches&& batches, Inspector&& inspector) {
        queue_step(batches, inspector);
        return last_report();
    }
    /// The same with one batch for each replica.
    const StepReport& step(std::span<const BatchView> batches) {
        require(batches.size() == static_cast<std::size_t>(options.replicas), "a step of ", options.replicas,
                " replicas takes as many batches, not ", batches.size());
        return step([&](std::int64_t, int replica, Context&) { return batches[static_cast<std::size_t>(replica)]; });
    }

    // What follows waits for the steps that are queued, and throws what became of them.

    /// Runs the network forward on `count` batches, the devices taking them in turn, and adds up the loss of the data
    /// and the correct answers. `batches(i, device, context)` gives batch i, on the thread of that device, of at most
    /// as many samples as the larger of `batch_size` and `evaluation_batch_size`. The parameters are the first replica's
    /// where each has its own. Throws InvalidArgument for samples that
    /// hold a NaN or an infinity. `weights` says whether the trained parameters are run or their moving averages.
    template <class Batches>
        requires std::is_invocable_r_v<BatchView, Batches&, std::int64_t, int, Context&>
    Evaluation evaluate(Batches&& batches, std::int64_t count, Weights weights = Weights::trained) {
        const impl::Activity::Scope scope(parts_.activity_, "evaluate()");
        require(count >= 0, "an evaluation has 0 or more batches, not ", count);
        parts_.evaluator_.require_weights(weights);
        require_batches(batches, Net::input);
        if constexpr (requires { batches.size_of(count); }) {
            if (count > 0) parts_.evaluator_.require_size(batches.size_of(0));
        }
        synchronize();
        return parts_.evaluator_.evaluate(options.loss.data, batches, count, weights);
    }
    /// The outputs of the network for samples of host memory, one after another; as many at most as in evaluate().
    /// Throws InvalidArgument for samples that hold a NaN or an infinity.
    [[nodiscard]] std::vector<float> predict(TensorView<const float, InputExtents> samples,
                                             Weights weights = Weights::trained) {
        const impl::Activity::Scope scope(parts_.activity_, "predict()");
        parts_.evaluator_.require_weights(weights);
        require(all_finite(samples.elements()), "a network takes finite numbers, and ",
                non_finite_sample(Net::input, samples.elements()));
        synchronize();
        return parts_.evaluator_.predict(samples.data(), samples.batch(), weights);
    }

    /// The parameter arena of a device, `Net::parameter_elements` floats; where each replica has parameters of its own, that
    /// of the device's first replica.
    [[nodiscard]] std::vector<float> parameters(int device = 0) {
        const impl::Activity::Scope scope(parts_.activity_, "parameters()");
        synchronize();
        return parts_.set_.copied(Net::parameter_elements, device,
                                  [](auto& state) { return state.worker.parameters(); });
    }
    /// Gives every replica these parameters, laid out as `parameters()` returns them. Throws InvalidArgument for one that is
    /// not finite.
    void set_parameters(std::span<const float> values) {
        const impl::Activity::Scope scope(parts_.activity_, "set_parameters()");
        synchronize();
        parts_.transfer_.set_parameters(values);
    }

    /// Everything that the next step depends on beside the options and the data.
    [[nodiscard]] TrainingState state() {
        const impl::Activity::Scope scope(parts_.activity_, "state()");
        synchronize();
        return parts_.transfer_.copy(parts_.engine_.step(), parts_.engine_.statistics().values());
    }
    /// Goes on from a state; forgets the steps that are queued, whatever became of them. Throws InvalidArgument, and has
    /// changed nothing then, if it is not one of this network, optimiser and moving average, or of as many replicas with
    /// parameters of their own, with the first parameter
    /// whose extents are others, or if a part of it is not finite or a running variance is below 0.
    void restore(const TrainingState& state) {
        const impl::Activity::Scope scope(parts_.activity_, "restore()");
        parts_.transfer_.require_fitting(state, options.optimizer);
        parts_.transfer_.require_finite(state);
        parts_.engine_.drain();
        parts_.transfer_.restore(state);
        parts_.engine_.restart(state.step, state.buffers);
    }

    /// The gradients of the last step: of one replica, or averaged over all. Regularisers are not in them: the
    /// optimiser adds theirs, which is the same for every replica, once.
    [[nodiscard]] std::vector<float> gradient(int replica) {
        const impl::Activity::Scope scope(parts_.activity_, "gradient()");
        synchronize();
        require(replica >= 0 && replica < options.replicas, "there is no replica ", replica, " of ", options.replicas);
        const int device = parts_.set_.device_of(replica);
        const float* const row = parts_.set_.row(replica);
        std::vector<float> result = parts_.set_.copied(Net::parameter_elements, device, [&](auto&) { return row; });
        // A row of several keeps the loss's scale; one that is the average has been divided.
        double factor = parts_.engine_.completion_of_row(replica);
        if (row != parts_.set_.average(device)) factor /= static_cast<double>(Net::Precision::loss_scale);
        if (factor != 1) {
            for (float& value : result) value = static_cast<float>(value * factor);
        }
        return result;
    }
    [[nodiscard]] std::vector<float> averaged_gradient() {
        const impl::Activity::Scope scope(parts_.activity_, "averaged_gradient()");
        synchronize();
        return parts_.set_.copied(Net::parameter_elements, 0, [&](auto&) { return parts_.set_.average(0); });
    }

    /// From now on the first device adds where the time of its steps goes to `times`, until that is null: `profile` of
    /// train/profile.hpp makes a table of it.
    void time_steps(StepTimes* times) { parts_.set_.at(0).worker.time(times); }

    /// The names of what each device queues go to `trace` from now on, until that is null.
    void trace_steps(impl::StepTrace* trace) { parts_.engine_.trace(trace); }

    /// What a device reaches at most in this network's precision, measured on all devices at once.
    [[nodiscard, gnu::cold]] PeakRates peak_rates() {
        const impl::Activity::Scope scope(parts_.activity_, "peak_rates()");
        synchronize();
        PeakRates rates;
        parts_.set_.threads().run([&](int device) {
            const PeakRates measured =
                ops::MeasurePeakRates<typename D::Kernels, typename Net::Precision::Activation>::run(
                    parts_.set_.context(device));
            if (device == 0) rates = measured;
        });
        return rates;
    }

    /// Why work is queued piece by piece that could have been repeated, for the log; empty where there is none.
    [[nodiscard, gnu::cold]] std::string not_captured() const { return parts_.engine_.not_repeated(); }
    /// Calls visit(recording) for each recording of a device.
    template <class Visit>
    void for_each_captured(int device, Visit&& visit) const {
        parts_.engine_.for_each_recording(device, visit);
    }

private:
    template <class Batches>
    void queue_step(Batches& batches,
                    typename impl::StepEngine<D, typename Net::Precision::Activation, Options>::Probe probe) {
        const impl::Activity::Scope scope(parts_.activity_, "step()");
        require_batches(batches, Net::input, options.replicas);
        parts_.engine_.queue(batches, probe);
    }
    const StepReport& last_report() {
        const impl::Activity::Scope scope(parts_.activity_, "step()");
        return parts_.engine_.last_report();
    }
    void synchronize() {
        parts_.engine_.synchronize();
        parts_.engine_.statistics().share();
    }

    impl::TrainingParts<Net, LossType, Options, D, Statistics::synchronized && (Net::buffer_elements > 0)> parts_;
};

}  // namespace cupola::inline CUPOLA_ABI
