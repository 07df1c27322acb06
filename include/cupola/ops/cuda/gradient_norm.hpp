// SPDX-License-Identifier: Apache-2.0
//
// The sum of squares of a gradient on `Cuda`, in double and in an order that depends only on the count.
// sum_of_squares() waits for the stream, so a step that calls it cannot be captured; the other functions leave their
// results on the device. The squares and the scale that clip a gradient are joined with the mean before them and the
// update after them: see impl/joined_updates.cuh.
#pragma once

#include <cstdint>

#include <cupola/device/cuda.hpp>
#include <cupola/ops/cuda/impl/launch_update.cuh>
#include <cupola/ops/cuda/impl/step_sums.cuh>
#include <cupola/ops/cuda/impl/sums_memory.hpp>
#include <cupola/ops/gradient_norm.hpp>
#include <cupola/ops/impl/kernel_parts/sums.hpp>
#include <cupola/ops/impl/kernel_parts/update_elements.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace ops {

template <>
struct GradientNorm<Cuda> {
    [[nodiscard]] static double sum_of_squares(const CudaContext& context, const float* w, const float* gradient,
                                               std::int64_t count, const GradientTerms& terms) {
        [[maybe_unused]] const auto scope = context.team();
        queue_sum_of_squares(context, w, gradient, count, terms, impl::result_of_sum<double>(context));
        return impl::read_result<double>(context);
    }
    /// `to` is on the device.
    static void queue_sum_of_squares(const CudaContext& context, const float* w, const float* gradient,
                                     std::int64_t count, const GradientTerms& terms, double* to) {
        impl::reduce<double>(context, count, impl::GradientSquare{w, gradient, terms}, impl::SumTo<double>{to});
    }

    /// Adds the squares of one span of a gradient to the sum; the first span sets the sum.
    static void queue_squares(const CudaContext& context, const float* w, const float* gradient, std::int64_t count,
                              const GradientTerms& terms, bool first) {
        const impl::GradientSquare square{w, gradient, terms};
        if (!impl::joined_step_sums(context).takes_span(count, first)) context.launch_joined();
        if (auto& joined = impl::joined_step_sums(context); joined.takes_span(count, first))
            return joined.add_span(square, count);
        impl::reduce<double>(context, count, square, impl::AddSumTo{&impl::sums_memory(context).clipping, first});
    }
    /// The address, on the device, of the scale that the next queued update clips by; there is only one.
    [[nodiscard]] static const float* clip_scale(const CudaContext& context) {
        return &impl::sums_memory(context).clip_scale;
    }
    /// Queues the computation of the scale that clips a gradient with that sum of squares to `max_norm`, times *before
    /// if `before` is not null.
    static void queue_clip_scale(const CudaContext& context, double max_norm, const float* before) {
        impl::SumsMemory& sums = impl::sums_memory(context);
        const impl::ClipScaleTo scale{&sums.clipping, max_norm, before, &sums.clip_scale};
        if (auto* const joined = context.joined_as<impl::JoinedStepSums>(); joined != nullptr && joined->takes_scale())
            return joined->set_scale(scale);
        impl::launch(context, 1, scale);
    }
};

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
