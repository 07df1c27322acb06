// SPDX-License-Identifier: Apache-2.0
//
// What a training is between its steps: the devices with their copies of the parameters, the plans and all memory; the
// state that is saved and restored; evaluation. parallel/data_parallel.hpp adds the step.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <cupola/loss/loss_collection.hpp>
#include <cupola/net/plan.hpp>
#include <cupola/ops/machine_rates.hpp>
#include <cupola/optim/optimizer.hpp>
#include <cupola/parallel/averaging.hpp>
#include <cupola/parallel/impl/checked_options.hpp>
#include <cupola/parallel/impl/device_threads.hpp>
#include <cupola/parallel/impl/device_worker.hpp>
#include <cupola/parallel/impl/replica_gradients.hpp>
#include <cupola/parallel/impl/replicas_in_step.hpp>
#include <cupola/parallel/impl/segments_of.hpp>
#include <cupola/parallel/impl/step_tally.hpp>
#include <cupola/parallel/memory_report.hpp>
#include <cupola/parallel/nccl_all_reduce.hpp>
#include <cupola/parallel/non_finite_state.hpp>
#include <cupola/parallel/statistics.hpp>
#include <cupola/parallel/step_report.hpp>
#include <cupola/parallel/training_options.hpp>
#include <cupola/parallel/training_state.hpp>
#include <cupola/tensor/batch.hpp>
#include <cupola/tensor/finite.hpp>
#include <cupola/tensor/require_batch.hpp>
#include <cupola/tensor/tensor.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

template <class Net, class Loss, class Optimizer, class Averaging, class D, class Statistics>
class TrainedNetwork {
public:
    using NetworkType = Net;
    using Context = typename D::Context;
    using LossType = CollectionOf<Loss>;
    using Options = TrainingOptions<Loss, Optimizer, Averaging, typename D::Options, Statistics>;

    /// Makes the plans and allocates all memory. Throws InvalidArgument, DeviceError, or OutOfMemory before anything is
    /// allocated that does not fit.
    [[gnu::cold]] explicit TrainedNetwork(const Options& options)
        : options_(impl::checked_options(options, Net::rows)),
          gradients_(options.replicas, options.devices, Net::parameter_elements, sums_on_devices),
          memory_(memory_needed()),
          threads_(options.devices),
          devices_(static_cast<std::size_t>(options.devices)),
          replicas_(static_cast<std::size_t>(options.replicas)),
          regularized_(LossType::regularized(Net::rows)),
          segments_(impl::segments_of(Net::rows, regularized_)),
          batch_samples_(replicas_.size() * static_cast<std::size_t>(options.accumulation)),
          tally_(options.replicas, LossType::DataLossType::name, regularized_) {
        threads_.run([&](int device) { make_plans(device); });
        for (DeviceState& state : devices_) {
            if (state.worker.largest_plan().total() > memory_.plan.total()) memory_.plan = state.worker.largest_plan();
        }
        require_memory(memory_);
        if constexpr (Net::buffer_elements > 0) statistics_layers_ = running_statistics(Net::rows);
        if constexpr (synchronized) {
            in_step_.make(options_.replicas, at(0).worker.first_plan());
            for (DeviceState& state : devices_) state.merged.resize(in_step_.largest());
        }
        if constexpr (SharesMemory<D>) statistics_ = typename D::Arena(memory_.statistics, "the replicas' statistics");
        threads_.run([&](int device) {
            gradients_.allocate(device, first_replica(device), first_replica(device + 1));
            at(device).worker.allocate(memory_);
        });
        restore(initial_state());
    }

    [[nodiscard]] const Options& options() const { return options_; }
    [[nodiscard]] const MemoryReport& memory() const { return memory_; }
    /// The step that comes next; 0 before the first.
    [[nodiscard]] std::int64_t step() const { return step_; }

    /// Whether the parameters are those after a whole step: false once an update was broken off, or devices' parameters
    /// have parted. A loss that diverged leaves the parameters before the step.
    [[nodiscard]] bool sound() const {
        return std::none_of(devices_.begin(), devices_.end(), [](const DeviceState& state) { return state.updating; });
    }

    /// Runs the network forward on `count` batches, the devices taking them in turn, and adds up the loss of the data
    /// and the correct answers. `batches(i, device, context)` gives batch i, on the thread of that device, of at most
    /// as many samples as the larger of `batch_size` and `evaluation_batch_size`. Throws InvalidArgument for samples that
    /// hold a NaN or an infinity. `weights` says whether the trained parameters are run or their moving averages.
    template <class Batches>
        requires std::is_invocable_r_v<BatchView, Batches&, std::int64_t, int, Context&>
    Evaluation evaluate(Batches&& batches, std::int64_t count, Weights weights = Weights::trained) {
        require_weights(weights);
        require(count >= 0, "an evaluation has 0 or more batches, not ", count);
        require_batches(batches, Net::input);
        if constexpr (requires { batches.size_of(count); }) {
            if (count > 0) require_forward_size(batches.size_of(0));
        }
        std::vector<LossResult> results(static_cast<std::size_t>(count));
        std::vector<std::int64_t> sizes(static_cast<std::size_t>(count));
        threads_.run([&](int device) {
            Context& context = at(device).worker.context();
            const auto loss = options_.loss.data.template operation<D>();
            for (std::int64_t i = device; i < count; i += options_.devices) {
                const BatchView batch = batches(i, device, context);
                require_batch(batch, Net::input);
                if (batch.size == 0) continue;
                require_finite(context, batch, i);
                const float* const logits = forward(at(device), batch, weights);
                results[static_cast<std::size_t>(i)] = loss.forward(context, logits, batch.labels, batch.size, nullptr);
                sizes[static_cast<std::size_t>(i)] = batch.size;
            }
        });
        Evaluation evaluation;
        for (std::size_t i = 0; i < results.size(); ++i) {
            evaluation.samples += sizes[i];
            evaluation.correct += results[i].correct;
            evaluation.loss += results[i].sum;
        }
        if (evaluation.samples > 0) evaluation.loss /= static_cast<double>(evaluation.samples);
        return evaluation;
    }

    using InputExtents = std::remove_cv_t<decltype(Net::input)>;

    /// The outputs of the network for samples of host memory, one after another; as many at most as in evaluate.
    /// Throws InvalidArgument for samples that hold a NaN or an infinity.
    [[nodiscard]] std::vector<float> predict(TensorView<const float, InputExtents> samples,
                                             Weights weights = Weights::trained) {
        require_weights(weights);
        if (!all_finite(samples.elements()))
            throw InvalidArgument("a network takes finite numbers, and " +
                                  non_finite_sample(Net::input, samples.elements()));
        [[maybe_unused]] const auto team = at(0).worker.context().team();  // its memory is made on this thread
        Tensor<D, float, InputExtents> input(samples.batch());
        return copied(static_cast<std::size_t>(samples.batch() * Net::output_shape.size()), 0, [&](DeviceState& state) {
            copy_from_host(state.worker.context(), input, samples);
            return forward(state, {input.data(), nullptr, samples.batch(), Net::input}, weights);
        });
    }

    /// The parameter arena of a device, `Net::parameter_elements` floats.
    [[nodiscard]] std::vector<float> parameters(int device = 0) {
        return copied(Net::parameter_elements, device, [](DeviceState& state) { return state.worker.parameters(); });
    }

    /// Gives every device these parameters, laid out as `parameters()` returns them. Throws InvalidArgument for an arena
    /// of another size, or a parameter that is not finite.
    void set_parameters(std::span<const float> values) {
        impl::require_elements("parameter arena", values.size(), Net::parameter_elements);
        if (const std::string found = non_finite_parameter(Net::rows, values); !found.empty())
            throw InvalidArgument("parameters are finite, and " + found);
        threads_.run([&](int device) { at(device).worker.set(at(device).worker.parameters(), values); });
    }

    /// Everything that the next step depends on beside the options and the data.
    [[nodiscard]] TrainingState state() {
        TrainingState state{.step = step_, .parameters = parameters()};
        if (options_.moving_average.on()) {
            state.averages = copied(Net::parameter_elements, 0, [](DeviceState& d) { return d.worker.averages(); });
        }
        for (int arena = 0; arena < options_.optimizer.state_arenas(); ++arena) {
            state.optimizer.push_back({std::string(options_.optimizer.state_name(arena)),
                                       copied(Net::parameter_elements, 0, [&](DeviceState& d) {
                                           return d.worker.state() + arena * Net::parameter_elements;
                                       })});
        }
        state.buffers = running_statistics_of(0);
        state.tensors = state_tensors(Net::rows);
        return state;
    }

    /// Goes on from a state. Throws InvalidArgument, and has changed nothing then, if it is not one of this network,
    /// optimiser and moving average, with the first parameter whose extents are others, or if a part of it is not finite or
    /// a running variance is below 0.
    void restore(const TrainingState& state) {
        require(state.step >= 0, "a training stands at step 0 or later, not ", state.step);
        if (!state.tensors.empty()) impl::require_tensors_of(Net::rows, state.tensors);
        impl::require_elements("parameter arena", state.parameters.size(), Net::parameter_elements);
        const bool averages = options_.moving_average.on();
        require(state.averages.empty() != averages,
                averages ? "this training keeps moving averages, and the state has none"
                         : "this training keeps no moving averages, and the state has them");
        if (averages) impl::require_elements("moving average", state.averages.size(), Net::parameter_elements);
        impl::require_elements("buffer arena", state.buffers.size(), Net::buffer_elements);
        impl::require_states_of(options_.optimizer, state.optimizer);
        for (const OptimizerState& kept : state.optimizer)
            impl::require_elements("optimiser's state arena", kept.values.size(), Net::parameter_elements);
        if (const std::string found = non_finite_part(Net::rows, state); !found.empty())
            throw InvalidArgument("a training goes on from finite numbers, and the state's " + found);
        threads_.run([&](int device) {
            auto& worker = at(device).worker;
            worker.set(worker.parameters(), state.parameters);
            worker.set(worker.averages(), state.averages);
            worker.set(worker.buffers(), state.buffers);
            float* arena = worker.state();
            for (const OptimizerState& kept : state.optimizer) {
                worker.set(arena, kept.values);
                arena += Net::parameter_elements;
            }
        });
        for (DeviceState& device : devices_) device.updating = false;
        step_ = state.step;
    }

    /// From now on the first device adds where the time of its steps goes to `times`, until that is null: `profile` of
    /// train/profile.hpp makes a table of it.
    void time_steps(StepTimes* times) { at(0).worker.time(times); }

    /// What a device reaches at most in this network's precision, measured on all devices at once.
    [[nodiscard, gnu::cold]] MachineRates machine_rates() {
        MachineRates rates;
        threads_.run([&](int device) {
            const MachineRates measured = ops::MeasureRates<D, Element>::run(at(device).worker.context());
            if (device == 0) rates = measured;
        });
        return rates;
    }

    /// The gradients of the last step: of one replica, or averaged over all. Regularisers are not in them: the
    /// optimiser adds theirs, which is the same for every replica, once.
    [[nodiscard]] std::vector<float> gradient(int replica) {
        require(replica >= 0 && replica < options_.replicas, "there is no replica ", replica, " of ",
                options_.replicas);
        return copied(Net::parameter_elements, device_of(replica), [&](DeviceState&) { return row(replica); });
    }
    [[nodiscard]] std::vector<float> averaged_gradient() {
        return copied(Net::parameter_elements, 0, [&](DeviceState&) { return average_row(0); });
    }

protected:
    /// What activations are kept in.
    using Element = typename Net::Precision::Activation;
    using DeviceState = impl::DeviceState<D, Element>;
    using Replica = impl::Replica;

    /// Whether the gradients of all processes are summed on the devices, apart from the replicas' rows.
    static constexpr bool sums_on_devices = requires { typename GroupOf<Averaging, D>::Type; };
    static constexpr bool synchronized = Statistics::synchronized && Net::buffer_elements > 0;

    [[nodiscard]] DeviceState& at(int device) { return devices_[static_cast<std::size_t>(device)]; }
    [[nodiscard]] Replica& replica_at(int replica) { return replicas_[static_cast<std::size_t>(replica)]; }
    [[nodiscard]] std::int64_t& batch_samples(int part, int replica) {
        return batch_samples_[static_cast<std::size_t>(part * options_.replicas + replica)];
    }

    // What the policies and the optimiser are given.

    /// The columns [begin, end) of the gradients of the replicas that have samples: `samples_of(replica)` says how
    /// many.
    template <class SamplesOf>
    [[nodiscard]] GradientRows gradient_rows(DeviceState& state, std::int64_t begin, std::int64_t end,
                                             SamplesOf&& samples_of) const {
        CountedRows& counted = state.counted_rows;
        counted.clear();
        for (int r = 0; r < options_.replicas; ++r) counted.add(row(r) + begin, samples_of(r));
        return {.rows = counted.rows(),
                .samples = counted.samples(),
                .total_samples = counted.total_samples(),
                .columns = end - begin};
    }

    /// Takes the batches' statistics of a step into `running`: `samples_of(part, replica)` and `row_of(part, replica)`
    /// are a batch's.
    template <class SamplesOf, class RowOf>
    void take_statistics(DeviceState& state, float* running, SamplesOf&& samples_of, RowOf&& row_of) const {
        CountedRows& counted = state.counted_rows;
        for (int part = 0; part < options_.accumulation; ++part) {
            counted.clear();
            for (int r = 0; r < options_.replicas; ++r) counted.add(row_of(part, r), samples_of(part, r));
            if (counted.rows().empty()) continue;
            options_.statistics.update(StatisticsUpdate{.running = running,
                                                        .layers = statistics_layers_,
                                                        .rows = counted.rows(),
                                                        .samples = counted.samples()});
        }
    }

    /// A device's parameters by its average, and then their moving averages.
    void update_parameters(DeviceState& state) const {
        auto& worker = state.worker;
        {
            const Stopwatch watch(worker.times(), StepPart::optimizer);
            options_.optimizer.update(Update<D>{.context = worker.context(),
                                                .parameters = worker.parameters(),
                                                .gradient = average_row(worker.context().ordinal()),
                                                .state = worker.state(),
                                                .elements = Net::parameter_elements,
                                                .segments = segments_,
                                                .step = step_});
        }
        if (!options_.moving_average.on()) return;
        const Stopwatch watch(worker.times(), StepPart::moving_average);
        options_.moving_average.template update<D>(worker.context(), worker.averages(), worker.parameters(),
                                                   Net::parameter_elements, step_ + 1);
    }

    // After a step.

    [[nodiscard]] bool checks_after(std::int64_t step) const {
        return options_.check_every > 0 && (step + 1) % options_.check_every == 0;
    }

    void require_equal_parameters(std::int64_t step) const {
        for (std::size_t device = 1; device < devices_.size(); ++device) {
            if (devices_[device].hash == devices_[0].hash) continue;
            throw ReplicasDiffer(text("after step ", step, " the parameters of device ", device,
                                      " differ from those of device 0: a device computed something else"),
                                 step, static_cast<int>(device));
        }
    }

    /// The slow way, if a device says that its numbers are not finite: padding that is not does not count.
    void require_finite_state(std::int64_t step) {
        if (std::all_of(devices_.begin(), devices_.end(), [](const DeviceState& state) { return state.finite; }))
            return;
        for (int device = 0; device < options_.devices; ++device) {
            const std::string parameter = non_finite_parameter(Net::rows, TrainedNetwork::parameters(device));
            if (!parameter.empty()) throw_update_diverged(step, "parameter " + parameter);
            const std::string buffer = invalid_buffer(Net::rows, running_statistics_of(device));
            if (!buffer.empty()) throw_update_diverged(step, "running statistic " + buffer);
        }
    }

    // Construction.

    [[nodiscard, gnu::cold]] MemoryReport memory_needed() const {
        constexpr std::size_t arena = static_cast<std::size_t>(Net::parameter_elements) * sizeof(float);
        MemoryReport memory;
        memory.devices = options_.devices;
        memory.replicas = options_.replicas;
        memory.parameters = arena;
        memory.optimizer_state = arena * static_cast<std::size_t>(options_.optimizer.state_arenas());
        memory.moving_average = options_.moving_average.on() ? arena : 0;
        memory.buffers = static_cast<std::size_t>(Net::buffer_elements) * sizeof(float);
        // Replicas that run in step have an arena each.
        if (synchronized) memory.arenas = (options_.replicas + options_.devices - 1) / options_.devices;
        memory.statistics = memory.buffers * static_cast<std::size_t>(options_.replicas) *
                            static_cast<std::size_t>(options_.accumulation);
        memory.gradients = gradients_.row_bytes();
        memory.average = gradients_.average_bytes();
        if constexpr (!SharesMemory<D>) {
            const auto batch =
                static_cast<std::size_t>(options_.batch_size * (Net::input.size() + 1)) * sizeof(float);  // with labels
            memory.batches = batch * static_cast<std::size_t>(options_.replicas);
            if (sums_on_devices) memory.average += arena * static_cast<std::size_t>(options_.devices);
        }
        memory.plan.activations =
            planned_activation_bytes(Net::rows, Net::fusion, options_.batch_size, sizeof(Element));
        require_memory(memory);  // before operations are made for a batch that cannot be
        return memory;
    }

    [[gnu::cold]] static void require_memory(const MemoryReport& memory) {
        const std::size_t each = SharesMemory<D> ? 1 : static_cast<std::size_t>(memory.devices);
        const std::size_t available = D::available_memory() * each;
        require<OutOfMemory>(memory.total() <= available, memory.replicas, " replicas on ", memory.devices,
                             memory.devices == 1 ? " device" : " devices", " do not fit: ", bytes_text(available),
                             " are available; ", to_string(memory));
    }

    [[gnu::cold]] void make_plans(int device) {
        DeviceState& state = at(device);
        state.worker.start(device, options_.devices, options_.device);
        for (int lane = 0; lane < memory_.arenas; ++lane) {
            state.worker.template add_plan<Net>(plan_options(options_.batch_size), static_cast<std::size_t>(lane));
            for (const std::int64_t size : options_.other_batch_sizes) {
                state.worker.template add_plan<Net>(plan_options(size), static_cast<std::size_t>(lane));
            }
        }
        // Where normalisations are folded, their weights in float can make evaluation's plan the larger one.
        const std::int64_t evaluated = std::max(options_.batch_size, options_.evaluation_batch_size);
        if (Net::buffer_elements > 0 || evaluated > options_.batch_size)
            state.worker.template add_plan<Net>(PlanOptions{.batch = evaluated, .training = false});
        state.regularization.resize(regularized_.size());
        state.counted_rows.reserve(replicas_.size());
    }

    [[nodiscard, gnu::cold]] TrainingState initial_state() const {
        TrainingState state{.parameters = impl::initial_parameters(Net::rows, options_.seed, options_.initializers)};
        if (options_.moving_average.on()) state.averages = state.parameters;
        for (int arena = 0; arena < options_.optimizer.state_arenas(); ++arena) {
            state.optimizer.push_back(
                {std::string(options_.optimizer.state_name(arena)),
                 std::vector<float>(state.parameters.size(), state_start_of(options_.optimizer, arena))});
        }
        state.buffers = initial_buffers(Net::rows);
        return state;
    }

    [[nodiscard]] static PlanOptions plan_options(std::int64_t batch) {
        return {.batch = batch, .synchronized = synchronized};
    }

    // Evaluation.

    void require_weights(Weights weights) const {
        require(weights == Weights::trained || options_.moving_average.on(),
                "this training keeps no moving averages to run the network with; set moving_average in its options");
    }

    static void require_finite(Context& context, const BatchView& batch, std::int64_t number) {
        const auto elements = static_cast<std::size_t>(batch.size * Net::input.size());
        if (all_finite(context, std::span<const float>(batch.samples, elements))) return;
        std::vector<float> samples(elements);
        D::copy_to_host(context, reinterpret_cast<std::byte*>(samples.data()),
                        reinterpret_cast<const std::byte*>(batch.samples), elements * sizeof(float));
        throw InvalidArgument(
            text("a network takes finite numbers, and in batch ", number, ' ', non_finite_sample(Net::input, samples)));
    }

    void require_forward_size(std::int64_t size) const {
        const std::int64_t most = std::max(options_.batch_size, options_.evaluation_batch_size);
        require(size >= 1 && size <= most, "a forward pass takes 1 to ", most,
                " samples, the larger of batch_size and evaluation_batch_size in the options, not ", size);
    }

    const float* forward(DeviceState& state, const BatchView& batch, Weights weights) {
        const auto team = state.worker.context().team();
        require_forward_size(batch.size);
        const PlanOptions options{.batch = batch.size, .training = false};
        state.worker.template add_plan<Net>(options);
        const float* const parameters =
            weights == Weights::trained ? state.worker.parameters() : state.worker.averages();
        return state.worker.plan_for(options, parameters)
            ->forward(state.worker.context(), batch.samples, parameters, {.training = false},
                      {.running = state.worker.buffers()});
    }

    // Places.

    [[nodiscard]] int first_replica(int device) const {
        return static_cast<int>(static_cast<std::int64_t>(options_.replicas) * device / options_.devices);
    }

    [[nodiscard]] int device_of(int replica) const {
        int device = 0;
        while (first_replica(device + 1) <= replica) ++device;
        return device;
    }

    [[nodiscard]] std::vector<float> running_statistics_of(int device) {
        return copied(Net::buffer_elements, device, [](DeviceState& state) { return state.worker.buffers(); });
    }

    [[noreturn, gnu::cold]] static void throw_update_diverged(std::int64_t step, const std::string& found) {
        throw DivergedError(
            text("after step ", step, " the ", found,
                 ": training diverged in this step or one since the last check; restore an earlier state"),
            step, -1);
    }

    struct Columns {
        std::int64_t begin, end;
    };
    /// Columns are split between devices in whole cache lines, so that no two devices write one.
    [[nodiscard]] Columns columns_of(int device) const {
        constexpr std::int64_t unit = 1024;
        const std::int64_t units = (Net::parameter_elements + unit - 1) / unit;
        const auto edge = [&](int d) { return std::min(Net::parameter_elements, units * d / options_.devices * unit); };
        return {edge(device), edge(device + 1)};
    }

    [[nodiscard]] float* statistics_row(int part, int replica) {
        return reinterpret_cast<float*>(statistics_.data()) +
               (static_cast<std::int64_t>(part) * options_.replicas + replica) * Net::buffer_elements;
    }
    [[nodiscard]] float* row(int replica) const { return gradients_.row(replica); }
    [[nodiscard]] float* average_row(int device) const { return gradients_.average(device); }

    /// `count` floats from where `place` says on a device, read by that device's thread.
    template <class Place>
    [[nodiscard]] std::vector<float> copied(std::size_t count, int only, Place&& place) {
        require(only >= 0 && only < options_.devices, "there is no device ", only, " of ", options_.devices);
        std::vector<float> result(count);
        threads_.run([&](int device) {
            if (device != only) return;
            const float* const from = place(at(device));
            D::copy_to_host(at(device).worker.context(), reinterpret_cast<std::byte*>(result.data()),
                            reinterpret_cast<const std::byte*>(from), count * sizeof(float));
        });
        return result;
    }

    Options options_;
    impl::ReplicaGradients<D> gradients_;
    MemoryReport memory_;
    impl::DeviceThreads threads_;
    std::vector<DeviceState> devices_;
    std::vector<Replica> replicas_;
    std::vector<RegularizedParameter> regularized_;
    std::vector<Segment> segments_;
    /// How many samples each batch of this step has, `accumulation` rows of a number a replica.
    std::vector<std::int64_t> batch_samples_;
    std::vector<RunningStatistics> statistics_layers_;
    typename D::Arena statistics_;
    impl::ReplicasInStep<D, Element> in_step_;
    StepTally tally_;
    std::int64_t step_ = 0;
};

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
