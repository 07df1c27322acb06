// SPDX-License-Identifier: Apache-2.0
//
// Replicas: the replicas of a training on its devices, between steps: one worker thread per device, the copies of the
// parameters, the plans, the gradient rows and each device's queue. It is one type for every network of a device and an
// element type.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/fixed_array.hpp>
#include <cupola/core/function_ref.hpp>
#include <cupola/core/loss_scale.hpp>
#include <cupola/device/queue.hpp>
#include <cupola/ops/id_check.hpp>
#include <cupola/ops/training_step.hpp>
#include <cupola/parallel/agreement.hpp>
#include <cupola/parallel/averaging.hpp>
#include <cupola/parallel/impl/network_info.hpp>
#include <cupola/parallel/memory_report.hpp>
#include <cupola/parallel/replicas/device_state.hpp>
#include <cupola/parallel/replicas/device_threads.hpp>
#include <cupola/parallel/replicas/replica_gradients.hpp>
#include <cupola/parallel/replicas/replica_placement.hpp>
#include <cupola/parallel/replicas/sample_counts.hpp>
#include <cupola/parallel/replicas/status.hpp>
#include <cupola/parallel/replicas/weighted_rows.hpp>
#include <cupola/processes/processes.hpp>
#include <cupola/tensor/require_batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The settings of a replica set.
template <class DeviceOptions>
struct ReplicaSettings {
    int replicas = 1, devices = 1, gradient_accumulation_steps = 1;
    DeviceOptions device{};
    std::int64_t batch_size = 0;
    std::span<const std::int64_t> other_batch_sizes{};
    /// The largest batch of an evaluation, where that is more than batch_size.
    std::int64_t evaluation_batch_size = 0;
    int state_arenas = 0;
    bool moving_average = false;
    /// Whether the replicas stop inside a pass to all-reduce statistics: each replica then has an arena of activations.
    bool synchronized = false;
    /// Whether the average is separate from the gradient even of a single replica, because other processes have replicas.
    bool separate_average = false;
    /// Whether each replica, and not each device, has its own parameters.
    bool own_parameters = false;
    /// Floats of the sums that a collective makes on each device, beside the average.
    std::int64_t sums = 0;
    /// The minimum number of elements of a bucket of the gradient; 0 for one bucket.
    std::int64_t bucket_elements = 0;
    std::size_t regularized = 0;
    /// Whether the loss has weights, which its reports contain; otherwise each sample has the weight 1.
    bool weighted = false;
    /// The number of reports of each batch beside that of the sum of its losses.
    std::size_t losses = 0;
    /// The processes that the replicas are divided between; `processes` is their engine, null unless the policy has one; must
    /// outlive the replica set.
    ProcessNumber process{};
    Processes* processes = nullptr;
    /// Whether each process reads the rows of all, and writes a part of one average.
    bool averages_rows_of_all = false;
    /// The columns that the network and the losses read; must outlive the replica set.
    std::span<const RequiredColumn> required{};
    LossScale loss_scale = LossScale::constant(1);
    /// Whether a step is skipped whose samples all have the weight 0.
    bool skips_without_weight = false;

    /// Whether the gradient that parameters are updated with is in memory beside the replicas' rows.
    [[nodiscard]] bool has_averages() const { return !own_parameters && (separate_average || replicas > 1); }
};

template <class D, class T>
class Replicas : public ReplicaPlacement {
public:
    [[gnu::cold]] ~Replicas();
    using Kernels = typename D::Kernels;
    using Context = typename Kernels::Context;
    using State = DeviceState<D, T>;
    using Network = NetworkInfo<Kernels, T>;
    using Setup = ReplicaSettings<typename D::Options>;

    /// Makes the plans and allocates all memory. Throws InvalidArgument, DeviceError, or, before anything is allocated,
    /// OutOfMemory if the memory does not suffice.
    [[gnu::cold]] Replicas(const Network& network, const Setup& setup);

    [[nodiscard]] const Network& network() const { return network_; }
    [[nodiscard]] const MemoryReport& memory() const { return memory_; }
    [[nodiscard]] bool weighted() const { return setup_.weighted; }
    [[nodiscard]] const LossScale& loss_scale() const { return setup_.loss_scale; }
    /// The loss scale if it is constant, and 1 if the devices keep one that changes.
    [[nodiscard]] double constant_loss_scale() const {
        return setup_.loss_scale.dynamic ? 1.0 : setup_.loss_scale.initial;
    }
    /// The loss scale of the step in the device's memory; null if it is constant.
    [[nodiscard]] const float* scale_on_device(int device) {
        if (!setup_.loss_scale.dynamic) return nullptr;
        return &step_status(at(device).queue->status())->loss_scale.scale;
    }
    [[nodiscard]] bool skips_without_weight() const { return setup_.skips_without_weight; }
    /// Whether the devices may skip a step.
    [[nodiscard]] bool may_skip() const { return setup_.loss_scale.dynamic || setup_.skips_without_weight; }
    /// Whether a step of a device has failed, where that is not the same as not healthy; null otherwise.
    [[nodiscard]] const std::int32_t* failed(int device) {
        return may_skip() ? &step_status(at(device).queue->status())->failed : nullptr;
    }
    /// The end of a device's step that it may skip. `divisor` is that of the mean.
    [[nodiscard]] ops::LossScaleUpdate loss_scale_update(int device, const float* divisor);
    /// The number of reports of each batch beside that of the sum of its losses.
    [[nodiscard]] std::size_t losses() const { return setup_.losses; }
    /// The reports of all batches of a device, in the device's memory.
    [[nodiscard]] std::span<const LossReport> reports_of(int device) {
        const int replicas = replicas_of(device);
        return {status(device).report(at(device).queue->status(), 0),
                static_cast<std::size_t>(replicas * setup_.gradient_accumulation_steps)};
    }
    /// Inside queued work, where the loss has weights: the divisor of the device becomes `scale` times the weight of its samples.
    void weigh(int device, double scale) {
        if (!weighted()) return;
        float* const divisor = &step_status(at(device).queue->status())->divisor;
        ops::TrainingStep<Kernels>::weigh(context(device), reports_of(device), scale, divisor);
    }
    [[nodiscard]] Processes* processes() const { return setup_.processes; }
    /// Whether a collective gathers the blocks of all devices of all processes.
    [[nodiscard]] bool gathers_blocks() const { return process_count() > 1 && setup_.processes == nullptr; }
    /// The columns that a batch must have.
    [[nodiscard]] std::span<const RequiredColumn> required_columns() const { return setup_.required; }
    [[nodiscard]] const StatusLayout& status(int device) const { return status_[static_cast<std::size_t>(device)]; }
    [[nodiscard]] DeviceThreads& threads() { return threads_; }
    [[nodiscard]] State& at(int device) { return devices_[static_cast<std::size_t>(device)]; }
    [[nodiscard]] std::span<State> devices() { return devices_; }
    [[nodiscard]] std::span<const State> devices() const { return devices_; }
    [[nodiscard]] Context& context(int device) { return at(device).worker.context(); }
    [[nodiscard]] std::int64_t batch_size() const { return setup_.batch_size; }
    [[nodiscard]] int gradient_accumulation_steps() const { return setup_.gradient_accumulation_steps; }
    /// Whether the replicas run in step and all-reduce the statistics of their batches.
    [[nodiscard]] bool synchronized() const { return setup_.synchronized; }
    /// The elements of a gradient, of an arena of the optimiser's state and of the moving averages.
    [[nodiscard]] std::size_t elements() const { return static_cast<std::size_t>(network_.trained_elements); }
    /// The elements of a copy of the parameters: those, and then the frozen ones.
    [[nodiscard]] std::size_t all_elements() const { return static_cast<std::size_t>(network_.parameter_elements); }

    /// The parameters that a replica computes with.
    [[nodiscard]] float* parameters(int replica) { return at(device_of(replica)).worker.parameters(copy_of(replica)); }

    /// A barrier of all devices, called on each device's thread: see DeviceThreads. Returns false if a device has failed.
    bool arrive_and_wait(int device);
    /// The error of the first device that has failed, or null; behind a barrier.
    [[nodiscard]] std::exception_ptr first_error() const {
        for (const State& state : devices_) {
            if (state.error) return state.error;
        }
        return nullptr;
    }
    /// As `attempt` of a device, but also if it has failed before; the first error is kept.
    void attempt_always(int device, FunctionRef<void()> work) {
        try {
            work();
        } catch (...) {
            if (!at(device).error) at(device).error = std::current_exception();
        }
    }

    /// The columns of the average that a device computes.
    [[nodiscard]] ColumnRange columns_of(int device) const {
        return ReplicaPlacement::columns_of(device, network_.trained_elements);
    }
    [[nodiscard]] float* row(int replica) const { return gradients_.row(replica); }
    [[nodiscard]] float* average(int device) const { return gradients_.average(device); }
    /// A device's averaged gradient, of all parameters.
    [[nodiscard]] std::span<float> average_span(int device) const { return {average(device), elements()}; }
    /// Whether the average of a single replica is its gradient, in place.
    [[nodiscard]] bool average_in_place() const { return gradients_.average_bytes() == 0; }

    /// The columns [begin, end) of the gradients of the replicas that have samples; `samples_of(replica)` returns their
    /// number. Valid until the step that replaces `step` is queued.
    template <class SamplesOf>
    [[nodiscard]] GradientRows gradient_rows(int device, std::int64_t step, std::int64_t begin, std::int64_t end,
                                             SamplesOf&& samples_of) {
        WeightedRows& weighted =
            at(device).weighted_rows_of_step[static_cast<std::size_t>(step % D::max_steps_in_flight)];
        weighted.clear();
        for (int r = 0; r < setup_.replicas; ++r) weighted.add(row(r) + begin, samples_of(r));
        return {.rows = weighted.rows(),
                .samples = weighted.samples(),
                .total_samples = weighted.total_samples(),
                .columns = end - begin};
    }

    /// The columns from `begin` on of a device's rows, or of those of all devices, for the search of what makes their mean not
    /// finite. The device reads the rows of others only before a barrier, after which those write them again.
    [[nodiscard]] ops::RowsOfMean rows_of_mean(int device, std::int64_t begin = 0, bool of_all_devices = false);
    /// The element of a replica's gradient that the device's mean was found not finite at in a step that is complete; -1 if
    /// there is none.
    [[nodiscard]] std::int64_t not_finite_element(std::int64_t step, int replica);

    [[nodiscard]] PlanOptions plan_options(std::int64_t batch) const {
        return {.batch = batch, .synchronized = setup_.synchronized, .bucket_elements = setup_.bucket_elements};
    }
    /// The plan that computes every layer's output; on the device's thread.
    [[nodiscard]] Plan<Kernels, T>& inspection_plan(int device, std::int64_t batch) {
        return at(device).worker.inspection_plan(network_.make, batch);
    }

    /// `count` floats from the address that `place` returns for a device, read by that device's thread.
    template <class Place>
    [[nodiscard]] std::vector<float> copied(std::int64_t count, int only, Place&& place) {
        require(only >= 0 && only < setup_.devices, "device ", only, " is out of range: the number of devices is ",
                setup_.devices);
        std::vector<float> result(static_cast<std::size_t>(count));
        threads_.run([&](int device) {
            if (device != only) return;
            const float* const from = place(at(device));
            Kernels::copy_to_host(context(device), reinterpret_cast<std::byte*>(result.data()),
                                  reinterpret_cast<const std::byte*>(from), result.size() * sizeof(float));
        });
        return result;
    }

private:
    [[nodiscard, gnu::cold]] MemoryReport memory_needed() const;
    [[nodiscard, gnu::cold]] const MemoryReport& required(const MemoryReport& memory) const;
    [[gnu::cold]] void make_plans(int device);
    [[gnu::cold]] void allocate(int device);

    Network network_;
    Setup setup_;
    ReplicaGradients<Kernels> gradients_;
    MemoryReport memory_;
    FixedArray<StatusLayout> status_;
    DeviceThreads threads_;
    FixedArray<State> devices_;
    bool shares_rows_ = false;
};

template <class D, class T>
Replicas<D, T>::~Replicas() = default;

// Defined outside of the class, and so not inline: programs that link to cupola::ops do not instantiate what it has
// compiled.

template <class D, class T>
Replicas<D, T>::Replicas(const Network& network, const Setup& setup)
    : ReplicaPlacement(setup.replicas, setup.devices, setup.own_parameters, setup.process.count, setup.process.number),
      network_(network),
      setup_(setup),
      gradients_(*this, network.trained_elements, setup.has_averages()),
      memory_(required(memory_needed())),  // before operations are made for a batch that does not fit
      status_(static_cast<std::size_t>(setup.devices)),
      threads_(setup.devices),
      devices_(static_cast<std::size_t>(setup.devices)) {
    for (int device = 0; device < setup.devices; ++device) {
        const auto batches = static_cast<std::size_t>(replicas_of(device) * setup.gradient_accumulation_steps);
        status_[static_cast<std::size_t>(device)] =
            StatusLayout(setup.regularized, static_cast<std::size_t>(setup.replicas), batches, setup.losses,
                         network.buffer_elements);
    }
    if (gathers_blocks()) {
        std::size_t largest = 0;
        for (const StatusLayout& each : status_) largest = std::max(largest, each.own_bytes());
        for (StatusLayout& each : status_)
            each.gather(status_.size() * static_cast<std::size_t>(process_count()), largest);
    }
    threads_.run([&](int device) { make_plans(device); });
    for (State& state : devices_) {
        if (state.worker.largest_plan().total() > memory_.plan.total()) memory_.plan = state.worker.largest_plan();
    }
    memory_ = required(memory_);
    if (setup.processes != nullptr && setup.averages_rows_of_all && setup.has_averages())
        shares_rows_ = gradients_.place_in_shared(*setup.processes);
    threads_.run([&](int device) { allocate(device); });
    setup_.other_batch_sizes = {};  // the caller's
}

template <class D, class T>
MemoryReport Replicas<D, T>::memory_needed() const {
    const std::size_t arena = elements() * sizeof(float);
    MemoryReport memory;
    memory.devices = setup_.devices;
    memory.replicas = replicas_here();
    const auto copies = static_cast<std::size_t>(max_copies_per_device());
    const std::size_t copied = arena * copies;
    memory.parameters = all_elements() * sizeof(float) * copies;
    memory.frozen = memory.parameters - copied;
    memory.optimizer_state =
        checked_bytes("the optimiser's state needs", {static_cast<std::int64_t>(copied), setup_.state_arenas});
    memory.moving_average = setup_.moving_average ? copied : 0;
    memory.buffers = static_cast<std::size_t>(network_.buffer_elements) * sizeof(float);
    if (setup_.synchronized) memory.arenas = max_replicas_per_device();
    memory.statistics =
        checked_bytes("the replicas' running statistics need",
                      {static_cast<std::int64_t>(memory.buffers), replicas_here(), setup_.gradient_accumulation_steps});
    memory.gradients = gradients_.row_bytes();
    memory.average = gradients_.average_bytes();
    if (!D::host_memory) {
        std::size_t sample = 0;
        for (const RequiredColumn& each : setup_.required) sample += each.column.bytes();
        memory.batches = checked_bytes("the replicas' batches need",
                                       {setup_.batch_size, replicas_here(), static_cast<std::int64_t>(sample)});
    }
    memory.average += static_cast<std::size_t>(setup_.sums) * sizeof(float) * static_cast<std::size_t>(setup_.devices);
    memory.plan.activations = planned_activation_bytes(network_.layers, network_.fusion, setup_.batch_size, sizeof(T));
    return memory;
}

template <class D, class T>
const MemoryReport& Replicas<D, T>::required(const MemoryReport& memory) const {
    std::size_t available = 0;
    if constexpr (requires { Kernels::available_memory(setup_.device, memory.devices); })
        available = Kernels::available_memory(setup_.device, memory.devices);
    else
        available = Kernels::available_memory() * (D::host_memory ? 1 : static_cast<std::size_t>(memory.devices));
    require<OutOfMemory>(memory.total() <= available, memory.replicas,
                         memory.replicas == 1 ? " replica on " : " replicas on ", memory.devices,
                         memory.devices == 1 ? " device" : " devices", " do not fit: ", ByteCount{available},
                         " are available; ", to_string(memory), "; ", largest_part(memory));
    return memory;
}

template <class D, class T>
void Replicas<D, T>::make_plans(int device) {
    State& state = at(device);
    state.worker.start(device, setup_.devices, setup_.device);
    for (int workspace = 0; workspace < memory_.arenas; ++workspace) {
        state.worker.add_plan(network_.make, plan_options(setup_.batch_size), static_cast<std::size_t>(workspace));
        for (const std::int64_t size : setup_.other_batch_sizes) {
            state.worker.add_plan(network_.make, plan_options(size), static_cast<std::size_t>(workspace));
        }
    }
    // Where normalisations are folded, their weights in float can make the plan for evaluation the larger one.
    const std::int64_t evaluated = std::max(setup_.batch_size, setup_.evaluation_batch_size);
    if (network_.buffer_elements > 0 || evaluated > setup_.batch_size)
        state.worker.add_plan(network_.make, {.batch = evaluated, .training = false});
    for (WeightedRows& rows : state.weighted_rows_of_step) rows = WeightedRows(setup_.replicas);
}

template <class D, class T>
void Replicas<D, T>::allocate(int device) {
    const int first = first_replica(device), last = first_replica(device + 1);
    if (!shares_rows_) gradients_.allocate(device, first, last);
    State& state = at(device);
    state.worker.allocate(memory_, copies(device));
    Columns columns;
    for (const RequiredColumn& each : setup_.required) columns.push_back(each.column);
    const QueueSizes sizes{.status_bytes = status(device).bytes(),
                           .replicas = last - first,
                           .columns = &columns,
                           .batch_size = setup_.batch_size};
    state.queue = std::make_unique<typename D::Queue>(context(device), sizes);
    std::byte* const block = state.queue->status();
    state.queue->write(&step_status(block)->healthy, std::int32_t{1});
    state.queue->write(&step_status(block)->divisor, static_cast<float>(constant_loss_scale()));
}

template <class D, class T>
ops::LossScaleUpdate Replicas<D, T>::loss_scale_update(int device, const float* divisor) {
    std::byte* const block = at(device).queue->status();
    const auto batches = static_cast<std::int64_t>(reports_of(device).size());
    const bool ids = std::any_of(setup_.required.begin(), setup_.required.end(),
                                 [](const RequiredColumn& each) { return each.ids > 0; });
    return {.rule = setup_.loss_scale,
            .skips_without_weight = setup_.skips_without_weight,
            .state = &step_status(block)->loss_scale,
            .healthy = &step_status(block)->healthy,
            .failed = &step_status(block)->failed,
            .divisor = divisor,
            .reports = status(device).report(block, 0),
            .report_count = batches * static_cast<std::int64_t>(1 + setup_.losses),
            .ids = status(device).bad_id(block, 0),
            .id_count = ids ? batches : 0,
            .not_finite = status(device).not_finite(block, 0),
            .replicas = setup_.replicas};
}

template <class D, class T>
bool Replicas<D, T>::arrive_and_wait(int device) {
    State& state = at(device);
    const Stopwatch watch(state.worker.times(), StepPart::waiting);
    return threads_.arrive_and_wait(state.error == nullptr);
}

template <class D, class T>
auto Replicas<D, T>::rows_of_mean(int device, std::int64_t begin, bool of_all_devices) -> ops::RowsOfMean {
    const int first = first_replica(of_all_devices ? 0 : device),
              last = first_replica(of_all_devices ? setup_.devices : device + 1);
    return {.rows = row(first) + begin,
            .stride = network_.trained_elements,
            .count = last - first,
            .first_column = begin,
            .ends = status(device).not_finite(at(device).queue->status(), first)};
}

template <class D, class T>
std::int64_t Replicas<D, T>::not_finite_element(std::int64_t step, int replica) {
    unsigned long long end = 0;
    for (int device = 0; device < setup_.devices; ++device) {
        end = std::max(end, *status(device).not_finite(at(device).queue->landed(step), replica));
    }
    return static_cast<std::int64_t>(end) - 1;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
