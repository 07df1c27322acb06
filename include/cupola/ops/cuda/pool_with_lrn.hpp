// SPDX-License-Identifier: Apache-2.0
//
// MaxPool2d and LocalResponseNorm one after the other on `Cuda`.
//
// PoolThenLrn: forward is one kernel, which saves the pooled values and the window offsets of the maxima; backward
// computes the gradient of the pooled values in scratch memory and gathers the input's from there. (In a single kernel,
// each pooled value's gradient would be computed by all of the inputs in its window.)
//
// LrnThenPool: one kernel in each direction; the normalised values and their gradients exist only in registers,
// computed by each thread whose window contains them. For shapes that the kernels for chunks do not support, they are
// stored in scratch memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cupola/device/cuda.hpp>
#include <cupola/ops/cuda/local_response_norm.hpp>
#include <cupola/ops/cuda/pooling.hpp>
#include <cupola/ops/impl/kernel_parts/norm_pool_elements.hpp>
#include <cupola/ops/pool_with_lrn.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace ops {

template <impl::CudaElement T>
class PoolThenLrn<Cuda, T> {
public:
    PoolThenLrn(const BuildContext<Cuda, T>& build, const PoolingShape& pooling, const LocalResponseNormShape& norm)
        : pooling_(pooling),
          norm_(norm),
          batch_(build.batch),
          inputs_(build.batch * build.input.size()),
          outputs_(build.batch * build.output.size()),
          mask_(build.applies_relu_mask_of_previous),
          saves_(build.training),
          pooled_bytes_(aligned(static_cast<std::size_t>(outputs_) * sizeof(T))) {}

    [[nodiscard]] std::int64_t gradient_sum_parts() const {
        return impl::sums_channels(pooling_.channels) ? impl::gradient_sum_parts(inputs_) : 0;
    }

    [[nodiscard]] MemoryNeeds needs() const {
        if (!saves_) return {.scratch = impl::norm_in_chunks(norm_) ? 0 : pooled_bytes_};
        return {.saved = pooled_bytes_ + static_cast<std::size_t>(outputs_), .scratch = pooled_bytes_};
    }

    void forward(const ForwardArgs<Cuda, T>& args) const {
        T* const pooled = saves_ ? this->pooled(args) : reinterpret_cast<T*>(args.scratch);
        std::uint8_t* const offsets = saves_ ? this->offsets(args) : nullptr;
        if (!impl::norm_in_chunks(norm_)) {
            impl::max_pool_forward(args.context, pooling_, batch_, args.input, pooled, offsets, mask_);
            return impl::norm_forward(args.context, norm_, outputs_ / norm_.channels, pooled, args.output);
        }
        norm_.radius == 4 ? launch<4>(args, saves_ ? pooled : nullptr, offsets)
                          : launch<2>(args, saves_ ? pooled : nullptr, offsets);
    }

    void backward(const BackwardArgs<Cuda, T>& args) const {
        if (args.input_gradient == nullptr) return;
        T* const gradient = reinterpret_cast<T*>(args.scratch);
        impl::norm_backward(args.context, norm_, outputs_ / norm_.channels, pooled(args), args.output_gradient,
                            gradient, false);
        impl::max_pool_backward<T, std::uint8_t>(args.context, pooling_, batch_, gradient, offsets(args),
                                                 args.input_gradient, args.input_gradient_sums);
    }

private:
    template <int radius>
    void launch(const ForwardArgs<Cuda, T>& args, T* pooled, std::uint8_t* offsets) const {
        switch (impl::known_window(pooling_)) {
            case 2: return launch<radius, 2>(args, pooled, offsets);
            case 3: return launch<radius, 3>(args, pooled, offsets);
            default: return launch<radius, 0>(args, pooled, offsets);
        }
    }
    template <int radius, int window>
    void launch(const ForwardArgs<Cuda, T>& args, T* pooled, std::uint8_t* offsets) const {
        const impl::PoolExtents extents(pooling_, impl::norm_chunk);
        impl::launch(args.context, extents.outputs(batch_),
                     impl::PoolThenLrnForward<T, radius, window>{extents, impl::NormFormula(norm_), args.input,
                                                                 args.output, pooled, offsets, mask_});
    }

    [[nodiscard]] T* pooled(const ForwardArgs<Cuda, T>& args) const { return reinterpret_cast<T*>(args.saved); }
    [[nodiscard]] std::uint8_t* offsets(const ForwardArgs<Cuda, T>& args) const {
        return reinterpret_cast<std::uint8_t*>(args.saved + pooled_bytes_);
    }

    PoolingShape pooling_;
    LocalResponseNormShape norm_;
    std::int64_t batch_, inputs_, outputs_;
    bool mask_, saves_;
    std::size_t pooled_bytes_;
};

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
