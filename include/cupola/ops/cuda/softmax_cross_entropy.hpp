// SPDX-License-Identifier: Apache-2.0
//
// Softmax cross-entropy on `Cuda`. Logits and targets are in the device's memory; the weights of classes are a kernel's
// argument, so there are at most 8,000.
//
// `queue` writes the batch's LossReport to the given place and waits for nothing; `forward` waits and reads it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <cupola/device/cuda.hpp>
#include <cupola/ops/cuda/impl/linear_chain.cuh>
#include <cupola/ops/cuda/rows.hpp>
#include <cupola/ops/impl/kernel_parts/pack.hpp>
#include <cupola/ops/impl/kernel_parts/weight_array.hpp>
#include <cupola/ops/softmax_cross_entropy.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace ops {

template <impl::CudaElement T, class Targets>
class SoftmaxCrossEntropy<Cuda, T, Targets> {
    using Target = typename Targets::Target;

public:
    explicit SoftmaxCrossEntropy(const CrossEntropySettings& settings) : settings_(settings) {
        impl::require_weight_capacity(settings.class_weights.size());
    }
    SoftmaxCrossEntropy(std::int64_t classes, float label_smoothing)
        : SoftmaxCrossEntropy(CrossEntropySettings{.classes = classes, .label_smoothing = label_smoothing}) {}

    /// The same loss of outputs in another type.
    template <impl::CudaElement U>
    [[nodiscard]] auto in_type() const {
        return SoftmaxCrossEntropy<Cuda, U, Targets>(settings_);
    }

    /// Queues the loss of the rows of `batch` samples; `gradient`, times `factor`, is written if it is not null.
    /// `report` is written when the work is complete: it is in the device's memory, or in pinned memory of the host.
    /// Partial sums are in the context's memory.
    void queue(const CudaContext& context, const T* logits, const Target* targets, std::int64_t batch, T* gradient,
               LossReport* report, const impl::GradientFactor& factor = {}) const {
        const auto queue_with = [&](const auto& of_rows) {
            queue_rows(context,
                       impl::CrossEntropyRow<T, std::remove_cvref_t<decltype(of_rows)>>{
                           logits, gradient, batch * settings_.positions, of_rows, factor},
                       report);
        };
        if constexpr (requires { Targets(settings_, targets); }) {
            queue_with(Targets(settings_, targets));
        } else if (settings_.class_weights.size() <= impl::few_weights) {
            queue_with(weighted<impl::few_weights>(targets));
        } else {
            queue_with(weighted<impl::many_weights>(targets));
        }
    }

    /// Converts a completed report. Throws InvalidArgument for an invalid target.
    [[nodiscard]] LossResult result_of(const LossReport& report) const {
        return impl::result_of<Targets>(report, settings_);
    }

    /// Waits for the result. A captured step uses `queue`.
    LossResult forward(const CudaContext& context, const T* logits, const Target* targets, std::int64_t batch,
                       T* gradient) const {
        queue(context, logits, targets, batch, gradient, impl::result_of_sum<LossReport>(context));
        return result_of(impl::read_result<LossReport>(context));
    }

private:
    template <std::size_t capacity>
    [[nodiscard]] auto weighted(const Target* targets) const {
        return typename Targets::template With<impl::WeightArray<capacity>>(
            settings_, targets, impl::weight_array<capacity>(settings_.class_weights));
    }

    template <class Of>
    void queue_rows(const CudaContext& context, const impl::CrossEntropyRow<T, Of>& row, LossReport* report) const {
        // The loss of the last layer of a chain that has not been launched yet joins it.
        if constexpr (impl::LinearChain<T>::template has_room_for<Of>) {
            auto* const chain = context.joined_as<impl::LinearChain<T>>();
            if (chain != nullptr && settings_.positions == 1 &&
                chain->takes_loss(row.logits, row.rows, row.targets.classes))
                return chain->set_loss(context, row, report);
        }
        report_rows(context, row.rows, row.targets.classes, settings_.positions, row, report);
    }

    CrossEntropySettings settings_;
};

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
