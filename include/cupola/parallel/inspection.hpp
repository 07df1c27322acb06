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
#include <span>
#include <vector>

#include <cupola/core/function_ref.hpp>
#include <cupola/net/plan.hpp>
#include <cupola/parallel/replicas/replicas.hpp>
#include <cupola/parallel/step/batches.hpp>
#include <cupola/parallel/step/engine.hpp>
#include <cupola/parallel/step/inspected_values.hpp>
#include <cupola/tensor/batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

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

/// @cond the class is internal
template <class D, class T>
template <class Inspector>
void StepEngine<D, T>::show(Inspector& inspector) {
    const std::int64_t step = reader_.next();
    replicas_.at(0).queue->mark();
    agreement_.wait(0, step, false);
    // The first replica that has samples; if there is none, all samples are in another process.
    int replica = replicas_.placement().first_replica(0);
    while (replicas_.placement().is_here(replica + 1) && counts_.of_replica(step, replica) == 0) ++replica;
    const bool has_samples = counts_.of_replica(step, replica) > 0;
    error_of_probe_ =
        StepProbe<D, T>(replicas_).show(step, replica, has_samples ? passes_.batches().of(replica) : TakenBatch{},
                                        agreement_.gradient(0, replica, step).values, inspector);
}
/// @endcond

}  // namespace impl

}}  // namespace cupola::CUPOLA_ABI
