// SPDX-License-Identifier: Apache-2.0
//
// Local response normalisation on `Cuda`, by Cupola's own kernels: cuDNN's fast ones are for windows of 5 channels in
// float. Nothing is kept between forward and backward.
#pragma once

#include <cstdint>

#include <cupola/device/cuda.hpp>
#include <cupola/ops/cuda/impl/launch.cuh>
#include <cupola/ops/impl/kernel_parts/norm_elements.hpp>
#include <cupola/ops/local_response_norm.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

/// Queues y = normalised x. `y` must not be `x`: threads read their neighbours' elements.
template <class T>
void norm_forward(const CudaContext& context, const LocalResponseNormShape& shape, std::int64_t pixels, const T* x,
                  T* y) {
    const std::int64_t count = pixels * shape.channels;
    if (!norm_in_chunks(shape) || !aligned_for_packs(x, y))
        return launch(context, count, AnyNormForward<T>(shape, x, y));
    const NormFormula formula(shape);
    const ChunkPlaces places(shape.channels);
    if (shape.radius == 4) {
        launch(context, count / norm_chunk, NormForward<T, 4>{formula, places, x, y});
    } else {
        launch(context, count / norm_chunk, NormForward<T, 2>{formula, places, x, y});
    }
}

/// Queues the gradient; with `mask`, 0 where x is not positive. `dx` must be neither `x` nor `dy`.
template <class T>
void norm_backward(const CudaContext& context, const LocalResponseNormShape& shape, std::int64_t pixels, const T* x,
                   const T* dy, T* dx, bool mask) {
    const std::int64_t count = pixels * shape.channels;
    if (!norm_in_chunks(shape) || !aligned_for_packs(x, dy, dx)) {
        return launch(context, count, AnyNormBackward<T>(shape, x, dy, dx, mask));
    }
    const NormFormula formula(shape);
    const ChunkPlaces places(shape.channels);
    if (shape.radius == 4) {
        launch(context, count / norm_chunk, NormBackward<T, 4>{formula, places, x, dy, dx, mask});
    } else {
        launch(context, count / norm_chunk, NormBackward<T, 2>{formula, places, x, dy, dx, mask});
    }
}

}  // namespace impl

namespace ops {

template <impl::CudaElement T>
class LocalResponseNorm<Cuda, T> {
public:
    LocalResponseNorm(const BuildContext<Cuda, T>& build, const LocalResponseNormShape& shape)
        : shape_(shape), pixels_(build.batch * build.output.size() / shape.channels) {}

    void forward(const ForwardArgs<Cuda, T>& args) const {
        impl::norm_forward(args.context, shape_, pixels_, args.input, args.output);
    }

    void backward(const BackwardArgs<Cuda, T>& args) const {
        if (args.input_gradient == nullptr) return;
        impl::norm_backward(args.context, shape_, pixels_, args.input, args.output_gradient, args.input_gradient,
                            false);
    }

private:
    LocalResponseNormShape shape_;
    std::int64_t pixels_;
};

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
