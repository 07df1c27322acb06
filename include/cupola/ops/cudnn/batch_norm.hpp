// SPDX-License-Identifier: Apache-2.0
//
// Batch normalisation on `Cuda`: kernels of our own. In training forward is three: the sums of blocks of rows, all
// blocks' and what follows from them a channel, and the values; so is backward. cuDNN's cannot be cut in two between
// the reduction and the rest, which synchronised statistics need, and reads running statistics that it changes.
//
// The sums that replicas exchange are in the host's memory: those four functions copy them there and back and wait.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <cupola/device/cuda.hpp>
#include <cupola/ops/batch_norm.hpp>
#include <cupola/ops/cudnn/impl/batch_norm_kernels.cuh>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

/// Called for each channel: from the running statistics.
struct NormFromRunning {
    NormSaved state;
    const float *mean, *variance, *weight;
    double epsilon;

    CUPOLA_HOST_DEVICE void operator()(std::int64_t c) const {
        state.set(c, static_cast<double>(mean[c]), static_cast<double>(variance[c]), epsilon, weight);
    }
};

/// Called for each channel: from the batch's moments. `mean` and `variance` are where the batch's go, or null.
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

/// The merged sums of all replicas, of which there may be more than of this one.
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

/// Where nothing is to be done yet.
struct NormKeepSums {
    CUPOLA_HOST_DEVICE void operator()(std::int64_t, const NormMoments&) const {}
};

}  // namespace impl

namespace ops {

template <impl::CudaElement T>
class BatchNorm<Cuda, T> {
public:
    [[gnu::cold]] BatchNorm(const Site<Cuda, T>& site, const BatchNormShape& shape)
        : blocks_(site.batch * site.input.size() / shape.channels, shape.channels),
          epsilon_(shape.epsilon),
          relu_(site.activation == Activation::relu),
          mask_(relu_ && !site.masked_by_next),
          training_(site.training) {}

    /// Saved: the mean, 1 / sqrt(variance + epsilon), and the scale of forward. Scratch: the sums, three rows for each
    /// block, and two rows of factors.
    [[nodiscard]] MemoryNeeds needs() const {
        const std::size_t saved = 3 * row_bytes();
        return {.saved = training_ ? saved : 0,
                .scratch = sums_bytes() + static_cast<std::size_t>(3 * blocks_.blocks + 2) * row_bytes() +
                           (training_ ? 0 : saved)};
    }

    void forward(const Pass<Cuda, T>& pass) const {
        if (pass.training) {
            queue_moments(pass, from_moments(pass));
        } else {
            impl::launch(
                pass.context, blocks_.channels,
                impl::NormFromRunning{state_of(pass), pass.buffers[0], pass.buffers[1], pass.parameters[0], epsilon_});
        }
        apply(pass);
    }

    void backward(const Pass<Cuda, T>& pass) const {
        queue_gradient_sums(pass);
        if (pass.input_gradient != nullptr) apply_backward(pass);
    }

    // See ops/batch_norm.hpp. The sums are in the host's memory.
    [[nodiscard]] std::int64_t exchange_size() const { return batch_norm_sums(blocks_.channels); }
    static void merge_forward(std::span<const double* const> parts, std::int64_t size, double* merged) {
        merge_moments(parts, size, merged);
    }
    static void merge_backward(std::span<const double* const> parts, std::int64_t size, double* merged) {
        merge_gradient_sums(parts, size, merged);
    }

    void forward_statistics(const Pass<Cuda, T>& pass, double* sums) const {
        queue_moments(pass, impl::NormKeepSums{});
        fetch(pass, sums);
    }
    void forward_apply(const Pass<Cuda, T>& pass, const double* sums) const {
        send(pass, sums);
        impl::launch(pass.context, blocks_.channels,
                     impl::NormFromSums{from_moments(pass), sums_of(pass), blocks_.channels});
        apply(pass);
    }
    /// Writes the gradients of the weight and the bias too, which are of this replica's samples.
    void backward_statistics(const Pass<Cuda, T>& pass, double* sums) const {
        queue_gradient_sums(pass);
        fetch(pass, sums);
    }
    void backward_apply(const Pass<Cuda, T>& pass, const double* sums) const {
        if (pass.input_gradient == nullptr) return;
        send(pass, sums);
        impl::launch(pass.context, blocks_.channels,
                     impl::NormFactorsFromSums{gradients_of(pass), sums_of(pass), blocks_.channels});
        apply_backward(pass);
    }

private:
    [[nodiscard]] std::size_t row_bytes() const { return static_cast<std::size_t>(blocks_.channels) * sizeof(float); }
    [[nodiscard]] std::size_t sums_bytes() const {
        return aligned(static_cast<std::size_t>(exchange_size()) * sizeof(double));
    }
    [[nodiscard]] double* sums_of(const Pass<Cuda, T>& pass) const { return reinterpret_cast<double*>(pass.scratch); }
    [[nodiscard]] float* partials(const Pass<Cuda, T>& pass) const {
        return reinterpret_cast<float*>(pass.scratch + sums_bytes());
    }
    [[nodiscard]] float* factors(const Pass<Cuda, T>& pass) const {
        return partials(pass) + 3 * blocks_.blocks * blocks_.channels;
    }
    [[nodiscard]] impl::NormSaved state_of(const Pass<Cuda, T>& pass) const {
        float* const mean = training_ ? reinterpret_cast<float*>(pass.saved) : factors(pass) + 2 * blocks_.channels;
        return {mean, mean + blocks_.channels, mean + 2 * blocks_.channels};
    }
    [[nodiscard]] impl::NormFromMoments from_moments(const Pass<Cuda, T>& pass) const {
        return {state_of(pass), pass.statistics[0], pass.statistics[1], pass.parameters[0], epsilon_};
    }
    [[nodiscard]] impl::NormGradients gradients_of(const Pass<Cuda, T>& pass) const {
        float* const offset = factors(pass);
        return {state_of(pass), pass.parameter_gradients[0],      pass.parameter_gradients[1],
                offset,         offset + blocks_.channels,        pass.accumulate,
                pass.training,  static_cast<double>(blocks_.rows)};
    }
    [[nodiscard]] unsigned merging_blocks() const {
        return static_cast<unsigned>((blocks_.channels + impl::merged_channels - 1) / impl::merged_channels);
    }
    [[nodiscard]] bool packs(const T* x, const T* other) const {
        return blocks_.channels % 4 == 0 && impl::aligned_for_packs(x, other);
    }

    void fetch(const Pass<Cuda, T>& pass, double* to) const {
        Cuda::copy_to_host(pass.context, reinterpret_cast<std::byte*>(to), pass.scratch,
                           static_cast<std::size_t>(exchange_size()) * sizeof(double));
    }
    void send(const Pass<Cuda, T>& pass, const double* from) const {
        Cuda::copy_from_host(pass.context, pass.scratch, reinterpret_cast<const std::byte*>(from),
                             static_cast<std::size_t>(exchange_size()) * sizeof(double));
    }

    template <class Finish>
    void queue_moments(const Pass<Cuda, T>& pass, Finish finish) const {
        const cudaStream_t stream = pass.context.stream();
        float* const partial = partials(pass);
        auto* const moments =
            packs(pass.input, pass.input) ? &impl::norm_moments_kernel<T, 4> : &impl::norm_moments_kernel<T, 1>;
        impl::launch_kernel(moments, blocks_.grid(), impl::norm_threads, stream, pass.input, blocks_, partial);
        auto* const merge = &impl::norm_merge_moments_kernel<Finish>;
        impl::launch_kernel(merge, merging_blocks(), impl::norm_threads, stream, partial, blocks_, sums_of(pass),
                            finish);
    }
    void apply(const Pass<Cuda, T>& pass) const {
        auto* const kernel =
            packs(pass.input, pass.output) ? &impl::norm_apply_kernel<T, 4> : &impl::norm_apply_kernel<T, 1>;
        impl::launch_kernel(kernel, blocks_.grid(), impl::norm_threads, pass.context.stream(), pass.input, pass.output,
                            blocks_, state_of(pass), pass.parameters[1], relu_);
    }
    void queue_gradient_sums(const Pass<Cuda, T>& pass) const {
        const cudaStream_t stream = pass.context.stream();
        float* const partial = partials(pass);
        auto* const kernel = packs(pass.input, pass.output_gradient) ? &impl::norm_gradient_sums_kernel<T, 4>
                                                                     : &impl::norm_gradient_sums_kernel<T, 1>;
        impl::launch_kernel(kernel, blocks_.grid(), impl::norm_threads, stream, pass.input, pass.output_gradient,
                            blocks_, state_of(pass), pass.parameters[1], mask_, partial);
        auto* const merge = &impl::norm_merge_gradients_kernel<impl::NormGradients>;
        impl::launch_kernel(merge, merging_blocks(), impl::norm_threads, stream, partial, blocks_, sums_of(pass),
                            gradients_of(pass));
    }
    void apply_backward(const Pass<Cuda, T>& pass) const {
        const float *const offset = factors(pass), *const slope = offset + blocks_.channels;
        const bool in_packs = packs(pass.input, pass.output_gradient) && impl::aligned_for_packs(pass.input_gradient);
        auto* const kernel = in_packs ? &impl::norm_backward_kernel<T, 4> : &impl::norm_backward_kernel<T, 1>;
        impl::launch_kernel(kernel, blocks_.grid(), impl::norm_threads, pass.context.stream(), pass.input,
                            pass.output_gradient, pass.input_gradient, blocks_, state_of(pass), pass.parameters[1],
                            mask_, offset, slope);
    }

    impl::NormBlocks blocks_;
    double epsilon_;
    bool relu_, mask_, training_;
};

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
