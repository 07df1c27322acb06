// SPDX-License-Identifier: Apache-2.0
//
// Batch normalisation on `Cuda`, by Cupola's own kernels. In training, forward consists of three kernels: the first
// sums over blocks of rows, the second merges the blocks' sums and computes the factors per channel, the third writes
// the values; backward has the same structure. cuDNN's batch normalisation cannot be split after the reduction, which
// synchronised statistics require, and it updates the running statistics.
//
// The sums that replicas all-reduce are in host memory: those four functions copy them there and back and wait.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cupola/device/cuda.hpp>
#include <cupola/ops/batch_norm.hpp>
#include <cupola/ops/cuda/impl/batch_norm_kernels.cuh>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

/// Called per channel: computes the factors from the running statistics.
struct NormFromRunning {
    NormSaved state;
    const float *mean, *variance, *weight;
    double epsilon;

    CUPOLA_HOST_DEVICE void operator()(std::int64_t c) const {
        state.set(c, static_cast<double>(mean[c]), static_cast<double>(variance[c]), epsilon, weight);
    }
};

/// Called per channel: computes the factors from the batch's moments and writes these to `mean` and `variance` where
/// not null.
struct NormFromMoments {
    NormSaved state;
    float *mean, *variance;
    const float* weight;
    double epsilon;

    CUPOLA_HOST_DEVICE void operator()(std::int64_t c, const NormMoments& moments) const {
        const double of_variance = moments.squares / moments.count;
        state.set(c, moments.mean, of_variance, epsilon, weight);
        if (mean != nullptr) mean[c] = static_cast<float>(moments.mean);
        if (variance != nullptr) variance[c] = static_cast<float>(of_variance);
    }
};

/// Uses the merged sums of all replicas, whose count may exceed this replica's.
struct NormFromSums {
    NormFromMoments each;
    const double* sums;
    std::int64_t channels;

    CUPOLA_HOST_DEVICE void operator()(std::int64_t c) const {
        each(c, {sums[0], sums[1 + c], sums[1 + channels + c]});
    }
};
struct NormFactorsFromSums {
    NormGradients to;
    const double* sums;
    std::int64_t channels;

    CUPOLA_HOST_DEVICE void operator()(std::int64_t c) const {
        to.write_factors(c, sums[1 + c], sums[1 + channels + c]);
    }
};

/// Does nothing: the sums are not yet merged.
struct NormKeepSums {
    CUPOLA_HOST_DEVICE void operator()(std::int64_t, const NormMoments&) const {}
};

}  // namespace impl

namespace ops {

template <impl::CudaElement T>
class BatchNorm<Cuda, T> {
public:
    [[gnu::cold]] BatchNorm(const BuildContext<Cuda, T>& build, const BatchNormShape& shape)
        : blocks_(build.batch * build.input.size() / shape.channels, shape.channels),
          epsilon_(shape.epsilon),
          activation_(build.activation),
          mask_(build.relu_mask_applied_by_next ? Activation::none : build.activation),
          training_(build.training) {}

    /// Saved: the mean, 1 / sqrt(variance + epsilon), and the scale of forward. Scratch: the sums, three rows per
    /// block, and two rows of factors.
    [[nodiscard]] MemoryNeeds needs() const {
        const std::size_t saved = 3 * row_bytes();
        return {.saved = training_ ? saved : 0,
                .scratch = sums_bytes() + static_cast<std::size_t>(3 * blocks_.blocks + 2) * row_bytes() +
                           (training_ ? 0 : saved)};
    }

    void forward(const ForwardArgs<Cuda, T>& args) const {
        if (args.training) {
            queue_moments(args, from_moments(args));
        } else {
            impl::launch(
                args.context, blocks_.channels,
                impl::NormFromRunning{state_of(args), args.buffers[0], args.buffers[1], args.parameters[0], epsilon_});
        }
        apply(args);
    }

    void backward(const BackwardArgs<Cuda, T>& args) const {
        if (args.training || args.parameter_gradients[0] != nullptr) {
            queue_gradient_sums(args);
        } else {  // of a frozen layer, whose statistics are constants: its factors are 0
            impl::check_cuda(cudaMemsetAsync(factors(args), 0, 2 * row_bytes(), args.context.stream()),
                             "cudaMemsetAsync");
        }
        if (args.input_gradient != nullptr) apply_backward(args);
    }

    // See ops/batch_norm.hpp. The sums are in host memory.
    [[nodiscard]] std::int64_t statistics_size() const { return batch_norm_sums(blocks_.channels); }
    static constexpr auto merge_forward = merge_moments, merge_backward = merge_gradient_sums;

    void forward_statistics(const ForwardArgs<Cuda, T>& args, double* sums) const {
        queue_moments(args, impl::NormKeepSums{});
        fetch(args, sums);
    }
    void forward_apply(const ForwardArgs<Cuda, T>& args, const double* sums) const {
        send(args, sums);
        impl::launch(args.context, blocks_.channels,
                     impl::NormFromSums{from_moments(args), sums_of(args), blocks_.channels});
        apply(args);
    }
    /// Also writes the gradients of the weight and the bias, which are those of this replica's samples.
    void backward_statistics(const BackwardArgs<Cuda, T>& args, double* sums) const {
        queue_gradient_sums(args);
        fetch(args, sums);
    }
    void backward_apply(const BackwardArgs<Cuda, T>& args, const double* sums) const {
        if (args.input_gradient == nullptr) return;
        send(args, sums);
        impl::launch(args.context, blocks_.channels,
                     impl::NormFactorsFromSums{gradients_of(args), sums_of(args), blocks_.channels});
        apply_backward(args);
    }

private:
    [[nodiscard]] std::size_t row_bytes() const { return static_cast<std::size_t>(blocks_.channels) * sizeof(float); }
    [[nodiscard]] std::size_t sums_bytes() const {
        return aligned(static_cast<std::size_t>(statistics_size()) * sizeof(double));
    }
    [[nodiscard]] double* sums_of(const ForwardArgs<Cuda, T>& args) const {
        return reinterpret_cast<double*>(args.scratch);
    }
    [[nodiscard]] float* partials(const ForwardArgs<Cuda, T>& args) const {
        return reinterpret_cast<float*>(args.scratch + sums_bytes());
    }
    [[nodiscard]] float* factors(const ForwardArgs<Cuda, T>& args) const {
        return partials(args) + 3 * blocks_.blocks * blocks_.channels;
    }
    [[nodiscard]] impl::NormSaved state_of(const ForwardArgs<Cuda, T>& args) const {
        float* const mean = training_ ? reinterpret_cast<float*>(args.saved) : factors(args) + 2 * blocks_.channels;
        return {mean, mean + blocks_.channels, mean + 2 * blocks_.channels};
    }
    [[nodiscard]] impl::NormFromMoments from_moments(const ForwardArgs<Cuda, T>& args) const {
        return {state_of(args), args.statistics[0], args.statistics[1], args.parameters[0], epsilon_};
    }
    [[nodiscard]] impl::NormGradients gradients_of(const BackwardArgs<Cuda, T>& args) const {
        float* const offset = factors(args);
        return {state_of(args), args.parameter_gradients[0],      args.parameter_gradients[1],
                offset,         offset + blocks_.channels,        args.accumulate,
                args.training,  static_cast<double>(blocks_.rows)};
    }
    [[nodiscard]] unsigned merging_blocks() const {
        return static_cast<unsigned>((blocks_.channels + impl::merged_channels - 1) / impl::merged_channels);
    }
    [[nodiscard]] bool packs(const T* x, const T* other) const {
        return blocks_.channels % 4 == 0 && impl::aligned_for_packs(x, other);
    }

    void fetch(const ForwardArgs<Cuda, T>& args, double* to) const {
        Cuda::copy_to_host(args.context, reinterpret_cast<std::byte*>(to), args.scratch,
                           static_cast<std::size_t>(statistics_size()) * sizeof(double));
    }
    void send(const ForwardArgs<Cuda, T>& args, const double* from) const {
        Cuda::copy_from_host(args.context, args.scratch, reinterpret_cast<const std::byte*>(from),
                             static_cast<std::size_t>(statistics_size()) * sizeof(double));
    }

    template <class Finish>
    void queue_moments(const ForwardArgs<Cuda, T>& args, Finish finish) const {
        float* const partial = partials(args);
        auto* const moments =
            packs(args.input, args.input) ? &impl::norm_moments_kernel<T, 4> : &impl::norm_moments_kernel<T, 1>;
        impl::launch_kernel(moments, blocks_.grid(), impl::norm_threads, args.context, args.input, blocks_, partial);
        auto* const merge = &impl::norm_merge_moments_kernel<Finish>;
        impl::launch_kernel(merge, merging_blocks(), impl::norm_threads, args.context, partial, blocks_, sums_of(args),
                            finish);
    }
    void apply(const ForwardArgs<Cuda, T>& args) const {
        auto* const kernel =
            packs(args.input, args.output) ? &impl::norm_apply_kernel<T, 4> : &impl::norm_apply_kernel<T, 1>;
        impl::launch_kernel(kernel, blocks_.grid(), impl::norm_threads, args.context, args.input, args.output, blocks_,
                            state_of(args), args.parameters[1], activation_);
    }
    void queue_gradient_sums(const BackwardArgs<Cuda, T>& args) const {
        float* const partial = partials(args);
        auto* const kernel = packs(args.input, args.output_gradient) ? &impl::norm_gradient_sums_kernel<T, 4>
                                                                     : &impl::norm_gradient_sums_kernel<T, 1>;
        impl::launch_kernel(kernel, blocks_.grid(), impl::norm_threads, args.context, args.input, args.output_gradient,
                            blocks_, state_of(args), args.parameters[1], mask_, partial);
        auto* const merge = &impl::norm_merge_gradients_kernel<impl::NormGradients>;
        impl::launch_kernel(merge, merging_blocks(), impl::norm_threads, args.context, partial, blocks_, sums_of(args),
                            gradients_of(args));
    }
    void apply_backward(const BackwardArgs<Cuda, T>& args) const {
        const float *const offset = factors(args), *const slope = offset + blocks_.channels;
        const bool in_packs = packs(args.input, args.output_gradient) && impl::aligned_for_packs(args.input_gradient);
        auto* const kernel = in_packs ? &impl::norm_backward_kernel<T, 4> : &impl::norm_backward_kernel<T, 1>;
        impl::launch_kernel(kernel, blocks_.grid(), impl::norm_threads, args.context, args.input, args.output_gradient,
                            args.input_gradient, blocks_, state_of(args), args.parameters[1], mask_, offset, slope);
    }

    impl::NormBlocks blocks_;
    double epsilon_;
    /// What forward applies, and whose mask backward applies.
    impl::FusedActivation activation_, mask_;
    bool training_;
};

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
