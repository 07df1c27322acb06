// SPDX-License-Identifier: Apache-2.0
//
// MaxPool2d and then LocalResponseNorm on `Cuda`: forward is one kernel, which saves the pooled values and the places
// of the maxima; backward makes the gradient of the pooled values in scratch and gathers the input's from there. (In
// one kernel each pooled value's gradient would be computed by all of the inputs that its window holds.)
#pragma once

#include <cstddef>
#include <cstdint>

#include <cupola/device/cuda.hpp>
#include <cupola/ops/cudnn/impl/norm_pool_elements.hpp>
#include <cupola/ops/cudnn/local_response_norm.hpp>
#include <cupola/ops/cudnn/pooling.hpp>
#include <cupola/ops/pooled_norm.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace ops {

template <impl::CudaElement T>
class PooledNorm<Cuda, T> {
public:
    PooledNorm(const Site<Cuda, T>& site, const PoolingShape& pooling, const LocalResponseNormShape& norm)
        : pooling_(pooling),
          norm_(norm),
          batch_(site.batch),
          outputs_(site.batch * site.output.size()),
          mask_(site.masks_for_previous),
          saves_(site.training),
          pooled_bytes_(aligned(static_cast<std::size_t>(outputs_) * sizeof(T))) {}

    [[nodiscard]] MemoryNeeds needs() const {
        if (!saves_) return {.scratch = impl::norm_in_chunks(norm_) ? 0 : pooled_bytes_};
        return {.saved = pooled_bytes_ + static_cast<std::size_t>(outputs_), .scratch = pooled_bytes_};
    }

    void forward(const Pass<Cuda, T>& pass) const {
        T* const pooled = saves_ ? this->pooled(pass) : reinterpret_cast<T*>(pass.scratch);
        std::uint8_t* const taps = saves_ ? this->taps(pass) : nullptr;
        if (!impl::norm_in_chunks(norm_)) {
            impl::max_pool_forward(pass.context, pooling_, batch_, pass.input, pooled, taps, mask_);
            return impl::norm_forward(pass.context, norm_, outputs_ / norm_.channels, pooled, pass.output);
        }
        norm_.radius == 4 ? launch<4>(pass, saves_ ? pooled : nullptr, taps)
                          : launch<2>(pass, saves_ ? pooled : nullptr, taps);
    }

    void backward(const Pass<Cuda, T>& pass) const {
        if (pass.input_gradient == nullptr) return;
        T* const gradient = reinterpret_cast<T*>(pass.scratch);
        impl::norm_backward(pass.context, norm_, outputs_ / norm_.channels, pooled(pass), pass.output_gradient,
                            gradient, false);
        impl::max_pool_backward<T, std::uint8_t>(pass.context, pooling_, batch_, gradient, taps(pass),
                                                 pass.input_gradient);
    }

private:
    template <int radius>
    void launch(const Pass<Cuda, T>& pass, T* pooled, std::uint8_t* taps) const {
        switch (impl::known_window(pooling_)) {
            case 2: return launch<radius, 2>(pass, pooled, taps);
            case 3: return launch<radius, 3>(pass, pooled, taps);
            default: return launch<radius, 0>(pass, pooled, taps);
        }
    }
    template <int radius, int window>
    void launch(const Pass<Cuda, T>& pass, T* pooled, std::uint8_t* taps) const {
        const impl::PoolExtents extents(pooling_, impl::norm_chunk);
        impl::launch(pass.context, extents.outputs(batch_),
                     impl::PooledNormForward<T, radius, window>{extents, impl::NormPowers(norm_), pass.input,
                                                                pass.output, pooled, taps, mask_});
    }

    [[nodiscard]] T* pooled(const Pass<Cuda, T>& pass) const { return reinterpret_cast<T*>(pass.saved); }
    [[nodiscard]] std::uint8_t* taps(const Pass<Cuda, T>& pass) const {
        return reinterpret_cast<std::uint8_t*>(pass.saved + pooled_bytes_);
    }

    PoolingShape pooling_;
    LocalResponseNormShape norm_;
    std::int64_t batch_, outputs_;
    bool mask_, saves_;
    std::size_t pooled_bytes_;
};

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
