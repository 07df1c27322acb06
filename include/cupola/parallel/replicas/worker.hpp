// SPDX-License-Identifier: Apache-2.0
//
// DeviceWorker: the objects of one device's thread: its context, its plans, its copies of the parameters, of the
// optimiser's state and of the moving averages. Instantiated per device, not per network.
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
#include <cupola/net/plan.hpp>
#include <cupola/ops/convert.hpp>
#include <cupola/parallel/memory_report.hpp>
#include <cupola/parallel/replicas/plans.hpp>
#include <cupola/parallel/replicas/replica_gradients.hpp>
#include <cupola/tensor/batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

template <class Device, class T>
class DeviceWorker {
public:
    using Context = typename Device::Context;

    DeviceWorker();
    [[gnu::cold]] ~DeviceWorker();

    /// Makes the context on the calling thread, which belongs to the device from then on.
    [[gnu::cold]] void start(int ordinal, int devices, const typename Device::Options& options);

    [[nodiscard]] Plans<Device, T>& plans() { return plans_; }

    /// `copies` is the number of copies of the parameters, the optimizer's state and, unless there is a centre, the
    /// moving averages: one, or one per replica of the device.
    [[gnu::cold]] void allocate(const MemoryReport& memory, int copies, MakeArena<Device> make);

    /// From now on the time of the training's plans is added to `times`; null ends this.
    [[gnu::cold]] void time(StepTimer* times) { plans_.time(times_ = times); }
    [[nodiscard]] StepTimer* times() const { return times_; }

    [[nodiscard]] Context& context() { return *context_; }
    [[nodiscard]] float* parameters(int copy = 0) { return copy_of(parameters_, copy); }
    [[nodiscard]] float* state(int copy = 0) { return copy_of(state_, copy); }
    [[nodiscard]] float* averages(int copy = 0) { return copy_of(averages_, copy); }
    /// What is evaluated and compared with other devices: the centre; without one, the first copy.
    [[nodiscard]] float* model() { return centre_.size() > 0 ? centre() : parameters(); }
    [[nodiscard]] float* centre() { return reinterpret_cast<float*>(centre_.data()); }
    [[nodiscard]] float* centre_state() { return reinterpret_cast<float*>(centre_state_.data()); }
    [[nodiscard]] float* buffers() { return reinterpret_cast<float*>(buffers_.data()); }

    /// Copies host memory to one of the arenas above.
    void set(float* arena, std::span<const float> values);

    /// The plan for a batch, with the weights of `parameters` packed; null if none was made. See PassBuffers for
    /// `frozen`.
    [[nodiscard]] Plan<Device, T>* plan_for(const PlanOptions& options, const float* parameters,
                                            std::size_t workspace = 0, const float* frozen = nullptr);

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
    [[nodiscard]] float* copy_of(typename Device::Arena& arena, int copy) {
        return reinterpret_cast<float*>(arena.data() + arena.size() / static_cast<std::size_t>(copies_) *
                                                           static_cast<std::size_t>(copy));
    }

    /// The same values as float, until the next call.
    [[nodiscard, gnu::cold]] const float* in_float(const T* values, std::int64_t elements);

    std::unique_ptr<Context> context_;
    Plans<Device, T> plans_;
    typename Device::Arena parameters_, state_, averages_, centre_, centre_state_, buffers_, converted_;
    StepTimer* times_ = nullptr;
    int copies_ = 1;
};

// Defined outside of the class, and so not inline: separately compiled programs do not instantiate what src.hpp
// has.

template <class Device, class T>
DeviceWorker<Device, T>::DeviceWorker() = default;
template <class Device, class T>
DeviceWorker<Device, T>::~DeviceWorker() {
    // A plan holds objects of libraries that are destroyed on their device.
    if constexpr (requires { context_->team(std::nothrow); }) {
        if (context_ == nullptr) return;
        const auto team = context_->team(std::nothrow);
        plans_.clear();
    }
}

template <class Device, class T>
void DeviceWorker<Device, T>::start(int ordinal, int devices, const typename Device::Options& options) {
    context_ = std::make_unique<Context>(ordinal, options);
    context_->own_thread(devices);
    plans_.start(*context_);
    if constexpr (requires { Device::require_code(*context_); }) Device::require_code(*context_);
}

template <class Device, class T>
void DeviceWorker<Device, T>::allocate(const MemoryReport& memory, int copies, MakeArena<Device> make) {
    const int ordinal = context_->ordinal();
    copies_ = copies;
    parameters_ = make(memory.parameters, RowOf::parameters, text("the parameters of device ", ordinal));
    state_ = make(memory.optimizer_state, RowOf::trained, text("the optimiser's state on device ", ordinal));
    averages_ = make(memory.moving_average, RowOf::trained, text("the moving averages of device ", ordinal));
    centre_ = make(memory.centre, RowOf::parameters, text("the centre on device ", ordinal));
    centre_state_ =
        make(memory.centre_state, RowOf::trained, text("the state of the centre's optimiser on device ", ordinal));
    buffers_ = make(memory.buffers, RowOf::buffers, text("the running statistics of device ", ordinal));
    plans_.allocate(memory.plan.total(), memory.arenas);
}

template <class Device, class T>
void DeviceWorker<Device, T>::set(float* arena, std::span<const float> values) {
    Device::copy_from_host(*context_, reinterpret_cast<std::byte*>(arena),
                           reinterpret_cast<const std::byte*>(values.data()), values.size_bytes());
    plans_.parameters_changed();
}

template <class Device, class T>
Plan<Device, T>* DeviceWorker<Device, T>::plan_for(const PlanOptions& options, const float* parameters,
                                                   std::size_t workspace, const float* frozen) {
    const auto taken = plans_.take(options, parameters, workspace);
    if (taken.plan != nullptr) taken.plan->prepare(*context_, parameters, buffers(), frozen, taken.packs);
    return taken.plan;
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

}  // namespace impl

}}  // namespace cupola::CUPOLA_ABI
