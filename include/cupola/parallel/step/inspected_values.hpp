// SPDX-License-Identifier: Apache-2.0
//
// What an inspector sees of a step. A program that inspects steps includes parallel/inspection.hpp, which fills it; one
// that has not is told so where it passes its inspector.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>

#include <cupola/net/plan_arguments.hpp>
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

}}  // namespace cupola::CUPOLA_ABI
