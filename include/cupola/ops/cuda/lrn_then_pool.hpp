// SPDX-License-Identifier: Apache-2.0
//
// LocalResponseNorm followed by MaxPool2d on `Cuda`, one kernel in each direction: the normalised values and their
// gradients exist only in registers, computed by each thread whose window contains them. For shapes that the kernels
// for chunks do not support, they are stored in scratch memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cupola/device/cuda.hpp>
#include <cupola/ops/cuda/local_response_norm.hpp>
#include <cupola/ops/cuda/pooling.hpp>
#include <cupola/ops/impl/kernel_parts/norm_pool_elements.hpp>
#include <cupola/ops/lrn_then_pool.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace ops {

template <impl::CudaElement T>
class LrnThenPool<Cuda, T> {
public:
    LrnThenPool(const BuildContext<Cuda, T>& build, const LocalResponseNormShape& norm, const PoolingShape& pooling)
        : norm_(norm),
          pooling_(pooling),
          batch_(build.batch),
          inputs_(build.batch * build.input.size()),
          outputs_(build.batch * build.output.size()),
          mask_(build.applies_relu_mask_of_previous),
          saves_(build.training) {}

    [[nodiscard]] std::int64_t gradient_sum_parts() const {
        const bool sums = impl::norm_in_chunks(norm_) && impl::sums_channels(pooling_.channels);
        return sums ? impl::gradient_sum_parts(inputs_) : 0;
    }

    [[nodiscard]] MemoryNeeds needs() const {
        return {.saved = saves_ ? static_cast<std::size_t>(outputs_) : 0,
                .scratch = impl::norm_in_chunks(norm_) ? 0 : static_cast<std::size_t>(inputs_) * sizeof(T)};
    }

    void forward(const ForwardArgs<Cuda, T>& args) const {
        if (!impl::norm_in_chunks(norm_)) {
            T* const normed = reinterpret_cast<T*>(args.scratch);
            impl::norm_forward(args.context, norm_, inputs_ / norm_.channels, args.input, normed);
            return impl::max_pool_forward(args.context, pooling_, batch_, normed, args.output,
                                          saves_ ? offsets(args) : nullptr, false);
        }
        norm_.radius == 4 ? launch<4>(args) : launch<2>(args);
    }

    void backward(const BackwardArgs<Cuda, T>& args) const {
        if (args.input_gradient == nullptr) return;
        if (!impl::norm_in_chunks(norm_)) {
            T* const gradient = reinterpret_cast<T*>(args.scratch);
            impl::max_pool_backward<T, std::uint8_t>(args.context, pooling_, batch_, args.output_gradient,
                                                     offsets(args), gradient, {});
            return impl::norm_backward(args.context, norm_, inputs_ / norm_.channels, args.input, gradient,
                                       args.input_gradient, mask_);
        }
        norm_.radius == 4 ? launch_backward<4>(args) : launch_backward<2>(args);
    }

private:
    template <int radius>
    void launch(const ForwardArgs<Cuda, T>& args) const {
        switch (impl::known_window(pooling_)) {
            case 2: return launch<radius, 2>(args);
            case 3: return launch<radius, 3>(args);
            default: return launch<radius, 0>(args);
        }
    }
    template <int radius, int window>
    void launch(const ForwardArgs<Cuda, T>& args) const {
        const impl::PoolExtents extents(pooling_, impl::norm_chunk);
        impl::launch(args.context, extents.outputs(batch_),
                     impl::LrnThenPoolForward<T, radius, window>{extents, impl::NormFormula(norm_), args.input,
                                                                 args.output, saves_ ? offsets(args) : nullptr});
    }
    template <int radius>
    void launch_backward(const BackwardArgs<Cuda, T>& args) const {
        const impl::PoolExtents extents(pooling_, impl::norm_chunk);
        impl::launch_summed<impl::norm_chunk>(
            args.context, extents.inputs(batch_), pooling_.channels, args.input_gradient_sums,
            impl::LrnThenPoolBackward<T, radius>{extents, impl::NormFormula(norm_), args.input, args.output_gradient,
                                                 offsets(args), args.input_gradient, mask_});
    }

    [[nodiscard]] std::uint8_t* offsets(const ForwardArgs<Cuda, T>& args) const {
        return reinterpret_cast<std::uint8_t*>(args.saved);
    }

    LocalResponseNormShape norm_;
    PoolingShape pooling_;
    std::int64_t batch_, inputs_, outputs_;
    bool mask_, saves_;
};

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
