// SPDX-License-Identifier: Apache-2.0
//
// Pooling on `Cuda`, by Cupola's own kernels: padding that is larger at the end needs no copy, the window offset of a
// maximum is one byte where the window has at most 15 x 15 elements, and a NaN is never lost.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cupola/device/cuda.hpp>
#include <cupola/ops/cuda/impl/launch.cuh>
#include <cupola/ops/cuda/impl/window_launch.hpp>
#include <cupola/ops/impl/kernel_parts/pack.hpp>
#include <cupola/ops/impl/kernel_parts/pool_elements.hpp>
#include <cupola/ops/pooling.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

/// The window extents for which kernels are specialised: 2 or 3 in both directions; 0 for all others.
[[nodiscard]] constexpr int known_window(const PoolingShape& shape) {
    return shape.height.window == shape.width.window && (shape.height.window == 2 || shape.height.window == 3)
               ? static_cast<int>(shape.height.window)
               : 0;
}

template <int n, int window, class T, class Offset>
void launch_maxima(const CudaContext& context, const PoolingShape& shape, std::int64_t batch, const T* x, T* y,
                   Offset* offsets, bool mask) {
    const PoolExtents extents(shape, n);
    launch(context, extents.outputs(batch), MaxPoolForward<T, n, window, Offset>{extents, x, y, offsets, mask});
}

/// Queues y = maxima of x, with their offsets unless null.
template <class T, class Offset>
void max_pool_forward(const CudaContext& context, const PoolingShape& shape, std::int64_t batch, const T* x, T* y,
                      Offset* offsets, bool mask) {
    constexpr int n = pack_size<T>;
    if (shape.channels % n != 0 || !aligned_for_packs(x, y, offsets))
        return launch_maxima<1, 0>(context, shape, batch, x, y, offsets, mask);
    switch (known_window(shape)) {
        case 2: return launch_maxima<n, 2>(context, shape, batch, x, y, offsets, mask);
        case 3: return launch_maxima<n, 3>(context, shape, batch, x, y, offsets, mask);
        default: return launch_maxima<n, 0>(context, shape, batch, x, y, offsets, mask);
    }
}

/// With the sums of dx, where they have parts.
template <class T, class Offset>
void max_pool_backward(const CudaContext& context, const PoolingShape& shape, std::int64_t batch, const T* dy,
                       const Offset* offsets, T* dx, const ChannelSums& sums) {
    constexpr int n = pack_size<T>;
    const bool packs = shape.channels % n == 0 && aligned_for_packs(dy, offsets, dx);
    const PoolExtents extents(shape, packs ? n : 1);
    if (packs) {
        launch_summed<n>(context, extents.inputs(batch), shape.channels, sums,
                         MaxPoolBackward<T, n, Offset>{extents, dy, offsets, dx});
    } else {
        launch_summed<1>(context, extents.inputs(batch), shape.channels, sums,
                         MaxPoolBackward<T, 1, Offset>{extents, dy, offsets, dx});
    }
}

}  // namespace impl

namespace ops {

template <impl::CudaElement T>
class Pooling<Cuda, T> {
public:
    Pooling(const BuildContext<Cuda, T>& build, const PoolingShape& shape)
        : shape_(shape),
          batch_(build.batch),
          inputs_(build.batch * build.input.size()),
          outputs_(build.batch * build.output.size()),
          mask_(build.applies_relu_mask_of_previous),
          saves_(build.training) {}

    [[nodiscard]] std::int64_t gradient_sum_parts() const {
        const bool sums = shape_.kind == PoolingKind::max && impl::sums_channels(shape_.channels);
        return sums ? impl::gradient_sum_parts(inputs_) : 0;
    }

    [[nodiscard]] MemoryNeeds needs() const {
        if (!saves_ || shape_.kind != PoolingKind::max) return {};
        return {.saved = static_cast<std::size_t>(outputs_) * (place_is_a_byte(shape_) ? 1 : sizeof(std::int32_t))};
    }

    void forward(const ForwardArgs<Cuda, T>& args) const {
        if (shape_.kind == PoolingKind::average) return means(args);
        if (place_is_a_byte(shape_)) return maxima<std::uint8_t>(args);
        maxima<std::int32_t>(args);
    }

    void backward(const BackwardArgs<Cuda, T>& args) const {
        if (args.input_gradient == nullptr) return;
        if (shape_.kind == PoolingKind::average) return means_backward(args);
        if (place_is_a_byte(shape_)) return maxima_backward<std::uint8_t>(args);
        maxima_backward<std::int32_t>(args);
    }

private:
    static constexpr int n = impl::pack_size<T>;

    template <class Offset>
    void maxima(const ForwardArgs<Cuda, T>& args) const {
        impl::max_pool_forward(args.context, shape_, batch_, args.input, args.output,
                               saves_ ? reinterpret_cast<Offset*>(args.saved) : nullptr, mask_);
    }
    template <class Offset>
    void maxima_backward(const BackwardArgs<Cuda, T>& args) const {
        impl::max_pool_backward(args.context, shape_, batch_, args.output_gradient,
                                reinterpret_cast<const Offset*>(args.saved), args.input_gradient,
                                args.input_gradient_sums);
    }
    void means(const ForwardArgs<Cuda, T>& args) const {
        const bool packs = shape_.channels % n == 0 && impl::aligned_for_packs(args.input, args.output);
        impl::launch_over_outputs<impl::MeanPoolForward, T>(args.context, shape_, batch_, packs,
                                                            impl::MeanDivisor(shape_), args.input, args.output);
    }
    void means_backward(const BackwardArgs<Cuda, T>& args) const {
        const T* const y = mask_ ? args.output : nullptr;
        const bool packs =
            shape_.channels % n == 0 && impl::aligned_for_packs(y, args.output_gradient, args.input_gradient);
        impl::launch_over_inputs<impl::MeanPoolBackward, T>(args.context, shape_, batch_, packs,
                                                            impl::MeanDivisor(shape_), y, args.output_gradient,
                                                            args.input_gradient);
    }

    PoolingShape shape_;
    std::int64_t batch_, inputs_, outputs_;
    bool mask_, saves_;
};

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
