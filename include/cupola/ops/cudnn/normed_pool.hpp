// SPDX-License-Identifier: Apache-2.0
//
// LocalResponseNorm and then MaxPool2d on `Cuda`, one kernel in each direction: the normalised values and their
// gradients are nowhere but in registers, computed by each thread whose window holds them. Where the kernels for chunks
// do not fit they go through scratch.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cupola/device/cuda.hpp>
#include <cupola/ops/cudnn/impl/norm_pool_elements.hpp>
#include <cupola/ops/cudnn/local_response_norm.hpp>
#include <cupola/ops/cudnn/pooling.hpp>
#include <cupola/ops/normed_pool.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace ops {

template <impl::CudaElement T>
class NormedPool<Cuda, T> {
public:
    NormedPool(const Site<Cuda, T>& site, const LocalResponseNormShape& norm, const PoolingShape& pooling)
        : norm_(norm),
          pooling_(pooling),
          batch_(site.batch),
          inputs_(site.batch * site.input.size()),
          outputs_(site.batch * site.output.size()),
          mask_(site.masks_for_previous),
          saves_(site.training) {}

    [[nodiscard]] MemoryNeeds needs() const {
        return {.saved = saves_ ? static_cast<std::size_t>(outputs_) : 0,
                .scratch = impl::norm_in_chunks(norm_) ? 0 : static_cast<std::size_t>(inputs_) * sizeof(T)};
    }

    void forward(const Pass<Cuda, T>& pass) const {
        if (!impl::norm_in_chunks(norm_)) {
            T* const normed = reinterpret_cast<T*>(pass.scratch);
            impl::norm_forward(pass.context, norm_, inputs_ / norm_.channels, pass.input, normed);
            return impl::max_pool_forward(pass.context, pooling_, batch_, normed, pass.output,
                                          saves_ ? taps(pass) : nullptr, false);
        }
        norm_.radius == 4 ? launch<4>(pass) : launch<2>(pass);
    }

    void backward(const Pass<Cuda, T>& pass) const {
        if (pass.input_gradient == nullptr) return;
        if (!impl::norm_in_chunks(norm_)) {
            T* const gradient = reinterpret_cast<T*>(pass.scratch);
            impl::max_pool_backward<T, std::uint8_t>(pass.context, pooling_, batch_, pass.output_gradient, taps(pass),
                                                     gradient);
            return impl::norm_backward(pass.context, norm_, inputs_ / norm_.channels, pass.input, gradient,
                                       pass.input_gradient, mask_);
        }
        norm_.radius == 4 ? launch_backward<4>(pass) : launch_backward<2>(pass);
    }

private:
    template <int radius>
    void launch(const Pass<Cuda, T>& pass) const {
        switch (impl::known_window(pooling_)) {
            case 2: return launch<radius, 2>(pass);
            case 3: return launch<radius, 3>(pass);
            default: return launch<radius, 0>(pass);
        }
    }
    template <int radius, int window>
    void launch(const Pass<Cuda, T>& pass) const {
        const impl::PoolExtents extents(pooling_, impl::norm_chunk);
        impl::launch(pass.context, extents.outputs(batch_),
                     impl::NormedPoolForward<T, radius, window>{extents, impl::NormPowers(norm_), pass.input,
                                                                pass.output, saves_ ? taps(pass) : nullptr});
    }
    template <int radius>
    void launch_backward(const Pass<Cuda, T>& pass) const {
        const impl::PoolExtents extents(pooling_, impl::norm_chunk);
        impl::launch(pass.context, extents.inputs(batch_),
                     impl::NormedPoolBackward<T, radius>{extents, impl::NormPowers(norm_), pass.input,
                                                         pass.output_gradient, taps(pass), pass.input_gradient, mask_});
    }

    [[nodiscard]] std::uint8_t* taps(const Pass<Cuda, T>& pass) const {
        return reinterpret_cast<std::uint8_t*>(pass.saved);
    }

    LocalResponseNormShape norm_;
    PoolingShape pooling_;
    std::int64_t batch_, inputs_, outputs_;
    bool mask_, saves_;
};

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
