// SPDX-License-Identifier: Apache-2.0
//
// DataParallel<Net, Loss, Optimizer, Averaging, Device, Statistics>: trains a network with R replicas on 1 to R
// devices.
//
//   DataParallel<Net, CrossEntropy<10>, Sgd, ConcatMean, Host> training({.replicas = 4, .devices = 2});
//
// Each device has one worker thread, one copy of the parameters and one arena for activations. Its replicas run on that
// thread in order; each has its own gradient row. In a step every replica runs forward and backward, the replicas agree
// on a gradient by the policy `Averaging` (parallel/agreement.hpp), and each device updates its parameters. The update
// has the same bits on each device. With ConcatMean the trained model does not depend on the number of devices.
//
// Steps are queued: queue() returns when the work of the step is queued on every device. At most steps_in_flight()
// steps are queued whose reports have not been read. On `Host` this limit is 1, and a step is complete when queue()
// returns. A step that fails throws when its report is read: DivergedError for a loss or a gradient that is not finite,
// InvalidArgument for a label that is not a class of the loss. The parameters are then those before that step. With a
// dynamic loss scale (core/loss_scale.hpp) a step whose gradient is not finite does not fail but is skipped, which its
// report states.
//
// A network that is cut into parts (net/pipeline/split.hpp) is computed by groups of devices, of which each computes
// its parts. What is said above of a device then applies to a group, and `context` is that of the group's first device.
//
// Its parts are in parallel/replicas/, parallel/step/ and parallel/agreement/. A call from a second thread, from inside
// another call of the same training, or in a child of fork() throws InvalidArgument.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <cupola/core/borrowed.hpp>
#include <cupola/core/launched_processes.hpp>
#include <cupola/core/process_number.hpp>
#include <cupola/net/inputs.hpp>
#include <cupola/net/samples_of.hpp>
#include <cupola/ops/peak_rates.hpp>
#include <cupola/parallel/evaluation_feed.hpp>
#include <cupola/parallel/impl/training_diagnostic.hpp>
#include <cupola/parallel/impl/training_parts.hpp>
#include <cupola/parallel/memory_report.hpp>
#include <cupola/parallel/replicas/state_values.hpp>
#include <cupola/parallel/run_policy.hpp>
#include <cupola/parallel/step/inspected_values.hpp>
#include <cupola/parallel/step_report.hpp>
#include <cupola/parallel/training_options.hpp>
#include <cupola/tensor/batch.hpp>
#include <cupola/tensor/require_batch.hpp>
#include <cupola/tensor/tensor.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

template <class Net, class Loss, class Optimizer, class Averaging, class D, class Statistics>
    requires(impl::is_trainable<Net, Loss, Optimizer, Averaging, D, Statistics>())
struct DataParallel<Net, Loss, Optimizer, Averaging, D, Statistics> {
    using NetworkType = Net;
    using Context = typename D::Kernels::Context;
    using LossType = CollectionOf<Loss>;
    using Options = TrainingOptions<Loss, Optimizer, Averaging, typename D::Options, Statistics>;
    using InputExtents = std::remove_cv_t<decltype(Net::input)>;
    using InputSample = InputValue<Net>;
    using InspectionType = Inspection<typename D::Kernels>;
    /// Whether the training may have several processes that agree on more than the gradient.
    static constexpr bool has_agreement = impl::AgreementKind<Averaging, D>::between_processes;
    /// The maximum number of queued steps whose reports have not been read, by the device.
    static constexpr std::int64_t max_steps_in_flight = D::max_steps_in_flight;
    /// Whether queue()'s source of batches is called until the report of the step has been read.
    static constexpr bool keeps_batches =
        requires { typename impl::AgreementOf<Averaging, D, typename Net::Precision::Activation>::Engine; };

    /// Makes the plans and allocates all memory. Throws InvalidArgument, DeviceError, and, before anything is
    /// allocated, OutOfMemory if there is not enough memory. Writes a warning to standard error if a launcher has
    /// started several processes and this training uses one.
    [[gnu::cold]] explicit DataParallel(const Options& chosen)  // misspelt? DataParallel<...>::Options{...} names it
        : options(chosen), parts_(options) {
        if (process().count == 1) impl::warn_of_lone_processes();
    }

    /// The options with which the training was constructed.
    const Options options;

    [[nodiscard]] const MemoryReport& memory() const { return parts_.replicas_.memory(); }
    /// The parts of a network that is cut, by its type or by the options; null for another one.
    [[nodiscard]] const CutInfo* cut() const { return parts_.replicas_.network().cut; }
    /// The columns of a batch that the network and the losses read.
    [[nodiscard]] std::span<const RequiredColumn> required_columns() const { return parts_.required_.span(); }
    /// The number of the step that is queued next; 0 before the first.
    [[nodiscard]] std::int64_t step() const { return parts_.engine_.step(); }
    /// The number of processes between which the replicas are divided, and the number of this one.
    [[nodiscard]] ProcessNumber process() const {
        return {parts_.replicas_.placement().process_count(), parts_.replicas_.placement().process_number()};
    }
    /// The engine that exchanges the processes' gradients; null unless the policy spans processes.
    [[nodiscard]] Processes* processes() const { return parts_.replicas_.settings().processes; }

    /// The maximum number of queued steps whose reports have not been read: the device's, or that of replicas that
    /// train asynchronously.
    [[nodiscard]] std::int64_t steps_in_flight() const { return parts_.replicas_.settings().steps_in_flight; }

    /// For fit() and its callbacks.
    [[nodiscard]] RunPolicy& run_policy() {
        return parts_.joined_.run_policy != nullptr ? *parts_.joined_.run_policy : impl::run_policy_of_one_process();
    }

    /// Whether the parameters are those after a complete step. False if an update was interrupted, if the parameters of
    /// devices differ, or if a collective has failed. After a loss that diverged they are those before the step.
    [[nodiscard]] bool healthy() const { return parts_.engine_.healthy(); }

    /// Queues a step. `batches(step, replica, context)` returns a replica's batch, in memory that its device reads; it
    /// is called on the thread of that device. The memory must not change until the step's report has been read or, if
    /// the device copies batches, until a batch of steps_in_flight() - 1 steps later is requested. With an asynchronous
    /// policy `batches` itself is called until the report of the step has been read, and a temporary does not
    /// compile. Throws InvalidArgument, before anything is queued, for a batch that lacks a column of
    /// required_columns() or has a size without a plan, for a step without samples, and for a learning rate that is
    /// negative or not finite. Also throws the error of an earlier step and exceptions of a schedule. A report that was
    /// not read in time is dropped.
    template <class Batches>
        requires std::is_invocable_r_v<BatchView, Batches&, std::int64_t, int, Context&>
    void queue(Batches&& batches) {
        static_assert(
            std::is_lvalue_reference_v<Batches> || !keeps_batches,
            "asynchronous replicas call the source of batches until the report of the step has been read, and "
            "this one is a temporary: keep it in a variable, or use step()");
        queue_step(batches, {});
    }
    /// The same; also calls `inspector` with an Inspection between the averaging and the update, on the first device's
    /// thread, which waits for it. An exception of `inspector` is rethrown from this function after the step. Needs
    /// #include <cupola/parallel/inspection.hpp>.
    template <class Batches, class Inspector>
        requires std::is_invocable_r_v<BatchView, Batches&, std::int64_t, int, Context&> &&
                 std::is_invocable_v<Inspector&, const InspectionType&>
    void queue(Batches&& batches, Inspector&& inspector) {
        queue_inspected(batches, inspector);
    }
    /// Returns the report of the oldest step whose report was not read, if there are more than `max_in_flight` such
    /// steps, otherwise null. Waits for that step; calling it with 0 until it returns null waits for all. The report is
    /// valid until steps_in_flight() - 1 more steps are queued. Throws the error of that step.
    const StepReport* poll_report() { return poll_report(steps_in_flight() - 1); }
    const StepReport* poll_report(std::int64_t max_in_flight) {
        const impl::Activity::Scope scope(parts_.activity_, "poll_report()");
        return parts_.engine_.poll(max_in_flight);
    }

    /// Queues a step and waits for its report, which is valid until the next step. Throws the errors of queue() and
    /// that of the step. Either all processes of a collective call it for a step, or none.
    template <class Batches>
        requires std::is_invocable_r_v<BatchView, Batches&, std::int64_t, int, Context&>
    const StepReport& step(Batches&& batches) {
        return *queue_step(batches, {}, true);
    }
    template <class Batches, class Inspector>
        requires std::is_invocable_r_v<BatchView, Batches&, std::int64_t, int, Context&> &&
                 std::is_invocable_v<Inspector&, const InspectionType&>
    const StepReport& step(Batches&& batches, Inspector&& inspector) {
        return *queue_inspected(batches, inspector, true);
    }
    /// The same with one batch per replica.
    const StepReport& step(std::span<const BatchView> batches) {
        require(batches.size() == static_cast<std::size_t>(options.replicas), "a step of ", options.replicas,
                options.replicas == 1 ? " replica" : " replicas", " needs one batch per replica, not ", batches.size());
        return step([&](std::int64_t, int replica, Context&) { return batches[static_cast<std::size_t>(replica)]; });
    }

    // The following members wait for all queued steps, and throw the error of a step that failed.

    /// Runs the network forward on `count` batches, which the devices take in turn, and adds up the loss of the data
    /// and the correct predictions. `batches(i, device, context)` returns batch i, on the thread of that device; it has
    /// at most as many samples as the larger of `batch_size` and `evaluation_batch_size`. `weights` selects the trained
    /// parameters or their moving averages; if each replica has its own parameters, the centre's. Throws
    /// InvalidArgument for samples that contain a NaN or an infinity, and DataError if the batches have no samples.
    template <class Batches>
        requires std::is_invocable_r_v<BatchView, Batches&, std::int64_t, int, Context&>
    Evaluation evaluate(Batches&& batches, std::int64_t count, Weights weights = Weights::trained,
                        impl::EvaluationFeed* feed = nullptr) {  // `feed` is for train/evaluate.hpp
        const impl::Activity::Scope scope(parts_.activity_, "evaluate()");
        require_evaluable(batches, count, weights);
        synchronize();
        return parts_.evaluator_.evaluate(parts_.functions_, batches, count, weights, feed);
    }
    /// The same; calls metrics(MetricBatch) for each batch that has samples, in the order of i. Needs
    /// #include <cupola/metrics/metric.hpp>.
    template <class Batches, class Function, class Feed = impl::FunctionFeed>
        requires std::is_invocable_r_v<BatchView, Batches&, std::int64_t, int, Context&> &&
                 (!std::convertible_to<Function, impl::EvaluationFeed*>)
    Evaluation evaluate(Batches&& batches, std::int64_t count, Weights weights, Function&& metrics) {
        constexpr bool included = requires { sizeof(Feed); };
        static_assert(included, "an evaluation with metrics needs #include <cupola/metrics/metric.hpp>");
        if constexpr (included) {
            Feed feed(metrics);
            feed.begin(Net::layers, required_columns());
            return evaluate(batches, count, weights, &feed);
        } else {
            return {};
        }
    }
    /// The checks that evaluate() makes first: throws InvalidArgument for other columns, batches that are too large,
    /// and moving averages that the training does not keep.
    template <class Batches>
    void require_evaluable(const Batches& batches, std::int64_t count, Weights weights) const {
        require(count >= 0, "an evaluation must have 0 or more batches, not ", count);
        parts_.evaluator_.require_weights(weights);
        require_batches(batches, required_columns());
        if constexpr (requires { batches.size_of(count); }) {
            if (count > 0) parts_.evaluator_.require_size(batches.size_of(0));
        } else if constexpr (requires { batches.batch_size() + count; }) {
            if (count > 0) parts_.evaluator_.require_size(batches.batch_size());
        }
    }
    /// The outputs of the network for samples in host memory, sample by sample; at most as many samples as in
    /// evaluate(). With several outputs, those of the last one. The values of a sample are floats, or ids or bytes if
    /// the Input has that type. Throws InvalidArgument for samples that contain a NaN, an infinity or an id that is out
    /// of range.
    [[nodiscard]] std::vector<float> predict(TensorView<const InputSample, InputExtents> samples,
                                             Weights weights = Weights::trained) {
        return predict_output(impl::batch_of_samples<Net>(samples), Net::outputs.size() - 1, weights);
    }
    /// The same for the output with that name. Throws InvalidArgument if the network has none.
    [[nodiscard]] std::vector<float> predict(TensorView<const InputSample, InputExtents> samples,
                                             std::string_view output, Weights weights = Weights::trained) {
        return predict_output(impl::batch_of_samples<Net>(samples), output_of_name(Net::outputs, output), weights);
    }
    /// The same for a batch in host memory with one column per input of the network; other columns are not read.
    [[nodiscard]] std::vector<float> predict(const BatchView& samples, Weights weights = Weights::trained) {
        return predict_output(samples, Net::outputs.size() - 1, weights);
    }
    [[nodiscard]] std::vector<float> predict(const BatchView& samples, std::string_view output,
                                             Weights weights = Weights::trained) {
        return predict_output(samples, output_of_name(Net::outputs, output), weights);
    }
    /// The same for a vector or another contiguous range that contains whole samples. Throws InvalidArgument for a
    /// different number of values.
    template <class Samples>
        requires std::convertible_to<const Samples&, std::span<const InputSample>>
    [[nodiscard]] std::vector<float> predict(const Samples& samples, Weights weights = Weights::trained) {
        return predict(impl::whole_samples<Net>(samples), weights);
    }
    template <class Samples>
        requires std::convertible_to<const Samples&, std::span<const InputSample>>
    [[nodiscard]] std::vector<float> predict(const Samples& samples, std::string_view output,
                                             Weights weights = Weights::trained) {
        return predict(impl::whole_samples<Net>(samples), output, weights);
    }

    /// The parameter arena of a device, `Net::parameter_elements` floats; if each replica has its own parameters, those
    /// of the centre.
    [[nodiscard]] std::vector<float> parameters(int device = 0) {
        const impl::Activity::Scope scope(parts_.activity_, "parameters()");
        synchronize();
        require(device >= 0 && device < options.devices, "device ", device,
                " is out of range: the number of devices is ", options.devices);
        return parts_.replicas_.copied(Net::parameter_elements, device / parts_.replicas_.memory().devices_of_group,
                                       [](auto& state) { return state.worker.model(); });
    }
    /// Sets the parameters of every replica; the layout is that of `parameters()`. Throws InvalidArgument for a value
    /// that is not finite.
    void set_parameters(std::span<const float> values) {
        const impl::Activity::Scope scope(parts_.activity_, "set_parameters()");
        synchronize();
        impl::set_parameters(parts_.replicas_, values);
        parts_.agreement_->set_samples_since(step(), {});
    }

    /// The state on which the next step depends, except for the options and the data. Replicas of other processes
    /// that have parameters of their own are gathered: then all processes call it, after the same step. This and
    /// restore() need #include <cupola/parallel/state_transfer.hpp>.
    template <class Transfer = impl::TransferOfState<D, Net>>
    [[nodiscard]] TrainingState state() {
        if constexpr (impl::is_transfer_included<Transfer>()) {
            const impl::Activity::Scope scope(parts_.activity_, "state()");
            synchronize();
            return parts_.template state<Transfer>();
        } else {
            return {};
        }
    }
    /// Restores a state, and discards the queued steps and their errors. If the state has no loss scale, because it is
    /// from a training in another precision, the initial one is used. Throws InvalidArgument, before anything is
    /// changed, if the state does not fit this network (the message names the first parameter with another name or
    /// other extents), this optimiser, the use of moving averages, or the number of replicas with their own parameters;
    /// and if a value is not finite, or a running variance or a mean of squares of the optimiser is negative. For a
    /// state that was read from a file the error is a DataError that names it.
    template <class Transfer = impl::TransferOfState<D, Net>>
    [[gnu::cold]] void restore(const TrainingState& state) {
        if constexpr (impl::is_transfer_included<Transfer>()) {
            const impl::Activity::Scope scope(parts_.activity_, "restore()");
            parts_.template restore<Transfer>(state);
        }
    }

    /// The gradients of the last step: that of one of this process's replicas' mean loss, or the average over all
    /// replicas, unless each replica is updated by its own. They do not contain the regularisers' gradients, which the
    /// optimiser adds. `Net::trained_elements` floats. Throws InvalidArgument after a step in which the replicas
    /// agreed on a centre.
    [[nodiscard]] std::vector<float> gradient(int replica) {
        const impl::Activity::Scope scope(parts_.activity_, "gradient()");
        synchronize();
        require(replica >= 0 && replica < options.replicas, "replica ", replica,
                " is out of range: the number of replicas is ", options.replicas);
        require(parts_.replicas_.placement().is_here(replica), "the gradient of replica ", replica,
                " is in another process");
        return parts_.gradient(replica);
    }
    [[nodiscard]] std::vector<float> averaged_gradient()
        requires(impl::AgreementKind<Averaging, D>::averages_gradients)
    {
        const impl::Activity::Scope scope(parts_.activity_, "averaged_gradient()");
        require(!parts_.replicas_.settings().centre, policy_name(options.averaging),
                " updates each replica with its own gradient, and averages none");
        synchronize();
        return parts_.replicas_.copied(Net::trained_elements, 0,
                                       [&](auto&) { return parts_.replicas_.gradients().average(0); });
    }

    /// From now on the first device adds the time of each part of its steps to `times`; null stops this. `profile` of
    /// train/profile.hpp makes a table of them. Throws InvalidArgument for a network that is cut into parts, which run
    /// at the same time.
    void time_steps(StepTimer* times) {
        require(times == nullptr || parts_.replicas_.network().cut == nullptr,
                "the parts of a network that is cut run at the same time: time the network without its cuts");
        auto& worker = parts_.replicas_.at(0).worker;
        // Steps in flight of replicas that do not wait for each other have a thread at work, which an error ends too.
        try {
            if (parts_.replicas_.settings().landed_steps > 0) synchronize();
        } catch (...) {
            worker.time(nullptr);
            throw;
        }
        worker.time(times);
    }

    /// From now on `trace` is called with the names of the operations of each step in the order in which a device
    /// queues them, which is not necessarily that of their execution; `{}` stops this.
    void trace_steps(Borrowed<impl::StepTrace> trace) { parts_.engine_.trace(trace); }

    /// The peak rates of a device in this network's precision, measured on all devices at the same time.
    [[nodiscard, gnu::cold]] PeakRates peak_rates() {
        const impl::Activity::Scope scope(parts_.activity_, "peak_rates()");
        synchronize();
        return parts_.peak_rates();
    }

    /// The reason, for the log, why the work of a step is not captured although the device supports that; empty if it
    /// is captured, or if the device does not capture work.
    [[nodiscard, gnu::cold]] std::string not_captured() const { return parts_.engine_.not_repeated(); }
    /// "a step queues 13 kernels and copies, 13 of them in 1 graph": a description of the last step on the first
    /// device, for the log; empty if a part of it was not captured, or if the device does not capture work.
    [[nodiscard, gnu::cold]] std::string launches_description() const { return parts_.engine_.launches_description(); }
    /// Calls visit(recording) for each recording of a device.
    template <class Visit>
    void for_each_captured(int device, Visit&& visit) const {
        parts_.engine_.for_each_recording(device, visit);
    }

private:
    using Parts =
        impl::TrainingParts<Net, LossType, Options, D, Statistics::synchronized && (Net::buffer_elements > 0)>;

    [[nodiscard]] std::vector<float> predict_output(const BatchView& samples, std::size_t output, Weights weights) {
        const impl::Activity::Scope scope(parts_.activity_, "predict()");
        parts_.evaluator_.require_weights(weights);
        require_inputs(samples, required_inputs(Net::layers));
        synchronize();
        return parts_.evaluator_.predict(samples, Net::outputs[output], output, weights);
    }
    template <class Batches>
    const StepReport* queue_step(Batches& batches, typename Parts::Engine::Probe probe, bool waits = false) {
        const impl::Activity::Scope scope(parts_.activity_, "step()");
        require_batches(batches, required_columns(), options.replicas);
        parts_.engine_.queue(batches, probe);
        return waits ? &parts_.engine_.last_report() : nullptr;
    }
    template <class Batches, class Inspector, class Shows = impl::StepProbe<D, typename Net::Precision::Activation>>
    const StepReport* queue_inspected(Batches& batches, Inspector& inspector, bool waits = false) {
        constexpr bool included = requires { sizeof(Shows); };
        static_assert(included, "a step with an inspector needs #include <cupola/parallel/inspection.hpp>");
        if constexpr (included)
            return queue_step(
                batches, [&](auto& engine) { engine.show(inspector); }, waits);
    }
    void synchronize() {
        parts_.engine_.synchronize();
        parts_.engine_.statistics().share();
    }

    Parts parts_;
};

}}  // namespace cupola::CUPOLA_ABI
