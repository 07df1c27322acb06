// SPDX-License-Identifier: Apache-2.0
//
// DataParallel<Net, Loss, Optimizer, Averaging, Device>: a network trained by R replicas on 1 to R devices.
//
// Each device has one worker thread, one copy of the parameters and one arena for activations; its replicas run there in
// order, each with a gradient row of its own. A step: every replica's forward and backward; all devices meet; each device
// averages its slice of the columns; all meet again; each device updates its parameters with the whole average, which
// gives the same bits on each. With ConcatMean the trained model does not depend on the number of devices.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <cupola/loss/loss_collection.hpp>
#include <cupola/net/plan.hpp>
#include <cupola/optim/optimizer.hpp>
#include <cupola/parallel/averaging.hpp>
#include <cupola/parallel/impl/device_threads.hpp>
#include <cupola/parallel/impl/device_worker.hpp>
#include <cupola/parallel/impl/training_mistake.hpp>
#include <cupola/parallel/memory_report.hpp>
#include <cupola/parallel/step_report.hpp>
#include <cupola/parallel/training_options.hpp>
#include <cupola/tensor/batch.hpp>
#include <cupola/tensor/tensor.hpp>

namespace cupola::inline CUPOLA_ABI {

template <class Net, class Loss, class Optimizer, class Averaging, class D>
    requires(impl::is_trainable<Net, Loss, Optimizer, Averaging, D>())
class DataParallel<Net, Loss, Optimizer, Averaging, D> {
public:
    using Context = typename D::Context;
    using LossType = CollectionOf<Loss>;
    using Options = TrainingOptions<Loss, Optimizer, Averaging, typename D::Options>;

    /// Makes the plans and allocates all memory. Throws InvalidArgument, DeviceError, or OutOfMemory before anything is
    /// allocated that does not fit.
    [[gnu::cold]] explicit DataParallel(const Options& options)
        : options_(checked(options)),
          memory_(memory_needed()),
          threads_(options.devices),
          devices_(static_cast<std::size_t>(options.devices)),
          samples_(static_cast<std::size_t>(options.replicas)),
          regularized_(LossType::regularized(Net::rows)) {
        make_segments();
        make_report();
        threads_.run([&](int device) { make_plans(device); });
        for (DeviceState& state : devices_) {
            if (state.worker.largest_plan().total() > memory_.plan.total()) memory_.plan = state.worker.largest_plan();
        }
        require_memory(memory_);
        gradients_ = typename D::Arena(memory_.gradients, "the replicas' gradients");
        average_ = typename D::Arena(memory_.average, "the averaged gradient");
        const std::vector<float> initial = impl::initial_parameters(Net::rows, options_.seed, options_.initializers);
        threads_.run([&](int device) {
            at(device).worker.allocate(memory_);
            at(device).worker.set_parameters(initial);
        });
    }

    [[nodiscard]] const Options& options() const { return options_; }
    [[nodiscard]] const MemoryReport& memory() const { return memory_; }
    /// The step that comes next; 0 before the first.
    [[nodiscard]] std::int64_t step() const { return step_; }

    /// Trains one step. `batches(step, replica, context)` gives a replica's batch; it is called on the thread of the
    /// replica's device. Throws DivergedError when a loss or a gradient is not finite: no parameter has changed then. The
    /// report is valid until the next step.
    template <class Batches>
        requires std::is_invocable_r_v<BatchView, Batches&, std::int64_t, int, Context&>
    const StepReport& step(Batches&& batches) {
        threads_.run([&](int device) { step_on(device, batches); });
        finish_step();
        return report_;
    }

    /// The same with one batch for each replica.
    const StepReport& step(std::span<const BatchView> batches) {
        require(batches.size() == static_cast<std::size_t>(options_.replicas), "a step of ", options_.replicas,
                " replicas takes as many batches, not ", batches.size());
        return step([&](std::int64_t, int replica, Context&) { return batches[static_cast<std::size_t>(replica)]; });
    }

    /// Runs the network forward on `count` batches, the devices taking them in turn, and adds up the loss of the data and
    /// the correct answers. `batches(i, device, context)` gives batch i, of at most `batch_size` samples, on the thread of
    /// that device.
    template <class Batches>
        requires std::is_invocable_r_v<BatchView, Batches&, std::int64_t, int, Context&>
    Evaluation evaluate(Batches&& batches, std::int64_t count) {
        std::vector<LossResult> results(static_cast<std::size_t>(count));
        std::vector<std::int64_t> sizes(static_cast<std::size_t>(count));
        threads_.run([&](int device) {
            Context& context = at(device).worker.context();
            const auto loss = options_.loss.data.template operation<D>();
            for (std::int64_t i = device; i < count; i += options_.devices) {
                const BatchView batch = batches(i, device, context);
                if (batch.size == 0) continue;
                const float* const logits = forward(at(device), batch);
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

    /// The outputs of the network for at most `batch_size` samples of host memory, one after another.
    [[nodiscard]] std::vector<float> predict(TensorView<const float, InputExtents> samples) {
        Tensor<D, float, InputExtents> input(samples.batch());
        return copied(static_cast<std::size_t>(samples.batch() * Net::output_shape.size()), 0, [&](DeviceState& state) {
            copy_from_host(state.worker.context(), input, samples);
            return forward(state, {input.data(), nullptr, samples.batch()});
        });
    }

    /// The parameter arena of a device, `Net::parameter_elements` floats.
    [[nodiscard]] std::vector<float> parameters(int device = 0) {
        return copied(Net::parameter_elements, device, [](DeviceState& state) { return state.worker.parameters(); });
    }

    /// Gives every device these parameters, laid out as `parameters()` returns them.
    void set_parameters(std::span<const float> values) {
        require(values.size() == static_cast<std::size_t>(Net::parameter_elements), "this network's parameter arena has ",
                Net::parameter_elements, " elements, not ", values.size());
        threads_.run([&](int device) { at(device).worker.set_parameters(values); });
    }

    /// The gradients of the last step: of one replica, or averaged over all. Regularisers are not in them: the optimiser
    /// adds theirs, which is the same for every replica, once.
    [[nodiscard]] std::vector<float> gradient(int replica) {
        return copied(Net::parameter_elements, 0, [&](DeviceState&) { return row(replica); });
    }
    [[nodiscard]] std::vector<float> averaged_gradient() {
        return copied(Net::parameter_elements, 0, [&](DeviceState&) { return average_row(); });
    }

private:
    using DeviceState = impl::DeviceState<D>;

    [[nodiscard]] DeviceState& at(int device) { return devices_[static_cast<std::size_t>(device)]; }
    [[nodiscard]] ReplicaReport& report_of(int replica) { return report_.replicas[static_cast<std::size_t>(replica)]; }

    // Construction.

    [[gnu::cold]] static const Options& checked(const Options& o) {
        constexpr int most = 1 << 20;
        require(o.replicas >= 1 && o.replicas <= most, "a training has 1 to ", most, " replicas, not ", o.replicas);
        require(o.devices >= 1 && o.devices <= o.replicas, "a training of ", o.replicas, " replicas has 1 to ", o.replicas,
                " devices, not ", o.devices);
        require(o.batch_size >= 1, "a batch has at least 1 sample, not ", o.batch_size);
        for (const std::int64_t size : o.other_batch_sizes) {
            require(size >= 1 && size <= o.batch_size, "the other batch sizes are 1 to batch_size, ", o.batch_size, ", not ",
                    size);
        }
        require(o.check_every >= 0, "parameters are compared every 0 (never) or more steps, not ", o.check_every);
        for (const NamedInitializer& named : o.initializers) {
            bool found = false;
            for (std::size_t row = 0; row < Net::rows.size(); ++row) {
                for (std::size_t p = 0; p < Net::rows[row].parameters.count; ++p) {
                    found = found || parameter_name(Net::rows, row, p) == named.parameter;
                }
            }
            require(found, "an initialiser is given for ", named.parameter, ", which the network does not have");
        }
        return o;
    }

    [[nodiscard, gnu::cold]] MemoryReport memory_needed() const {
        constexpr std::size_t arena = static_cast<std::size_t>(Net::parameter_elements) * sizeof(float);
        MemoryReport memory;
        memory.devices = options_.devices;
        memory.replicas = options_.replicas;
        memory.parameters = arena;
        memory.optimizer_state = arena * static_cast<std::size_t>(options_.optimizer.state_arenas());
        memory.gradients = arena * static_cast<std::size_t>(options_.replicas);
        memory.average = options_.replicas > 1 ? arena : 0;
        memory.plan.activations = activation_bytes<Net>(options_.batch_size);
        require_memory(memory);  // before operations are made for a batch that cannot be
        return memory;
    }

    [[gnu::cold]] static void require_memory(const MemoryReport& memory) {
        const std::size_t available = D::available_memory();
        require<OutOfMemory>(memory.total() <= available, memory.replicas, " replicas on ", memory.devices,
                             memory.devices == 1 ? " device" : " devices", " do not fit: ", bytes_text(available),
                             " are available; ", to_string(memory));
    }

    /// One segment a parameter, with what the regularisers add to its gradient.
    [[gnu::cold]] void make_segments() {
        for (const Row& row : Net::rows) {
            for (std::size_t p = 0; p < row.parameters.count; ++p) {
                double l2 = 0;
                for (const RegularizedParameter& r : regularized_) l2 += r.offset == row.offsets[p] ? r.coefficient : 0.0;
                segments_.push_back({row.offsets[p], row.parameters.list[p].shape.size(), l2});
            }
        }
    }

    [[gnu::cold]] void make_report() {
        report_.replicas.resize(static_cast<std::size_t>(options_.replicas));
        for (ReplicaReport& replica : report_.replicas) {
            replica.parts.push_back({std::string(LossType::DataLossType::name), 0.0});
            for (const RegularizedParameter& r : regularized_) replica.parts.push_back({r.name, 0.0});
        }
    }

    [[gnu::cold]] void make_plans(int device) {
        DeviceState& state = at(device);
        state.worker.start(device, options_.devices, options_.device);
        state.worker.template add_plan<Net>({.batch = options_.batch_size});
        for (const std::int64_t size : options_.other_batch_sizes) state.worker.template add_plan<Net>({.batch = size});
        state.regularization.resize(regularized_.size());
        state.slice_rows.resize(samples_.size());
        state.slice_samples.resize(samples_.size());
    }

    // A step.

    template <class Batches>
    void step_on(int device, Batches& batches) {
        DeviceState& state = at(device);
        const auto team = state.worker.context().team();
        state.error = nullptr;
        state.averaged = false;
        try {
            run_replicas(device, batches);
        } catch (...) {
            state.error = std::current_exception();
        }
        state.ready = state.error == nullptr;
        threads_.meet();  // every gradient is there
        if (all_ready()) {
            try {
                state.averaged = average(device);
            } catch (...) {
                state.error = std::current_exception();
            }
        }
        threads_.meet();  // the average is there, and gradients may be overwritten
        if (state.error) std::rethrow_exception(state.error);
        if (all_averaged()) update(state);
    }

    template <class Batches>
    void run_replicas(int device, Batches& batches) {
        DeviceState& state = at(device);
        Context& context = state.worker.context();
        for (std::size_t i = 0; i < regularized_.size(); ++i) {
            const RegularizedParameter& r = regularized_[i];
            const std::span<const float> weights(state.worker.parameters() + r.offset, static_cast<std::size_t>(r.size));
            state.regularization[i] = 0.5 * r.coefficient * sum_of_squares(context, weights);
        }
        for (int replica = first_replica(device); replica < first_replica(device + 1); ++replica) {
            run_replica(state, replica, batches(step_, replica, context));
        }
    }

    void run_replica(DeviceState& state, int replica, const BatchView& batch) {
        Context& context = state.worker.context();
        ReplicaReport& report = report_of(replica);
        report.samples = samples_[static_cast<std::size_t>(replica)] = batch.size;
        report.correct = 0;
        report.total = 0;
        for (LossPart& part : report.parts) part.value = 0;
        if (batch.size == 0) return;
        Plan<D>* const plan = state.worker.plan_for({.batch = batch.size});
        require(plan != nullptr, "a batch has ", batch.size, " samples, and plans were made for batch_size ",
                options_.batch_size, " and other_batch_sizes only");
        const PassKey key{.seed = options_.seed,
                          .step = static_cast<std::uint32_t>(step_),
                          .first_sample = replica * options_.batch_size};
        const float* const logits = plan->forward(context, batch.samples, state.worker.parameters(), key);
        const LossResult result = options_.loss.data.template operation<D>().forward(context, logits, batch.labels, batch.size,
                                                                                     plan->output_gradient());
        report.correct = result.correct;
        report.parts[0].value = report.total = result.sum / static_cast<double>(batch.size);
        for (std::size_t i = 0; i < regularized_.size(); ++i) {
            report.total += report.parts[i + 1].value = state.regularization[i];
        }
        if (std::isfinite(report.total)) {
            plan->backward(context, batch.samples, state.worker.parameters(), row(replica), key);
        }
    }

    /// Averages this device's slice of the columns; false if it is not finite. A NaN in a batch need not reach the loss
    /// (max(NaN, 0) is 0 in a processor's instruction), but it does reach the gradient.
    bool average(int device) {
        DeviceState& state = at(device);
        const auto [begin, end] = columns_of(device);
        const std::span<float> mean(average_row() + begin, static_cast<std::size_t>(end - begin));
        GradientRows gradients{.columns = end - begin};
        std::size_t count = 0;
        for (std::size_t r = 0; r < samples_.size(); ++r) {
            gradients.total_samples += samples_[r];
            if (samples_[r] == 0) continue;
            state.slice_rows[count] = row(static_cast<int>(r)) + begin;
            state.slice_samples[count] = samples_[r];
            ++count;
        }
        require(count > 0, "step ", step_, " has no samples on any replica");
        gradients.rows = {state.slice_rows.data(), count};
        gradients.samples = {state.slice_samples.data(), count};
        // One replica's gradient is the average, in place.
        if (options_.replicas > 1) options_.averaging.average(state.worker.context(), gradients, mean);
        return all_finite(state.worker.context(), mean);
    }

    void update(DeviceState& state) {
        options_.optimizer.update(Update<D>{.context = state.worker.context(),
                                            .parameters = state.worker.parameters(),
                                            .gradient = average_row(),
                                            .state = state.worker.state(),
                                            .elements = Net::parameter_elements,
                                            .segments = segments_,
                                            .step = step_});
        state.worker.parameters_changed();
        if (!checks_now()) return;
        const std::span<const float> parameters(state.worker.parameters(), static_cast<std::size_t>(Net::parameter_elements));
        state.hash = hash_of(state.worker.context(), parameters);
    }

    void finish_step() {
        report_.step = step_;
        report_.samples = 0;
        report_.loss = 0;
        report_.learning_rate = options_.optimizer.learning_rate_at(step_);
        for (std::size_t r = 0; r < report_.replicas.size(); ++r) {
            const ReplicaReport& replica = report_.replicas[r];
            if (!std::isfinite(replica.total)) throw_diverged(text("the loss of replica ", r, " is ", replica.total), static_cast<int>(r));
            report_.samples += replica.samples;
            report_.loss += replica.total * static_cast<double>(replica.samples);
        }
        report_.loss /= static_cast<double>(report_.samples);
        if (!all_averaged()) throw_gradient_not_finite();
        if (checks_now()) require_equal_parameters();
        ++step_;
    }

    [[nodiscard]] bool all_ready() const {
        return std::all_of(devices_.begin(), devices_.end(), [](const DeviceState& state) { return state.ready; }) &&
               std::all_of(report_.replicas.begin(), report_.replicas.end(),
                           [](const ReplicaReport& replica) { return std::isfinite(replica.total); });
    }
    [[nodiscard]] bool all_averaged() const {
        return std::all_of(devices_.begin(), devices_.end(), [](const DeviceState& state) { return state.averaged; });
    }
    [[nodiscard]] bool checks_now() const {
        return options_.devices > 1 && options_.check_every > 0 && (step_ + 1) % options_.check_every == 0;
    }

    // What can go wrong in a step.

    [[noreturn, gnu::cold]] void throw_diverged(const std::string& what, int replica) const {
        throw DivergedError(text(what, " at step ", step_,
                                 ": training diverged or a batch holds numbers that are not finite; the parameters are "
                                 "those before the step"),
                            step_, replica);
    }

    /// Finds whose gradient it is: the slow way, for the step that failed.
    [[noreturn, gnu::cold]] void throw_gradient_not_finite() {
        int found = -1;
        threads_.run([&](int device) {
            for (int r = 0; device == 0 && r < options_.replicas && found < 0; ++r) {
                const std::span<const float> values(row(r), static_cast<std::size_t>(Net::parameter_elements));
                if (report_of(r).samples > 0 && !all_finite(at(0).worker.context(), values)) found = r;
            }
        });
        throw_diverged(text(found < 0 ? std::string("the averaged gradient") : text("the gradient of replica ", found),
                            " is not finite"),
                       found);
    }

    void require_equal_parameters() const {
        for (std::size_t device = 1; device < devices_.size(); ++device) {
            if (devices_[device].hash == devices_[0].hash) continue;
            throw ReplicasDiffer(text("after step ", step_, " the parameters of device ", device,
                                      " differ from those of device 0: a device computed something else"),
                                 step_, static_cast<int>(device));
        }
    }

    // Evaluation.

    const float* forward(DeviceState& state, const BatchView& batch) {
        const auto team = state.worker.context().team();
        require(batch.size >= 1 && batch.size <= options_.batch_size, "a forward pass takes 1 to batch_size samples, ",
                options_.batch_size, ", not ", batch.size);
        const PlanOptions options{.batch = batch.size, .training = false};
        state.worker.template add_plan<Net>(options);
        return state.worker.plan_for(options)->forward(state.worker.context(), batch.samples, state.worker.parameters(),
                                                       {.training = false});
    }

    // Places.

    [[nodiscard]] int first_replica(int device) const {
        return static_cast<int>(static_cast<std::int64_t>(options_.replicas) * device / options_.devices);
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

    [[nodiscard]] float* row(int replica) {
        return reinterpret_cast<float*>(gradients_.data()) + replica * Net::parameter_elements;
    }
    [[nodiscard]] float* average_row() {
        return options_.replicas == 1 ? row(0) : reinterpret_cast<float*>(average_.data());
    }

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
    MemoryReport memory_;
    impl::DeviceThreads threads_;
    std::vector<DeviceState> devices_;
    std::vector<std::int64_t> samples_;
    std::vector<RegularizedParameter> regularized_;
    std::vector<Segment> segments_;
    typename D::Arena gradients_, average_;
    StepReport report_;
    std::int64_t step_ = 0;
};

}  // namespace cupola::inline CUPOLA_ABI
