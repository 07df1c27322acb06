// SPDX-License-Identifier: Apache-2.0
//
// The sum of the squares of a gradient on `Cuda`, in double and in an order that depends on the count alone.
// sum_of_squares() waits for the stream, and a step that calls it cannot be captured; queue_sum_of_squares() leaves the
// sum on the device.
#pragma once

#include <cstdint>

#include <cupola/device/cuda.hpp>
#include <cupola/ops/cudnn/impl/launch.cuh>
#include <cupola/ops/cudnn/impl/sums.hpp>
#include <cupola/ops/cudnn/impl/update_elements.hpp>
#include <cupola/ops/gradient_norm.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace ops {

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
        impl::reduce<double>(context, count, impl::GradientSquare{w, gradient, terms},
                             impl::SumTo<double>{to});
    }
};

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
