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
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <cupola/loss/loss_collection.hpp>
#include <cupola/net/plan.hpp>
#include <cupola/optim/optimizer.hpp>
#include <cupola/parallel/averaging.hpp>
#include <cupola/parallel/impl/device_threads.hpp>
#include <cupola/parallel/step_report.hpp>
#include <cupola/tensor/batch.hpp>

namespace cupola::inline CUPOLA_ABI {

/// An initialiser for a parameter by its full name, in place of the one that the layer's type names.
struct NamedInitializer {
    std::string parameter;
    Initializer initializer;
};

/// Bytes of a training run, by what they hold.
struct MemoryReport {
    int devices = 1, replicas = 1;
    /// On each device.
    std::size_t parameters = 0, optimizer_state = 0;
    PlanBytes plan;
    /// In all.
    std::size_t gradients = 0, average = 0;
    [[nodiscard]] std::size_t total() const {
        return static_cast<std::size_t>(devices) * (parameters + optimizer_state + plan.total()) + gradients + average;
    }
};

[[nodiscard]] inline std::string to_string(const MemoryReport& memory) {
    return text("memory: ", bytes_text(memory.total()), " = ", memory.devices, " x (", bytes_text(memory.parameters),
                " parameters + ", bytes_text(memory.optimizer_state), " optimiser state + ",
                bytes_text(memory.plan.activations), " activations + ", bytes_text(memory.plan.saved), " saved + ",
                bytes_text(memory.plan.packed), " packed weights + ", bytes_text(memory.plan.scratch), " scratch) + ",
                bytes_text(memory.gradients), " gradients of ", memory.replicas, " replicas + ", bytes_text(memory.average),
                " average");
}

template <Network Net, class Loss, class Optimizer, class Averaging, Device D>
class DataParallel {
    static_assert(!Net::sound || report_mistake<Net::template untrainable<D>()>());
    static_assert(!Net::sound || report_mistake<CollectionOf<Loss>::mistake(Net::rows, Net::output_shape)>());
    static_assert(report_mistake<averaging_mistake<Averaging, D>()>());

public:
    using Context = typename D::Context;
    using LossType = CollectionOf<Loss>;
    using DeviceOptions = typename D::Options;

    struct Options {
        int replicas = 1;
        int devices = 1;
        DeviceOptions device{};
        /// Samples of one replica in one step, and the other batch sizes that will be seen (an epoch's short last batch).
        std::int64_t batch_size = 128;
        std::vector<std::int64_t> other_batch_sizes{};
        std::uint64_t seed = 0;
        LossType loss{};
        Optimizer optimizer{};
        Averaging averaging{};
        /// Every so many steps the devices' parameters are compared by a 64-bit hash; 0 for never.
        int check_every = 50;
        std::vector<NamedInitializer> initializers{};
    };

    /// Makes the plans and allocates all memory. Throws InvalidArgument, DeviceError, or OutOfMemory before anything is
    /// allocated that does not fit.
    explicit DataParallel(const Options& options)
        : options_(checked(options)),
          memory_(memory_needed()),
          threads_(options.devices),
          devices_(static_cast<std::size_t>(options.devices)),
          samples_(static_cast<std::size_t>(options.replicas)),
          ready_(static_cast<std::size_t>(options.devices)),
          slices_of_(static_cast<std::size_t>(options.devices)) {
        regularized_ = LossType::regularized(Net::rows);
        make_segments();
        threads_.run([&](int device) { make_plans(device); });
        for (const Worker& worker : devices_) memory_.plan = largest(memory_.plan, worker.bytes);
        require_memory();
        gradients_ = typename D::Arena(memory_.gradients, "the replicas' gradients");
        average_ = typename D::Arena(memory_.average, "the averaged gradient");
        threads_.run([&](int device) { allocate(device); });
        report_.replicas.resize(static_cast<std::size_t>(options_.replicas));
        for (ReplicaReport& replica : report_.replicas) {
            replica.parts.push_back({std::string(LossType::DataLossType::name), 0.0});
            for (const RegularizedParameter& r : regularized_) replica.parts.push_back({r.name, 0.0});
        }
    }

    [[nodiscard]] const Options& options() const { return options_; }
    [[nodiscard]] const MemoryReport& memory() const { return memory_; }
    /// The step that comes next; 0 before the first.
    [[nodiscard]] std::int64_t step() const { return step_; }

    /// Trains one step. `batches(step, replica, context)` gives a replica's batch; it is called on the thread of the
    /// replica's device. Throws DivergedError when a loss is not finite: no parameter has changed then. The report is valid
    /// until the next step.
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
            Worker& worker = at(device);
            const auto loss = options_.loss.data.template operation<D>();
            for (std::int64_t i = device; i < count; i += options_.devices) {
                const BatchView batch = batches(i, device, *worker.context);
                if (batch.size == 0) continue;
                const float* const logits = forward(worker, batch, false);
                results[static_cast<std::size_t>(i)] =
                    loss.forward(*worker.context, logits, batch.labels, batch.size, nullptr);
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

    /// The outputs of the network for one batch of host memory, of at most `batch_size` samples.
    [[nodiscard]] std::vector<float> predict(const float* samples, std::int64_t size) {
        std::vector<float> outputs(static_cast<std::size_t>(size * Net::output_shape.size()));
        threads_.run([&](int device) {
            if (device != 0) return;
            const float* const result = forward(at(0), {samples, nullptr, size}, false);
            D::copy_to_host(*at(0).context, reinterpret_cast<std::byte*>(outputs.data()),
                            reinterpret_cast<const std::byte*>(result), outputs.size() * sizeof(float));
        });
        return outputs;
    }

    /// The parameter arena of a device, `Net::parameter_elements` floats, on the host.
    [[nodiscard]] std::vector<float> parameters(int device = 0) {
        std::vector<float> result(static_cast<std::size_t>(Net::parameter_elements));
        threads_.run([&](int d) {
            if (d == device) copy_out(d, result, at(d).parameters.data());
        });
        return result;
    }

    /// Gives every device these parameters, laid out as `parameters()` returns them.
    void set_parameters(std::span<const float> values) {
        require(values.size() == static_cast<std::size_t>(Net::parameter_elements), "this network's parameter arena has ",
                Net::parameter_elements, " elements, not ", values.size());
        threads_.run([&](int d) {
            D::copy_from_host(*at(d).context, at(d).parameters.data(), reinterpret_cast<const std::byte*>(values.data()),
                              values.size_bytes());
            ++at(d).version;
        });
    }

    /// The gradients of the last step: of one replica, or averaged over all. Regularisers are not in them: the optimiser
    /// adds theirs, which is the same for every replica, once.
    [[nodiscard]] std::vector<float> gradient(int replica) {
        std::vector<float> result(static_cast<std::size_t>(Net::parameter_elements));
        threads_.run([&](int d) {
            if (d == 0) copy_out(d, result, gradients_.data() + row_offset(replica));
        });
        return result;
    }
    [[nodiscard]] std::vector<float> averaged_gradient() {
        std::vector<float> result(static_cast<std::size_t>(Net::parameter_elements));
        threads_.run([&](int d) {
            if (d == 0) copy_out(d, result, average_data());
        });
        return result;
    }

private:
    struct BatchPlan {
        Plan<D> plan;
        /// The version of the parameters that its weights are packed from.
        std::int64_t prepared = -1;
    };

    /// What a device's thread works with.
    struct Worker {
        std::unique_ptr<Context> context;
        std::vector<BatchPlan> plans;
        PlanBytes bytes;
        typename D::Arena parameters, state, arena;
        std::int64_t version = 0;
        const BatchPlan* last = nullptr;
        std::uint64_t hash = 0;
        std::exception_ptr error;
        std::vector<double> regularization;
    };

    [[nodiscard]] Worker& at(int device) { return devices_[static_cast<std::size_t>(device)]; }

    static const Options& checked(const Options& o) {
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

    [[nodiscard]] MemoryReport memory_needed() const {
        const std::size_t row = static_cast<std::size_t>(Net::parameter_elements) * sizeof(float);
        MemoryReport memory;
        memory.devices = options_.devices;
        memory.replicas = options_.replicas;
        memory.parameters = row;
        memory.optimizer_state = row * static_cast<std::size_t>(options_.optimizer.state_arenas());
        memory.gradients = row * static_cast<std::size_t>(options_.replicas);
        memory.average = options_.replicas > 1 ? row : 0;
        memory.plan.activations = activation_bytes<Net>(options_.batch_size);
        require_memory(memory);  // before operations are made for a batch that cannot be
        return memory;
    }

    void require_memory() const { require_memory(memory_); }
    static void require_memory(const MemoryReport& memory) {
        const std::size_t available = D::available_memory();
        require<OutOfMemory>(memory.total() <= available, memory.replicas, " replicas on ", memory.devices,
                             " devices do not fit: ", bytes_text(available), " are available; ", to_string(memory));
    }

    static PlanBytes largest(const PlanBytes& a, const PlanBytes& b) { return a.total() > b.total() ? a : b; }

    void make_segments() {
        for (const Row& row : Net::rows) {
            for (std::size_t p = 0; p < row.parameters.count; ++p) {
                const std::int64_t size = row.parameters.list[p].shape.size();
                double l2 = 0;
                for (const RegularizedParameter& r : regularized_) {
                    if (r.offset == row.offsets[p]) l2 += r.coefficient;
                }
                segments_.push_back({row.offsets[p], size, l2});
            }
        }
    }

    void make_plans(int device) {
        Worker& worker = at(device);
        worker.context = std::make_unique<Context>(device, options_.device);
        if constexpr (requires { worker.context->flush_denormals(); }) worker.context->flush_denormals();
        const auto team = worker.context->team();
        add_plan(worker, {.batch = options_.batch_size});
        for (const std::int64_t size : options_.other_batch_sizes) add_plan(worker, {.batch = size});
        for (const BatchPlan& plan : worker.plans) worker.bytes = largest(worker.bytes, plan.plan.bytes());
        worker.regularization.resize(regularized_.size());
        Slices& slices = slices_of_[static_cast<std::size_t>(device)];
        slices.rows.resize(samples_.size());
        slices.samples.resize(samples_.size());
    }

    static void add_plan(Worker& worker, const PlanOptions& options) {
        for (const BatchPlan& existing : worker.plans) {
            if (existing.plan.options().batch == options.batch && existing.plan.options().training == options.training) return;
        }
        worker.plans.push_back({Plan<D>::template make<Net>(*worker.context, options)});
        worker.last = nullptr;
    }

    void allocate(int device) {
        Worker& worker = at(device);
        worker.parameters = typename D::Arena(memory_.parameters, text("the parameters of device ", device));
        worker.state = typename D::Arena(memory_.optimizer_state, text("the optimiser's state on device ", device));
        worker.arena = typename D::Arena(memory_.plan.total(), text("the activations of device ", device));
        for (BatchPlan& plan : worker.plans) plan.plan.bind(worker.arena.data());
        std::vector<float> initial(static_cast<std::size_t>(Net::parameter_elements));
        std::uint32_t number = 0;
        for (std::size_t i = 0; i < Net::rows.size(); ++i) {
            const Row& row = Net::rows[i];
            for (std::size_t p = 0; p < row.parameters.count; ++p) {
                const Parameter& parameter = row.parameters.list[p];
                Initializer initializer = parameter.initializer;
                for (const NamedInitializer& named : options_.initializers) {
                    if (named.parameter == parameter_name(Net::rows, i, p)) initializer = named.initializer;
                }
                initialize(std::span(initial).subspan(static_cast<std::size_t>(row.offsets[p]),
                                                      static_cast<std::size_t>(parameter.shape.size())),
                           initializer, parameter.fan_in, parameter.fan_out, options_.seed, number++);
            }
        }
        D::copy_from_host(*worker.context, worker.parameters.data(), reinterpret_cast<const std::byte*>(initial.data()),
                          initial.size() * sizeof(float));
    }

    // A step.

    template <class Batches>
    void step_on(int device, Batches& batches) {
        Worker& worker = at(device);
        const auto team = worker.context->team();
        worker.error = nullptr;
        try {
            run_replicas(device, batches);
        } catch (...) {
            worker.error = std::current_exception();
        }
        ready_[static_cast<std::size_t>(device)] = worker.error == nullptr;
        threads_.meet();  // every gradient is there
        const bool go_on = std::all_of(ready_.begin(), ready_.end(), [](bool ready) { return ready; }) && finite();
        if (go_on) {
            try {
                average(device);
            } catch (...) {
                worker.error = std::current_exception();
            }
        }
        threads_.meet();  // the average is there, and gradients may be overwritten
        if (worker.error) std::rethrow_exception(worker.error);
        if (!go_on) return;
        options_.optimizer.update(Update<D>{.context = *worker.context,
                                            .parameters = data(worker.parameters),
                                            .gradient = reinterpret_cast<const float*>(average_data()),
                                            .state = data(worker.state),
                                            .elements = Net::parameter_elements,
                                            .segments = segments_,
                                            .step = step_});
        ++worker.version;
        if (checks_now()) {
            worker.hash = hash_of(*worker.context, {data(worker.parameters),
                                                    static_cast<std::size_t>(Net::parameter_elements)});
        }
    }

    template <class Batches>
    void run_replicas(int device, Batches& batches) {
        Worker& worker = at(device);
        const auto loss = options_.loss.data.template operation<D>();
        for (std::size_t i = 0; i < regularized_.size(); ++i) {
            const RegularizedParameter& r = regularized_[i];
            worker.regularization[i] =
                0.5 * r.coefficient * sum_of_squares(*worker.context, {data(worker.parameters) + r.offset,
                                                                       static_cast<std::size_t>(r.size)});
        }
        for (int replica = first_replica(device); replica < first_replica(device + 1); ++replica) {
            const BatchView batch = batches(step_, replica, *worker.context);
            ReplicaReport& report = report_.replicas[static_cast<std::size_t>(replica)];
            report.samples = samples_[static_cast<std::size_t>(replica)] = batch.size;
            report.correct = 0;
            report.total = 0;
            for (LossPart& part : report.parts) part.value = 0;
            if (batch.size == 0) continue;
            const PassKey key{.seed = options_.seed,
                              .step = static_cast<std::uint32_t>(step_),
                              .first_sample = replica * options_.batch_size};
            BatchPlan& plan = plan_for(worker, batch.size, true);
            const float* const logits = plan.plan.forward(*worker.context, batch.samples, data(worker.parameters), key);
            const LossResult result =
                loss.forward(*worker.context, logits, batch.labels, batch.size, plan.plan.output_gradient());
            report.correct = result.correct;
            report.parts[0].value = report.total = result.sum / static_cast<double>(batch.size);
            for (std::size_t i = 0; i < regularized_.size(); ++i) {
                report.parts[i + 1].value = worker.regularization[i];
                report.total += worker.regularization[i];
            }
            if (!std::isfinite(report.total)) continue;
            plan.plan.backward(*worker.context, batch.samples, data(worker.parameters),
                               reinterpret_cast<float*>(gradients_.data() + row_offset(replica)), key);
        }
    }

    void average(int device) {
        std::int64_t total = 0;
        for (const std::int64_t count : samples_) total += count;
        require(total > 0, "step ", step_, " has no samples on any replica");
        if (options_.replicas == 1) return;  // its gradient is the average
        const std::int64_t blocks = (Net::parameter_elements + slice_unit - 1) / slice_unit;
        const std::int64_t begin = std::min(Net::parameter_elements, blocks * device / options_.devices * slice_unit);
        const std::int64_t end = std::min(Net::parameter_elements, blocks * (device + 1) / options_.devices * slice_unit);
        std::size_t count = 0;
        Slices& slices = slices_of_[static_cast<std::size_t>(device)];
        for (std::size_t r = 0; r < samples_.size(); ++r) {
            if (samples_[r] == 0) continue;
            slices.rows[count] = reinterpret_cast<const float*>(gradients_.data() + row_offset(static_cast<int>(r))) + begin;
            slices.samples[count] = samples_[r];
            ++count;
        }
        const GradientRows gradients{.rows = {slices.rows.data(), count},
                                     .samples = {slices.samples.data(), count},
                                     .total_samples = total,
                                     .columns = end - begin};
        options_.averaging.average(*at(device).context, gradients,
                                   {reinterpret_cast<float*>(average_.data()) + begin, static_cast<std::size_t>(end - begin)});
    }

    [[nodiscard]] bool finite() const {
        return std::all_of(report_.replicas.begin(), report_.replicas.end(),
                           [](const ReplicaReport& replica) { return std::isfinite(replica.total); });
    }

    [[nodiscard]] bool checks_now() const {
        return options_.devices > 1 && options_.check_every > 0 && (step_ + 1) % options_.check_every == 0;
    }

    void finish_step() {
        report_.step = step_;
        report_.samples = 0;
        report_.loss = 0;
        report_.learning_rate = options_.optimizer.learning_rate_at(step_);
        for (std::size_t r = 0; r < report_.replicas.size(); ++r) {
            const ReplicaReport& replica = report_.replicas[r];
            if (!std::isfinite(replica.total)) {
                throw DivergedError(text("the loss of replica ", r, " is ", replica.total, " at step ", step_,
                                         ": training diverged or its batch holds numbers that are not finite; the "
                                         "parameters are those before the step"),
                                    step_, static_cast<int>(r));
            }
            report_.samples += replica.samples;
            report_.loss += replica.total * static_cast<double>(replica.samples);
        }
        report_.loss /= static_cast<double>(report_.samples);
        if (checks_now()) {
            for (int device = 1; device < options_.devices; ++device) {
                if (at(device).hash == at(0).hash) continue;
                throw ReplicasDiffer(text("after step ", step_, " the parameters of device ", device,
                                          " differ from those of device 0: a device computed something else"),
                                     step_, device);
            }
        }
        ++step_;
    }

    // Running plans.

    BatchPlan& plan_for(Worker& worker, std::int64_t batch, bool training) {
        for (BatchPlan& plan : worker.plans) {
            if (plan.plan.options().batch != batch || plan.plan.options().training != training) continue;
            // Plans share the arena, packed weights included: another plan's run has overwritten this one's.
            if (worker.last != &plan || plan.prepared != worker.version) {
                plan.plan.prepare(*worker.context, data(worker.parameters));
                plan.prepared = worker.version;
                worker.last = &plan;
            }
            return plan;
        }
        throw InvalidArgument(text("a batch has ", batch, " samples, and plans were made for batch_size ",
                                   options_.batch_size, " and other_batch_sizes only"));
    }

    const float* forward(Worker& worker, const BatchView& batch, bool training) {
        const auto team = worker.context->team();
        require(batch.size <= options_.batch_size, "a batch of ", batch.size, " samples is larger than batch_size, ",
                options_.batch_size);
        const std::size_t before = worker.plans.size();
        add_plan(worker, {.batch = batch.size, .training = training});
        if (worker.plans.size() != before) {
            Plan<D>& made = worker.plans.back().plan;
            require<OutOfMemory>(made.bytes().total() <= worker.arena.size(), "a forward pass of ", batch.size,
                                 " samples needs ", bytes_text(made.bytes().total()), " and the arena has ",
                                 bytes_text(worker.arena.size()));
            made.bind(worker.arena.data());
        }
        BatchPlan& plan = plan_for(worker, batch.size, training);
        return plan.plan.forward(*worker.context, batch.samples, data(worker.parameters), {.training = training});
    }

    // Places.

    /// Columns are split between devices at multiples of this, so that two devices never write one cache line.
    static constexpr std::int64_t slice_unit = 1024;

    /// Pointers and counts for a device's call of the averaging policy, kept so that a step allocates nothing.
    struct Slices {
        std::vector<const float*> rows;
        std::vector<std::int64_t> samples;
    };

    [[nodiscard]] int first_replica(int device) const {
        return static_cast<int>(static_cast<std::int64_t>(options_.replicas) * device / options_.devices);
    }
    [[nodiscard]] static std::size_t row_offset(int replica) {
        return static_cast<std::size_t>(replica) * static_cast<std::size_t>(Net::parameter_elements) * sizeof(float);
    }
    [[nodiscard]] std::byte* average_data() { return options_.replicas == 1 ? gradients_.data() : average_.data(); }
    [[nodiscard]] static float* data(typename D::Arena& arena) { return reinterpret_cast<float*>(arena.data()); }
    void copy_out(int device, std::vector<float>& to, const std::byte* from) {
        D::copy_to_host(*at(device).context, reinterpret_cast<std::byte*>(to.data()), from, to.size() * sizeof(float));
    }

    Options options_;
    MemoryReport memory_;
    impl::DeviceThreads threads_;
    std::vector<Worker> devices_;
    std::vector<std::int64_t> samples_;
    std::vector<char> ready_;
    std::vector<Slices> slices_of_;
    std::vector<RegularizedParameter> regularized_;
    std::vector<Segment> segments_;
    typename D::Arena gradients_, average_;
    StepReport report_;
    std::int64_t step_ = 0;
};

}  // namespace cupola::inline CUPOLA_ABI
