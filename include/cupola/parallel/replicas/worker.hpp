// SPDX-License-Identifier: Apache-2.0
//
// The objects of one device's thread: its context, its copy of the parameters, its arena, and one plan per batch size.
// Instantiated per device, not per network.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/fixed_array.hpp>
#include <cupola/layers/initializer.hpp>
#include <cupola/net/plan.hpp>
#include <cupola/ops/convert.hpp>
#include <cupola/parallel/memory_report.hpp>
#include <cupola/parallel/replicas/weighted_rows.hpp>
#include <cupola/tensor/batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// An initialiser for a parameter by its full name; it replaces the one that the layer's type names.
struct NamedInitializer {
    std::string parameter;
    Initializer initializer;
};

namespace impl {

/// A parameter arena's initial values.
[[nodiscard, gnu::cold]] std::vector<float> initial_parameters(std::span<const LayerInfo> layers, std::uint64_t seed,
                                                               std::span<const NamedInitializer> named);

template <class Device, class T>
class DeviceWorker {
public:
    using Context = typename Device::Context;

    DeviceWorker();
    [[gnu::cold]] ~DeviceWorker();

    /// Makes the context on the calling thread, which belongs to the device from then on.
    [[gnu::cold]] void start(int ordinal, int devices, const typename Device::Options& options);

    using MakePlan = Plan<Device, T> (*)(Context&, const PlanOptions&);

    /// Makes a plan unless one exists for its batch size and purpose. Plans of one workspace share an arena; replicas that
    /// run in step have a workspace each.
    [[gnu::cold]] void add_plan(MakePlan make, const PlanOptions& options, std::size_t workspace = 0);
    [[nodiscard]] const Plan<Device, T>& first_plan() const { return first_->plan; }
    /// The memory of the plan that needs the most memory.
    [[nodiscard]] const PlanBytes& largest_plan() const { return largest_; }

    /// `copies` is the number of copies of the parameters, the optimizer's state and the moving averages: one, or one per
    /// replica of the device.
    [[gnu::cold]] void allocate(const MemoryReport& memory, int copies = 1);

    /// From now on the time of the training's plans is added to `times`; null ends this.
    [[gnu::cold]] void time(StepTimes* times);
    [[nodiscard]] StepTimes* times() const { return times_; }

    [[nodiscard]] Context& context() { return *context_; }
    [[nodiscard]] float* parameters(int copy = 0) { return copy_of(parameters_, copy); }
    [[nodiscard]] float* state(int copy = 0) { return copy_of(state_, copy); }
    [[nodiscard]] float* averages(int copy = 0) { return copy_of(averages_, copy); }
    [[nodiscard]] float* buffers() { return reinterpret_cast<float*>(buffers_.data()); }

    /// Copies host memory to one of the arenas above.
    void set(float* arena, std::span<const float> values);
    void parameters_changed() { ++version_; }

    /// The plan for a batch, with the weights of `parameters` packed; null if none was made. Plans share the arena,
    /// including packed weights, which are packed again when the parameters have changed or another plan has run.
    /// See PassBuffers for `frozen`.
    [[nodiscard]] Plan<Device, T>* plan_for(const PlanOptions& options, const float* parameters,
                                            std::size_t workspace = 0, const float* frozen = nullptr);

    /// The same for a caller that packs the weights itself: `packs` says whether this is needed.
    struct Taken {
        Plan<Device, T>* plan = nullptr;
        bool packs = false;
    };
    [[nodiscard]] Taken take_plan(const PlanOptions& options, const float* parameters, std::size_t workspace = 0);

    /// The plan of training that ran last in the first workspace, if it packs weights; null otherwise.
    [[nodiscard]] Plan<Device, T>* last_packing_plan();
    /// The weights of last_packing_plan() have been packed from `parameters`.
    void set_packed(const float* parameters);

    /// The plan that computes every layer's output, in memory of its own that is kept from its first use on.
    [[nodiscard, gnu::cold]] Plan<Device, T>& inspection_plan(MakePlan make, std::int64_t batch);

    /// Calls visit(layer, values) with each layer's output for a batch; see PassBuffers for `merged`.
    template <class Visit>
    void inspect(Plan<Device, T>& plan, const float* parameters, const PlanInputs& samples, const RngKey& key,
                 const float* merged, Visit&& visit) {
        plan.prepare(*context_, parameters);
        plan.forward_each(
            *context_, samples, parameters, {.running = buffers(), .merged = merged}, key,
            [&](std::size_t layer, const T* values, std::int64_t elements) {
                visit(layer, std::span<const float>(in_float(values, elements), static_cast<std::size_t>(elements)));
            });
    }

private:
    struct BatchPlan {
        Plan<Device, T> plan;
        std::size_t workspace = 0;
        std::unique_ptr<BatchPlan> next = nullptr;
        /// The version of the parameters that its weights are packed from.
        std::int64_t prepared = -1;
        const float* packed_from = nullptr;
    };
    struct Workspace {
        typename Device::Arena arena;
        BatchPlan* last = nullptr;
    };

    [[nodiscard]] float* copy_of(typename Device::Arena& arena, int copy) {
        return reinterpret_cast<float*>(arena.data() + arena.size() / static_cast<std::size_t>(copies_) *
                                                           static_cast<std::size_t>(copy));
    }

    /// The same values as float, until the next call.
    [[nodiscard, gnu::cold]] const float* in_float(const T* values, std::int64_t elements);

    [[nodiscard]] BatchPlan* find(const PlanOptions& options, std::size_t workspace);
    /// Makes a plan again whose scratch memory is what does not fit the arena, of algorithms that need less.
    [[gnu::cold]] void fit_scratch(std::unique_ptr<BatchPlan>& made, MakePlan make, std::size_t available);

    std::unique_ptr<Context> context_;
    /// The plans, each of which has the next.
    std::unique_ptr<BatchPlan> first_;
    PlanBytes largest_;
    std::unique_ptr<Plan<Device, T>> inspection_;
    typename Device::Arena parameters_, state_, averages_, buffers_, inspection_arena_, converted_;
    FixedArray<Workspace> workspaces_;
    StepTimes* times_ = nullptr;
    std::int64_t version_ = 0;
    int copies_ = 1;
};

// Defined outside of the class, and so not inline: programs that link to cupola::ops do not instantiate what it has
// compiled.

template <class Device, class T>
DeviceWorker<Device, T>::DeviceWorker() = default;
template <class Device, class T>
DeviceWorker<Device, T>::~DeviceWorker() {
    // A plan holds objects of libraries that are destroyed on their device.
    if constexpr (requires { context_->team(std::nothrow); }) {
        if (context_ == nullptr) return;
        const auto team = context_->team(std::nothrow);
        inspection_.reset();
        first_.reset();
    }
}

template <class Device, class T>
void DeviceWorker<Device, T>::start(int ordinal, int devices, const typename Device::Options& options) {
    context_ = std::make_unique<Context>(ordinal, options);
    context_->own_thread(devices);
    if constexpr (requires { Device::require_code(*context_); }) Device::require_code(*context_);
}

template <class Device, class T>
void DeviceWorker<Device, T>::add_plan(MakePlan make, const PlanOptions& options, std::size_t workspace) {
    const auto team = context_->team();
    if (find(options, workspace) != nullptr) return;
    std::unique_ptr<BatchPlan>* last = &first_;
    while (*last != nullptr) last = &(*last)->next;
    last->reset(new BatchPlan{make(*context_, options), workspace});
    if (!workspaces_.empty()) fit_scratch(*last, make, workspaces_[workspace].arena.size());
    Plan<Device, T>& plan = (*last)->plan;
    const PlanBytes& bytes = plan.bytes();
    if (bytes.total() > largest_.total()) largest_ = bytes;
    if (workspaces_.empty()) return;
    typename Device::Arena& arena = workspaces_[workspace].arena;
    require<OutOfMemory>(bytes.total() <= arena.size(), "a forward pass of ", options.batch,
                         options.batch == 1 ? " sample needs " : " samples needs ", ByteCount{bytes.total()},
                         ", and the arena has ", ByteCount{arena.size()});
    plan.bind(arena.data());
}

template <class Device, class T>
void DeviceWorker<Device, T>::fit_scratch([[maybe_unused]] std::unique_ptr<BatchPlan>& made,
                                          [[maybe_unused]] MakePlan make, [[maybe_unused]] std::size_t available) {
    if constexpr (requires { context_->set_max_workspace(std::size_t{}); }) {
        const PlanBytes& bytes = made->plan.bytes();
        if (bytes.total() <= available || bytes.total() - bytes.scratch > available) return;
        const std::size_t limit = context_->max_workspace();
        context_->set_max_workspace(available - (bytes.total() - bytes.scratch));
        try {
            made.reset(new BatchPlan{make(*context_, made->plan.options()), made->workspace});
        } catch (const DeviceError&) {
            // There is nothing that needs less: the caller reports the plan that it has.
        }
        context_->set_max_workspace(limit);
    }
}

template <class Device, class T>
Plan<Device, T>& DeviceWorker<Device, T>::inspection_plan(MakePlan make, std::int64_t batch) {
    if (!inspection_ || inspection_->options().batch != batch) {
        inspection_ =
            std::unique_ptr<Plan<Device, T>>(new Plan<Device, T>(make(*context_, {.batch = batch, .inspect = true})));
        if (inspection_->bytes().total() > inspection_arena_.size()) {
            inspection_arena_ =
                typename Device::Arena(inspection_->bytes().total(),
                                       text("the layers' outputs for inspection on device ", context_->ordinal()));
        }
        inspection_->bind(inspection_arena_.data());
    }
    return *inspection_;
}

template <class Device, class T>
void DeviceWorker<Device, T>::allocate(const MemoryReport& memory, int copies) {
    const int ordinal = context_->ordinal();
    copies_ = copies;
    parameters_ = typename Device::Arena(memory.parameters, text("the parameters of device ", ordinal));
    state_ = typename Device::Arena(memory.optimizer_state, text("the optimiser's state on device ", ordinal));
    averages_ = typename Device::Arena(memory.moving_average, text("the moving averages of device ", ordinal));
    buffers_ = typename Device::Arena(memory.buffers, text("the running statistics of device ", ordinal));
    workspaces_ = FixedArray<Workspace>(static_cast<std::size_t>(memory.arenas));
    for (Workspace& workspace : workspaces_)
        workspace.arena = typename Device::Arena(memory.plan.total(), text("the activations of device ", ordinal));
    for (BatchPlan* plan = first_.get(); plan != nullptr; plan = plan->next.get())
        plan->plan.bind(workspaces_[plan->workspace].arena.data());
}

template <class Device, class T>
void DeviceWorker<Device, T>::time(StepTimes* times) {
    for (BatchPlan* plan = first_.get(); plan != nullptr; plan = plan->next.get()) {
        if (plan->plan.options().training) plan->plan.time(times);
    }
    times_ = times;
}

template <class Device, class T>
void DeviceWorker<Device, T>::set(float* arena, std::span<const float> values) {
    Device::copy_from_host(*context_, reinterpret_cast<std::byte*>(arena),
                           reinterpret_cast<const std::byte*>(values.data()), values.size_bytes());
    parameters_changed();
}

template <class Device, class T>
Plan<Device, T>* DeviceWorker<Device, T>::plan_for(const PlanOptions& options, const float* parameters,
                                                   std::size_t workspace, const float* frozen) {
    const Taken taken = take_plan(options, parameters, workspace);
    if (taken.packs) taken.plan->prepare(*context_, parameters, buffers(), frozen);
    return taken.plan;
}

template <class Device, class T>
auto DeviceWorker<Device, T>::take_plan(const PlanOptions& options, const float* parameters, std::size_t workspace)
    -> Taken {
    BatchPlan* const found = find(options, workspace);
    if (found == nullptr) return {};
    const bool packs =
        workspaces_[workspace].last != found || found->prepared != version_ || found->packed_from != parameters;
    found->prepared = version_;
    found->packed_from = parameters;
    workspaces_[workspace].last = found;
    return {&found->plan, packs};
}

template <class Device, class T>
const float* DeviceWorker<Device, T>::in_float(const T* values, std::int64_t elements) {
    if constexpr (std::same_as<T, float>) {
        return values;
    } else {
        const std::size_t bytes = static_cast<std::size_t>(elements) * sizeof(float);
        if (bytes > converted_.size()) {
            converted_ =
                typename Device::Arena(bytes, text("a layer's output for inspection on device ", context_->ordinal()));
        }
        auto* const to = reinterpret_cast<float*>(converted_.data());
        ops::Convert<Device>::run(*context_, values, to, elements);
        return to;
    }
}

template <class Device, class T>
Plan<Device, T>* DeviceWorker<Device, T>::last_packing_plan() {
    BatchPlan* const last = workspaces_[0].last;
    if (last == nullptr || !last->plan.options().training || last->plan.bytes().packed == 0) return nullptr;
    return &last->plan;
}

template <class Device, class T>
void DeviceWorker<Device, T>::set_packed(const float* parameters) {
    BatchPlan& last = *workspaces_[0].last;
    last.prepared = version_;
    last.packed_from = parameters;
}

template <class Device, class T>
auto DeviceWorker<Device, T>::find(const PlanOptions& options, std::size_t workspace) -> BatchPlan* {
    for (BatchPlan* plan = first_.get(); plan != nullptr; plan = plan->next.get()) {
        if (plan->workspace == workspace && plan->plan.options() == options) return plan;
    }
    return nullptr;
}

/// Throws InvalidArgument unless a part of a training's state has as many elements as the network's.
[[gnu::cold]] void require_elements(const char* what, std::size_t given, std::int64_t wanted);

#ifndef CUPOLA_OPS

CUPOLA_INLINE std::vector<float> initial_parameters(std::span<const LayerInfo> layers, std::uint64_t seed,
                                                    std::span<const NamedInitializer> named) {
    std::vector<float> values(static_cast<std::size_t>(arena_elements(layers)));
    std::uint32_t number = 0;
    for (std::size_t i = 0; i < layers.size(); ++i) {
        for (std::size_t p = 0; p < layers[i].parameters.count; ++p) {
            const Parameter& parameter = layers[i].parameters.list[p];
            Initializer initializer = parameter.initializer;
            for (const NamedInitializer& other : named) {
                if (other.parameter == parameter_name(layers, i, p)) initializer = other.initializer;
            }
            initialize({values.data() + layers[i].offsets[p], static_cast<std::size_t>(parameter.shape.size())},
                       initializer, parameter.fan_in, parameter.fan_out, seed, number++);
        }
    }
    return values;
}

CUPOLA_INLINE void require_elements(const char* what, std::size_t given, std::int64_t wanted) {
    require(given == static_cast<std::size_t>(wanted), "this network's ", what, " has ", wanted, " elements, not ",
            given);
}

#endif

}  // namespace impl

}}  // namespace cupola::CUPOLA_ABI
