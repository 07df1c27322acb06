// SPDX-License-Identifier: Apache-2.0
//
// PartEvaluation: a forward pass without training through the parts of a network, one after another, each on its own
// device: no device needs memory for the whole network.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>

#include <cupola/core/error.hpp>
#include <cupola/core/fixed_array.hpp>
#include <cupola/device/device.hpp>
#include <cupola/net/pipeline/cut_info.hpp>
#include <cupola/net/plan.hpp>
#include <cupola/net/table.hpp>
#include <cupola/parallel/impl/network_info.hpp>
#include <cupola/parallel/pipeline/part_copies.hpp>
#include <cupola/parallel/replicas/plans.hpp>
#include <cupola/tensor/batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

template <class Device, class T>
class PartEvaluation {
public:
    using Context = typename Device::Context;
    using Copies = PartCopies<Device>;

    explicit PartEvaluation(const CutInfo& cut)
        : cut_(&cut), last_(cut.parts()), outputs_(count_outputs(cut.layers)), outputs_at_(outputs_.size()) {
        find_outputs(cut.layers, outputs_);
    }

    /// For batches of at most that size; before the memory is allocated.
    [[gnu::cold]] void set_max_batch(std::int64_t batch) { max_batch_ = std::max(max_batch_, batch); }
    /// The bytes of the outputs on the first device, by whose thread they are allocated.
    [[nodiscard]] std::size_t bytes() const {
        std::size_t bytes = 0;
        if (!copies_outputs()) return bytes;
        for (const NetworkOutput& each : outputs_) bytes += bytes_of(each);
        return bytes;
    }
    [[gnu::cold]] void allocate(int ordinal) {
        copied_ = typename Device::Arena(bytes(), text("the outputs on device ", ordinal));
        std::size_t at = 0;
        for (std::size_t k = 0; k < outputs_.size(); ++k) {
            outputs_at_[k] = at;
            at += bytes_of(outputs_[k]);
        }
    }

    /// Computes a part for a batch, after the part before it, on the thread of its device, and returns when it is
    /// complete. `received` is where a float value that enters the part is copied to; null if it is read in place.
    void forward(std::size_t part, Context& context, const typename Plans<Device, T>::Taken& taken,
                 const BatchView& samples, const EvaluatedArrays& arrays, float* received);
    /// Output `k` of the network in memory of the first device, until the next pass.
    [[nodiscard]] const float* output(std::size_t k) {
        if (copies_outputs()) return reinterpret_cast<const float*>(copied_.data() + outputs_at_[k]);
        return last_[cut_->parts() - 1]->output(k);
    }

private:
    [[nodiscard]] bool copies_outputs() const {
        const std::size_t parts = cut_->parts();
        return Copies::needed && cut_->device_of(parts - 1, parts) != cut_->device_of(0, parts);
    }
    [[nodiscard]] std::size_t bytes_of(const NetworkOutput& output) const {
        return aligned(static_cast<std::size_t>(max_batch_ * output.shape.size()) * sizeof(float));
    }
    [[nodiscard]] PlanInputs input(std::size_t part, Context& context, Plan<Device, T>& plan, const BatchView& samples,
                                   [[maybe_unused]] float* received);

    const CutInfo* cut_;
    std::int64_t max_batch_ = 0;
    /// Of each part, the plan that ran last.
    FixedArray<Plan<Device, T>*> last_;
    FixedArray<NetworkOutput> outputs_;
    /// The outputs in the memory of the first device, and where each begins.
    typename Device::Arena copied_;
    FixedArray<std::size_t> outputs_at_;
};

template <class Device, class T>
PlanInputs PartEvaluation<Device, T>::input(std::size_t part, Context& context, Plan<Device, T>& plan,
                                            const BatchView& samples, [[maybe_unused]] float* received) {
    if (part == 0) return samples;
    const T* const from = last_[part - 1]->own_output(0);
    const std::size_t bytes = static_cast<std::size_t>(samples.size * plan.nodes().front().input.size()) * sizeof(T);
    if constexpr (std::same_as<T, float>) {
        if (received == nullptr) return from;
        Device::copy_between(context, received, from, bytes);
        return static_cast<const float*>(received);
    } else {
        Device::copy_between(context, plan.place_of_batch(), from, bytes);
        return static_cast<const float*>(nullptr);  // it has been converted
    }
}

template <class Device, class T>
void PartEvaluation<Device, T>::forward(std::size_t part, Context& context,
                                        const typename Plans<Device, T>::Taken& taken, const BatchView& samples,
                                        const EvaluatedArrays& arrays, float* received) {
    Plan<Device, T>& plan = *taken.plan;
    last_[part] = &plan;
    plan.prepare(context, arrays.parameters, arrays.running, arrays.frozen, taken.packs);
    const bool is_last = part + 1 == cut_->parts();
    static_cast<void>(plan.forward(context, input(part, context, plan, samples, received), arrays.parameters,
                                   {.training = false},
                                   {.running = arrays.running,
                                    .frozen = arrays.frozen,
                                    .batch_is_converted = part > 0 && !std::same_as<T, float>,
                                    .keeps_outputs = !is_last}));
    if (is_last && copies_outputs()) {
        for (std::size_t k = 0; k < outputs_.size(); ++k) {
            Device::copy_between(context, copied_.data() + outputs_at_[k], plan.output(k),
                                 static_cast<std::size_t>(samples.size * outputs_[k].shape.size()) * sizeof(float));
        }
    }
    if constexpr (Copies::needed) context.synchronize();
}

}}}  // namespace cupola::CUPOLA_ABI::impl
