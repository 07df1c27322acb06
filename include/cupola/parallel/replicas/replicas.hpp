// SPDX-License-Identifier: Apache-2.0
//
// Replicas: what lasts between the steps of a training on its devices: one worker thread per device, the copies of the
// parameters, the plans, the gradient rows and each device's queue. It is one type for every network of a device and an
// element type.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/fixed_array.hpp>
#include <cupola/core/function_ref.hpp>
#include <cupola/device/queue.hpp>
#include <cupola/net/stopwatch.hpp>
#include <cupola/ops/loss_report.hpp>
#include <cupola/ops/training_step.hpp>
#include <cupola/parallel/impl/network_info.hpp>
#include <cupola/parallel/memory_report.hpp>
#include <cupola/parallel/replicas/device_threads.hpp>
#include <cupola/parallel/replicas/replica_gradients.hpp>
#include <cupola/parallel/replicas/replica_memory.hpp>
#include <cupola/parallel/replicas/replica_placement.hpp>
#include <cupola/parallel/replicas/replica_settings.hpp>
#include <cupola/parallel/replicas/sample_counts.hpp>
#include <cupola/parallel/replicas/status.hpp>
#include <cupola/parallel/replicas/worker.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The per-device state of a training: its worker and plans, its queue, and the block of numbers that its steps report.
template <class D, class T>
struct DeviceState {
    using Kernels = typename D::Kernels;

    DeviceWorker<Kernels, T> worker;
    std::unique_ptr<typename D::Queue> queue;
    /// The parts of a network that is cut, which a group of devices computes: see NetworkInfo.
    std::unique_ptr<DeviceParts<Kernels, T>> parts;
    /// The layout of the queue's status block and of its copies.
    StatusLayout layout;
    /// The exception of this device in the step that is being queued.
    std::exception_ptr error;
    /// True from the update of its parameters until every device has queued its update.
    bool updating = false;

    [[nodiscard]] typename Kernels::Context& context() { return worker.context(); }
    /// The status in the device's memory, and the copy of that after a step, which the host reads.
    [[nodiscard]] StepStatus* status() { return step_status(queue->status()); }
    [[nodiscard]] const StepStatus& landed(std::int64_t step) { return *step_status(queue->landed(step)); }

    /// The reports of all batches of a step of the device, in its memory.
    [[nodiscard]] std::span<const LossReport> reports() { return layout.reports(queue->status()); }
    /// Inside queued work, where the loss has weights: the divisor becomes `scale` times the weight of the device's
    /// samples.
    void weigh(double scale) { ops::TrainingStep<Kernels>::weigh(context(), reports(), scale, &status()->divisor); }

    /// All devices pass the same number of barriers: an exception of one is stored until they have, and the rest of its
    /// work is left out.
    [[gnu::noinline]] void attempt(FunctionRef<void()> work) {
        if (!error) attempt_always(work);
    }
    /// The same also if the device has failed before; the first exception is kept.
    [[gnu::noinline]] void attempt_always(FunctionRef<void()> work) {
        try {
            work();
        } catch (...) {
            if (!error) error = std::current_exception();
        }
    }
};

template <class D, class T>
class Replicas {
    using Kernels = typename D::Kernels;
    using Context = typename Kernels::Context;
    using Network = NetworkInfo<Kernels, T>;

public:
    using State = DeviceState<D, T>;

    /// Makes the plans and allocates all memory. Throws InvalidArgument, DeviceError, or, before anything is allocated,
    /// OutOfMemory if the memory does not suffice.
    [[gnu::cold]] Replicas(const Network& network, const ReplicaSettings& settings, const typename D::Options& options);
    [[gnu::cold]] ~Replicas();

    [[nodiscard]] const Network& network() const { return network_; }
    [[nodiscard]] const ReplicaSettings& settings() const { return settings_; }
    /// Which process and which device has which replicas.
    [[nodiscard]] const ReplicaPlacement& placement() const { return placement_; }
    [[nodiscard]] const MemoryReport& memory() const { return memory_; }
    /// The bytes that this process shares with others.
    [[gnu::cold]] void report_shared_memory(std::size_t bytes) { memory_.shared = bytes; }
    [[nodiscard]] const ReplicaGradients<Kernels>& gradients() const { return gradients_; }
    /// The elements of a gradient, of an arena of the optimiser's state and of the moving averages.
    [[nodiscard]] std::size_t elements() const { return static_cast<std::size_t>(network_.trained_elements); }
    /// The elements of a copy of the parameters: those, and then the frozen ones.
    [[nodiscard]] std::size_t all_elements() const { return static_cast<std::size_t>(network_.parameter_elements); }

    /// The buckets of the gradient in the order in which the passes of a device finish them: see Plan. Those of a
    /// network that is cut finish all of it together.
    [[nodiscard]] std::span<const GradientBucket> buckets(int device) {
        if (network_.cut != nullptr) return {&whole_, 1};
        return at(device).worker.plans().first().buckets();
    }

    [[nodiscard]] DeviceThreads& threads() { return threads_; }
    [[nodiscard]] State& at(int device) { return devices_[static_cast<std::size_t>(device)]; }
    [[nodiscard]] std::span<State> devices() { return devices_.span(); }
    [[nodiscard]] std::span<const State> devices() const { return devices_.span(); }
    [[nodiscard]] Context& context(int device) { return at(device).context(); }

    /// The parameters that a replica computes with.
    [[nodiscard]] float* parameters(int replica) {
        return at(placement_.device_of(replica)).worker.parameters(placement_.copy_of(replica));
    }
    /// `count` floats from the address that `place` returns for a device, read by that device's thread.
    template <class Place>
    [[nodiscard]] std::vector<float> copied(std::int64_t count, int only, Place&& place) {
        require(only >= 0 && only < settings_.devices, "device ", only, " is out of range: the number of devices is ",
                settings_.devices);
        std::vector<float> result(static_cast<std::size_t>(count));
        threads_.run([&](int device) {
            if (device != only) return;
            const float* const from = place(at(device));
            Kernels::copy_to_host(context(device), reinterpret_cast<std::byte*>(result.data()),
                                  reinterpret_cast<const std::byte*>(from), result.size() * sizeof(float));
        });
        return result;
    }

    /// A barrier of all devices, called on each device's thread: see DeviceThreads. Returns false if a device has
    /// failed.
    bool arrive_and_wait(int device);
    /// The error of the first device that has failed, or null; after a barrier.
    [[nodiscard]] std::exception_ptr first_error() const {
        for (const State& state : devices_) {
            if (state.error) return state.error;
        }
        return nullptr;
    }

private:
    [[gnu::cold]] void make_layouts();
    [[gnu::cold]] void make_plans(int device, const typename D::Options& options);
    [[gnu::cold]] void allocate(int device);
    /// The batches of a device in a step.
    [[nodiscard]] std::int64_t batches_of(int device) const {
        return std::int64_t{placement_.replicas_of(device)} * settings_.gradient_accumulation_steps;
    }
    /// Those that the network and the losses read.
    [[nodiscard, gnu::cold]] Columns columns() const;

    Network network_;
    ReplicaSettings settings_;
    ReplicaPlacement placement_;
    ReplicaGradients<Kernels> gradients_;
    MemoryReport memory_;
    DeviceThreads threads_;
    FixedArray<State> devices_;
    bool shares_rows_ = false;
    /// The whole gradient.
    GradientBucket whole_;
};

/// One step of one device while it is queued, for each of its stages.
template <class D, class T>
struct DeviceStep {
    int device;
    std::int64_t step;
    Replicas<D, T>& replicas;
    SampleCounts& samples;
    /// The state of the device, with its error.
    DeviceState<D, T>& state;
    /// Whether the last backward pass of the device has marked the buckets of the gradient in its queue.
    bool marked = false;
    /// The replica whose samples and random numbers every replica of the step has; -1 where each has its own.
    int samples_of = -1;

    [[nodiscard]] int samples_for(int replica) const { return samples_of < 0 ? replica : samples_of; }
};

// Defined outside of the class, and so not inline: separately compiled programs do not instantiate what src.hpp
// has.

template <class D, class T>
Replicas<D, T>::~Replicas() = default;

template <class D, class T>
Replicas<D, T>::Replicas(const Network& network, const ReplicaSettings& settings, const typename D::Options& options)
    : network_(network),
      settings_(settings),
      placement_(settings.replicas, settings.devices, settings.centre, settings.process.count, settings.process.number),
      gradients_(placement_, network.trained_elements, settings.has_averages(), settings.sums > 0),
      // Before operations are made for a batch that does not fit.
      memory_(require_memory<D>(memory_needed<D, T>(network, settings, placement_, gradients_), options)),
      threads_(settings.devices),
      devices_(static_cast<std::size_t>(settings.devices)) {
    whole_.end = network.trained_elements;
    make_layouts();
    threads_.run([&](int device) { make_plans(device, options); });
    for (State& state : devices_) {
        const PlanBytes& largest = state.worker.plans().largest();
        if (largest.total() > memory_.plan.total()) memory_.plan = largest;
        if (state.parts != nullptr) memory_.in_flight = std::max(memory_.in_flight, state.parts->bytes());
    }
    for (int group = 0; network.cut != nullptr && !D::host_memory && group < settings.devices; ++group)
        at(group).parts->find_memory(
            memory_, elements() * sizeof(float) * static_cast<std::size_t>(placement_.replicas_of(group)),
            gradients_.average_bytes());
    memory_ = require_memory<D>(memory_, options);
    if (settings.processes != nullptr && settings.averages_rows_of_all && settings.has_averages())
        shares_rows_ =
            gradients_.place_in_shared([&](std::size_t bytes) { return settings.share(*settings.processes, bytes); });
    threads_.run([&](int device) { allocate(device); });
    settings_.other_batch_sizes = {};  // the caller's
}

template <class D, class T>
void Replicas<D, T>::make_layouts() {
    std::size_t largest = 0;
    for (int device = 0; device < settings_.devices; ++device) {
        const auto batches = static_cast<std::size_t>(batches_of(device));
        at(device).layout = StatusLayout(settings_.regularized, static_cast<std::size_t>(settings_.replicas), batches,
                                         settings_.losses, network_.buffer_elements);
        largest = std::max(largest, at(device).layout.own_bytes());
    }
    if (!settings_.gathers_blocks()) return;
    for (State& state : devices_)
        state.layout.gather(devices_.size() * static_cast<std::size_t>(settings_.process.count), largest);
}

template <class D, class T>
void Replicas<D, T>::make_plans(int device, const typename D::Options& options) {
    DeviceWorker<Kernels, T>& worker = at(device).worker;
    if (network_.cut != nullptr) {
        at(device).parts = network_.make_parts(
            {network_, settings_, options, device, batches_of(device), at(device).layout.bytes(), columns(), worker});
        return;
    }
    worker.start(device, settings_.devices, options);
    Plans<Kernels, T>& plans = worker.plans();
    for (int workspace = 0; workspace < memory_.arenas; ++workspace) {
        plans.add(network_.make, settings_.plan_options(settings_.batch_size), static_cast<std::size_t>(workspace));
        for (const std::int64_t size : settings_.other_batch_sizes)
            plans.add(network_.make, settings_.plan_options(size), static_cast<std::size_t>(workspace));
    }
    // Where normalisations are folded, their weights in float can make the plan for evaluation the larger one.
    const std::int64_t evaluated = std::max(settings_.batch_size, settings_.evaluation_batch_size);
    if (network_.buffer_elements > 0 || evaluated > settings_.batch_size)
        plans.add(network_.make, {.batch = evaluated, .training = false});
}

template <class D, class T>
Columns Replicas<D, T>::columns() const {
    Columns columns;
    for (const RequiredColumn& each : settings_.required) columns.push_back(each.column);
    return columns;
}

template <class D, class T>
void Replicas<D, T>::allocate(int device) {
    const int first = placement_.first_replica(device), last = placement_.first_replica(device + 1);
    State& state = at(device);
    const auto make = [&](std::size_t bytes, RowOf rows, std::string_view what) {
        return state.parts != nullptr ? state.parts->arena(bytes, rows, what) : typename Kernels::Arena(bytes, what);
    };
    if (!shares_rows_) gradients_.allocate(device, first, last, make);
    state.worker.allocate(memory_, placement_.copies(device), make);
    if (state.parts != nullptr) state.parts->allocate();
    const Columns columns = this->columns();
    const QueueSizes sizes{.status_bytes = state.layout.bytes(),
                           .replicas = last - first,
                           .columns = &columns,
                           .batch_size = settings_.batch_size,
                           .landed_steps = settings_.landed_steps};
    state.queue = std::make_unique<typename D::Queue>(context(device), sizes);
    state.queue->write(&state.status()->healthy, std::int32_t{1});
    state.queue->write(&state.status()->divisor, static_cast<float>(settings_.constant_loss_scale()));
}

template <class D, class T>
bool Replicas<D, T>::arrive_and_wait(int device) {
    State& state = at(device);
    const Stopwatch watch(state.worker.times(), StepPart::waiting);
    return threads_.arrive_and_wait(state.error == nullptr);
}

/// The loss scale of the step in the device's memory; null if it is constant.
template <class D, class T>
[[nodiscard]] const float* scale_on_device(Replicas<D, T>& replicas, int device) {
    if (!replicas.settings().loss_scale.dynamic) return nullptr;
    return &replicas.at(device).status()->loss_scale.scale;
}

/// Whether a step of a device has failed, in its memory, where that is not the same as not healthy; null otherwise.
template <class D, class T>
[[nodiscard]] const std::int32_t* failed_on_device(Replicas<D, T>& replicas, int device) {
    return replicas.settings().may_skip() ? &replicas.at(device).status()->failed : nullptr;
}

/// The end of a device's step that it may skip. `divisor` is that of the mean.
template <class D, class T>
[[nodiscard]] ops::LossScaleUpdate loss_scale_update(Replicas<D, T>& replicas, int device, const float* divisor) {
    auto& state = replicas.at(device);
    const ReplicaSettings& settings = replicas.settings();
    StepStatus* const status = state.status();
    std::byte* const block = state.queue->status();
    const auto batches = static_cast<std::int64_t>(state.reports().size());
    return {.rule = settings.loss_scale,
            .skips_without_weight = settings.skips_without_weight,
            .state = &status->loss_scale,
            .healthy = &status->healthy,
            .failed = &status->failed,
            .divisor = divisor,
            .reports = state.layout.report(block, 0),
            .report_count = batches * static_cast<std::int64_t>(1 + settings.losses),
            .ids = state.layout.bad_id(block, 0),
            .id_count = settings.reads_ids() ? batches : 0,
            .not_finite = state.layout.not_finite(block, 0),
            .replicas = settings.replicas};
}

}}}  // namespace cupola::CUPOLA_ABI::impl
