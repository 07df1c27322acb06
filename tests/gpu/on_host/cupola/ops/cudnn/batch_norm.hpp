// SPDX-License-Identifier: Apache-2.0
//
// Batch normalisation of `Cuda` on the host, a channel after another: the real one needs blocks of threads. As there,
// sums pass through scratch memory between one piece of work and the next, and those that replicas exchange are in the
// host's memory.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include <cupola/device/cuda.hpp>
#include <cupola/ops/batch_norm.hpp>
#include <cupola/ops/cudnn/impl/launch.cuh>
#include <cupola/ops/cudnn/impl/pack.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace ops {

template <impl::CudaElement T>
class BatchNorm<Cuda, T> {
public:
    BatchNorm(const Site<Cuda, T>& site, const BatchNormShape& shape)
        : channels_(shape.channels),
          rows_(site.batch * site.input.size() / shape.channels),
          epsilon_(shape.epsilon),
          relu_(site.activation == Activation::relu),
          mask_(relu_ && !site.masked_by_next),
          training_(site.training) {}

    [[nodiscard]] MemoryNeeds needs() const {
        const std::size_t state = 3 * static_cast<std::size_t>(channels_) * sizeof(float);
        return {.saved = training_ ? state : 0, .scratch = sums_bytes() + (training_ ? 0 : state)};
    }

    void forward(const Pass<Cuda, T>& pass) const {
        if (pass.training) {
            queue_moments(pass);
            queue_state(pass);
        } else {
            impl::launch(pass.context, channels_, [*this, pass](std::int64_t c) {
                set(pass, c, static_cast<double>(pass.buffers[0][c]), static_cast<double>(pass.buffers[1][c]));
            });
        }
        apply(pass);
    }
    void backward(const Pass<Cuda, T>& pass) const {
        queue_gradient_sums(pass);
        if (pass.input_gradient != nullptr) apply_backward(pass);
    }

    [[nodiscard]] std::int64_t exchange_size() const { return batch_norm_sums(channels_); }
    static void merge_forward(std::span<const double* const> parts, std::int64_t size, double* merged) {
        merge_moments(parts, size, merged);
    }
    static void merge_backward(std::span<const double* const> parts, std::int64_t size, double* merged) {
        merge_gradient_sums(parts, size, merged);
    }
    void forward_statistics(const Pass<Cuda, T>& pass, double* sums) const {
        queue_moments(pass);
        Cuda::copy_to_host(pass.context, reinterpret_cast<std::byte*>(sums), pass.scratch, exchanged_bytes());
    }
    void forward_apply(const Pass<Cuda, T>& pass, const double* sums) const {
        Cuda::copy_from_host(pass.context, pass.scratch, reinterpret_cast<const std::byte*>(sums), exchanged_bytes());
        queue_state(pass);
        apply(pass);
    }
    void backward_statistics(const Pass<Cuda, T>& pass, double* sums) const {
        queue_gradient_sums(pass);
        Cuda::copy_to_host(pass.context, reinterpret_cast<std::byte*>(sums), pass.scratch, exchanged_bytes());
    }
    void backward_apply(const Pass<Cuda, T>& pass, const double* sums) const {
        if (pass.input_gradient == nullptr) return;
        Cuda::copy_from_host(pass.context, pass.scratch, reinterpret_cast<const std::byte*>(sums), exchanged_bytes());
        apply_backward(pass);
    }

private:
    [[nodiscard]] std::size_t exchanged_bytes() const {
        return static_cast<std::size_t>(exchange_size()) * sizeof(double);
    }
    [[nodiscard]] std::size_t sums_bytes() const { return aligned(exchanged_bytes()); }
    [[nodiscard]] double* sums_of(const Pass<Cuda, T>& pass) const { return reinterpret_cast<double*>(pass.scratch); }
    /// Mean, 1 / sqrt(variance + epsilon) and scale, a row each.
    [[nodiscard]] float* state(const Pass<Cuda, T>& pass) const {
        return reinterpret_cast<float*>(training_ ? pass.saved : pass.scratch + sums_bytes());
    }
    void set(const Pass<Cuda, T>& pass, std::int64_t c, double mean, double variance) const {
        float* const to = state(pass);
        const double inverse = 1 / std::sqrt(variance + epsilon_);
        to[c] = static_cast<float>(mean);
        to[channels_ + c] = static_cast<float>(inverse);
        to[2 * channels_ + c] = static_cast<float>(inverse * static_cast<double>(pass.parameters[0][c]));
    }
    [[nodiscard]] float normalized(const Pass<Cuda, T>& pass, std::int64_t i) const {
        const std::int64_t c = i % channels_;
        return (static_cast<float>(pass.input[i]) - state(pass)[c]) * state(pass)[2 * channels_ + c] +
               pass.parameters[1][c];
    }
    [[nodiscard]] double gradient(const Pass<Cuda, T>& pass, std::int64_t i) const {
        return mask_ && !(normalized(pass, i) > 0) ? 0.0
                                                   : static_cast<double>(static_cast<float>(pass.output_gradient[i]));
    }
    [[nodiscard]] double deviation(const Pass<Cuda, T>& pass, std::int64_t i) const {
        return static_cast<double>(static_cast<float>(pass.input[i])) - static_cast<double>(state(pass)[i % channels_]);
    }

    void queue_moments(const Pass<Cuda, T>& pass) const {
        impl::launch(pass.context, channels_, [*this, pass](std::int64_t c) {
            double mean = 0, squares = 0;
            for (std::int64_t r = 0; r < rows_; ++r)
                mean += static_cast<double>(static_cast<float>(pass.input[r * channels_ + c]));
            mean /= static_cast<double>(rows_);
            for (std::int64_t r = 0; r < rows_; ++r) {
                const double d = static_cast<double>(static_cast<float>(pass.input[r * channels_ + c])) - mean;
                squares += d * d;
            }
            double* const sums = sums_of(pass);
            if (c == 0) sums[0] = static_cast<double>(rows_);
            sums[1 + c] = mean;
            sums[1 + channels_ + c] = squares;
        });
    }
    void queue_state(const Pass<Cuda, T>& pass) const {
        impl::launch(pass.context, channels_, [*this, pass](std::int64_t c) {
            const double* const sums = sums_of(pass);
            const double mean = sums[1 + c], variance = sums[1 + channels_ + c] / sums[0];
            set(pass, c, mean, variance);
            if (pass.statistics[0] != nullptr) pass.statistics[0][c] = static_cast<float>(mean);
            if (pass.statistics[1] != nullptr) pass.statistics[1][c] = static_cast<float>(variance);
        });
    }
    void apply(const Pass<Cuda, T>& pass) const {
        impl::launch(pass.context, rows_ * channels_, [*this, pass](std::int64_t i) {
            const float value = normalized(pass, i);
            pass.output[i] = T(relu_ && value < 0 ? 0.0F : value);
        });
    }
    void queue_gradient_sums(const Pass<Cuda, T>& pass) const {
        impl::launch(pass.context, channels_, [*this, pass](std::int64_t c) {
            double sum = 0, product = 0;
            for (std::int64_t r = 0; r < rows_; ++r) {
                const std::int64_t i = r * channels_ + c;
                sum += gradient(pass, i);
                product += gradient(pass, i) * deviation(pass, i);
            }
            product *= static_cast<double>(state(pass)[channels_ + c]);
            double* const sums = sums_of(pass);
            if (c == 0) sums[0] = static_cast<double>(rows_);
            sums[1 + c] = sum;
            sums[1 + channels_ + c] = product;
            const auto put = [&](float& to, double value) {
                to = static_cast<float>(pass.accumulate ? static_cast<double>(to) + value : value);
            };
            put(pass.parameter_gradients[0][c], product);
            put(pass.parameter_gradients[1][c], sum);
        });
    }
    void apply_backward(const Pass<Cuda, T>& pass) const {
        impl::launch(pass.context, rows_ * channels_, [*this, pass](std::int64_t i) {
            const std::int64_t c = i % channels_;
            const double* const sums = sums_of(pass);
            const auto scale = static_cast<double>(state(pass)[2 * channels_ + c]),
                       inverse = static_cast<double>(state(pass)[channels_ + c]);
            // Of this replica's own rows, whatever was merged: each gradient is that of the mean over its own samples.
            const double share = pass.training ? 1.0 / static_cast<double>(rows_) : 0.0;
            pass.input_gradient[i] = T(static_cast<float>(
                scale *
                (gradient(pass, i) - share * (sums[1 + c] + deviation(pass, i) * inverse * sums[1 + channels_ + c]))));
        });
    }

    std::int64_t channels_, rows_;
    double epsilon_;
    bool relu_, mask_, training_;
};

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
