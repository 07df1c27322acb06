// SPDX-License-Identifier: Apache-2.0
//
// Pooling on `Cuda`, by kernels of our own: padding that is longer at the end needs no copy, the place of a maximum is
// a byte where the window has at most 15 x 15 taps, and a NaN is never lost.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cupola/device/cuda.hpp>
#include <cupola/ops/cudnn/impl/launch.cuh>
#include <cupola/ops/cudnn/impl/pool_elements.hpp>
#include <cupola/ops/pooling.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

/// The extent of a window that kernels know: 2 or 3 both ways; 0 for every other.
[[nodiscard]] constexpr int known_window(const PoolingShape& shape) {
    return shape.height.window == shape.width.window && (shape.height.window == 2 || shape.height.window == 3)
               ? static_cast<int>(shape.height.window)
               : 0;
}

template <int n, int window, class T, class Tap>
void launch_maxima(const CudaContext& context, const PoolingShape& shape, std::int64_t batch, const T* x, T* y,
                   Tap* taps, bool mask) {
    const PoolExtents extents(shape, n);
    launch(context, extents.outputs(batch), MaxPoolForward<T, n, window, Tap>{extents, x, y, taps, mask});
}

/// Queues y = maxima of x, with their taps unless null.
template <class T, class Tap>
void max_pool_forward(const CudaContext& context, const PoolingShape& shape, std::int64_t batch, const T* x, T* y,
                      Tap* taps, bool mask) {
    constexpr int n = pack_size<T>;
    if (shape.channels % n != 0 || !aligned_for_packs(x, y, taps))
        return launch_maxima<1, 0>(context, shape, batch, x, y, taps, mask);
    switch (known_window(shape)) {
        case 2: return launch_maxima<n, 2>(context, shape, batch, x, y, taps, mask);
        case 3: return launch_maxima<n, 3>(context, shape, batch, x, y, taps, mask);
        default: return launch_maxima<n, 0>(context, shape, batch, x, y, taps, mask);
    }
}

template <class T, class Tap>
void max_pool_backward(const CudaContext& context, const PoolingShape& shape, std::int64_t batch, const T* dy,
                       const Tap* taps, T* dx) {
    constexpr int n = pack_size<T>;
    const bool packs = shape.channels % n == 0 && aligned_for_packs(dy, taps, dx);
    const PoolExtents extents(shape, packs ? n : 1);
    if (packs) {
        launch(context, extents.inputs(batch), MaxPoolBackward<T, n, Tap>{extents, dy, taps, dx});
    } else {
        launch(context, extents.inputs(batch), MaxPoolBackward<T, 1, Tap>{extents, dy, taps, dx});
    }
}

}  // namespace impl

namespace ops {

template <impl::CudaElement T>
class Pooling<Cuda, T> {
public:
    Pooling(const Site<Cuda, T>& site, const PoolingShape& shape)
        : shape_(shape),
          batch_(site.batch),
          outputs_(site.batch * site.output.size()),
          mask_(site.masks_for_previous),
          saves_(site.training) {}

    [[nodiscard]] MemoryNeeds needs() const {
        if (!saves_ || shape_.kind != PoolingKind::max) return {};
        return {.saved = static_cast<std::size_t>(outputs_) * (place_is_a_byte(shape_) ? 1 : sizeof(std::int32_t))};
    }

    void forward(const Pass<Cuda, T>& pass) const {
        if (shape_.kind == PoolingKind::average) return means(pass);
        if (place_is_a_byte(shape_)) return maxima<std::uint8_t>(pass);
        maxima<std::int32_t>(pass);
    }

    void backward(const Pass<Cuda, T>& pass) const {
        if (pass.input_gradient == nullptr) return;
        if (shape_.kind == PoolingKind::average) return means_backward(pass);
        if (place_is_a_byte(shape_)) return maxima_backward<std::uint8_t>(pass);
        maxima_backward<std::int32_t>(pass);
    }

private:
    static constexpr int n = impl::pack_size<T>;

    template <class Tap>
    void maxima(const Pass<Cuda, T>& pass) const {
        impl::max_pool_forward(pass.context, shape_, batch_, pass.input, pass.output,
                               saves_ ? reinterpret_cast<Tap*>(pass.saved) : nullptr, mask_);
    }
    template <class Tap>
    void maxima_backward(const Pass<Cuda, T>& pass) const {
        impl::max_pool_backward(pass.context, shape_, batch_, pass.output_gradient,
                                reinterpret_cast<const Tap*>(pass.saved), pass.input_gradient);
    }
    void means(const Pass<Cuda, T>& pass) const {
        const bool packs = shape_.channels % n == 0 && impl::aligned_for_packs(pass.input, pass.output);
        const impl::PoolExtents extents(shape_, packs ? n : 1);
        if (packs) {
            impl::launch(pass.context, extents.outputs(batch_),
                         impl::MeanPoolForward<T, n>{extents, pass.input, pass.output});
        } else {
            impl::launch(pass.context, extents.outputs(batch_),
                         impl::MeanPoolForward<T, 1>{extents, pass.input, pass.output});
        }
    }
    void means_backward(const Pass<Cuda, T>& pass) const {
        const T* const y = mask_ ? pass.output : nullptr;
        const T* const dy = pass.output_gradient;
        T* const dx = pass.input_gradient;
        const bool packs = shape_.channels % n == 0 && impl::aligned_for_packs(y, dy, dx);
        const impl::PoolExtents extents(shape_, packs ? n : 1);
        if (packs) {
            impl::launch(pass.context, extents.inputs(batch_), impl::MeanPoolBackward<T, n>{extents, y, dy, dx});
        } else {
            impl::launch(pass.context, extents.inputs(batch_), impl::MeanPoolBackward<T, 1>{extents, y, dy, dx});
        }
    }

    PoolingShape shape_;
    std::int64_t batch_, outputs_;
    bool mask_, saves_;
};

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
