// SPDX-License-Identifier: Apache-2.0
//
// Inspection: access to the values of a step between the averaging and the update, for summaries. Outputs that fusion
// and the memory plan do not store are recomputed in scratch memory, so a run has the same bits with and without it. A
// program that inspects steps includes this header.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include <cupola/core/function_ref.hpp>
#include <cupola/net/plan.hpp>
#include <cupola/parallel/replicas/replicas.hpp>
#include <cupola/parallel/step/batches.hpp>
#include <cupola/tensor/batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// Passed to the inspector of `training.step(batches, inspector)` on the first device's thread; valid during the call.
template <class Device>
class Inspection {
public:
    using Context = typename Device::Context;
    /// Visits a layer's output; `visitor` is the pointer that was passed to `EachOutput`.
    using VisitOutput = void (*)(void* visitor, std::size_t layer, std::span<const float> values);
    /// Computes the layers' outputs for a batch; `training` is the object that made the inspection.
    using EachOutput = void (*)(void* training, const BatchView& batch, const RngKey& key, void* visitor,
                                VisitOutput visit);

    Inspection(std::int64_t step, Context& context, std::span<const float> parameters, std::span<const float> gradient,
               const BatchView& batch, const RngKey& key, void* training, EachOutput each)
        : step_(step),
          context_(&context),
          parameters_(parameters),
          gradient_(gradient),
          batch_(batch),
          key_(key),
          training_(training),
          each_(each) {}

    [[nodiscard]] std::int64_t step() const { return step_; }
    [[nodiscard]] Context& context() const { return *context_; }
    /// The parameters before the update, and the gradient averaged over the replicas, in the layout of the arena.
    [[nodiscard]] std::span<const float> parameters() const { return parameters_; }
    [[nodiscard]] std::span<const float> averaged_gradient() const { return gradient_; }
    /// The batch of the first replica that has samples; with gradient accumulation, its last batch that has samples.
    [[nodiscard]] const BatchView& batch() const { return batch_; }

    /// Calls visit(layer, values) for every layer of the network, in order, with its output for `batch()`.
    template <class Visit>
    void for_each_activation(Visit&& visit) const {
        auto* const visitor = const_cast<void*>(static_cast<const void*>(std::addressof(visit)));
        each_(training_, batch_, key_, visitor, [](void* object, std::size_t layer, std::span<const float> values) {
            (*static_cast<std::remove_reference_t<Visit>*>(object))(layer, values);
        });
    }

private:
    std::int64_t step_;
    Context* context_;
    std::span<const float> parameters_, gradient_;
    BatchView batch_;
    RngKey key_;
    void* training_;
    EachOutput each_;
};

namespace impl {

/// Calls an inspector with the values of a step, between the average and the update, on the first device's thread.
template <class D, class T>
class StepProbe {
    using Kernels = typename D::Kernels;

public:
    using Inspector = FunctionRef<void(const Inspection<Kernels>&)>;

    explicit StepProbe(Replicas<D, T>& replicas) : replicas_(replicas) {}

    /// Calls `inspector` once the first device's work is complete, unless the step is not healthy. `batch` is of
    /// `replica`, or has size 0 if no replica of this process has samples; `gradient` is on the first device. Returns
    /// the exception of the inspector, or null.
    [[nodiscard, gnu::cold]] std::exception_ptr show(std::int64_t step, int replica, const TakenBatch& batch,
                                                     const float* gradient, Inspector inspector);

private:
    void visit_outputs(const BatchView& view, const RngKey& key, void* visitor,
                       typename Inspection<Kernels>::VisitOutput visit);

    Replicas<D, T>& replicas_;
    /// The probed batch at the addresses at which the first device reads it, and its statistics if the replicas share
    /// them.
    BatchView samples_{};
    const float* statistics_ = nullptr;
};

template <class D, class T>
std::exception_ptr StepProbe<D, T>::show(std::int64_t step, int replica, const TakenBatch& batch, const float* gradient,
                                         Inspector inspector) {
    auto& state = replicas_.at(0);
    auto& queue = *state.queue;
    auto& context = state.worker.context();
    std::vector<std::int32_t> flag;
    if (queue.on_host(context, &step_status(queue.status())->healthy, 1, flag)[0] == 0) return nullptr;
    BatchView shown = replicas_.placement().device_of(replica) == 0 ? batch.batch : queue.bring(batch.batch);
    samples_ = shown;
    statistics_ = replicas_.settings().synchronized ? batch.statistics : nullptr;
    std::vector<float> parameters, averaged;
    std::array<std::vector<std::byte>, max_columns> columns;
    for (std::size_t i = 0; i < shown.columns().size(); ++i) {
        const std::size_t bytes = static_cast<std::size_t>(shown.size) * shown.columns()[i].bytes();
        shown.set_data(i,
                       queue.on_host(context, static_cast<const std::byte*>(shown.data(i)), bytes, columns[i]).data());
    }
    const float* const weights = state.worker.parameters();
    const Inspection<Kernels> inspection(
        step, context, queue.on_host(context, weights, replicas_.all_elements(), parameters),
        queue.on_host(context, gradient, replicas_.elements(), averaged), shown, batch.key, this,
        [](void* object, const BatchView& view, const RngKey& key, void* visitor,
           typename Inspection<Kernels>::VisitOutput visit) {
            static_cast<StepProbe*>(object)->visit_outputs(view, key, visitor, visit);
        });
    try {
        inspector(inspection);
    } catch (...) {
        return std::current_exception();
    }
    return nullptr;
}

template <class D, class T>
void StepProbe<D, T>::visit_outputs(const BatchView& view, const RngKey& key, void* visitor,
                                    typename Inspection<Kernels>::VisitOutput visit) {
    if (view.size == 0) return;
    auto& state = replicas_.at(0);
    state.queue->write(&state.status()->step, key.step);
    state.worker.inspect(
        replicas_.at(0).worker.plans().inspection(replicas_.network().make, view.size), state.worker.parameters(),
        samples_, key, statistics_, [&](std::size_t layer, std::span<const float> values) {
            std::vector<float> copy;
            visit(visitor, layer, state.queue->on_host(state.worker.context(), values.data(), values.size(), copy));
        });
}

}  // namespace impl

}}  // namespace cupola::CUPOLA_ABI
