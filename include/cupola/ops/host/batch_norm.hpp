// SPDX-License-Identifier: Apache-2.0
//
// Batch normalisation on `Host`: Cupola's own loops over blocks of rows (ops/host/impl/batch_norm_rows.hpp).
// oneDNN's primitive cannot be split between its reduction and the rest, which synchronised statistics require, and its
// sums depend on the number of threads; these loops have the same bits for any number. Within a block, deviations are
// from the block's own mean, and blocks are merged in double: nothing cancels, whatever the mean.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include <cupola/device/host.hpp>
#include <cupola/ops/batch_norm.hpp>
#include <cupola/ops/host/impl/batch_norm_rows.hpp>
#include <cupola/tensor/algorithms.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace ops {

template <impl::HostElement T>
class BatchNorm<Host, T> {
public:
    [[gnu::cold]] BatchNorm(const BuildContext<Host, T>& build, const BatchNormShape& shape)
        : channels_(shape.channels),
          rows_(build.batch * build.input.size() / shape.channels),
          block_rows_(std::clamp<std::int64_t>(block_elements / shape.channels, fewest_rows, block_elements)),
          blocks_((rows_ + block_rows_ - 1) / block_rows_),
          epsilon_(shape.epsilon),
          activation_(build.activation),
          mask_(build.relu_mask_applied_by_next ? Activation::none : build.activation),
          training_(build.training) {
        // The mask is that of the outputs: bfloat16 rounds to 6 what is at least halfway from the number before it.
        if (sizeof(T) == 2 && mask_.limited) mask_.last = 0x1.7efffep+2F;
    }

    /// Saved: the mean, 1 / sqrt(variance + epsilon), and the scale of forward. Scratch: three rows per block, the
    /// sums, and two rows of factors.
    [[nodiscard]] MemoryNeeds needs() const {
        const std::size_t saved = 3 * row_bytes();
        return {.saved = training_ ? saved : 0,
                .scratch = aligned(static_cast<std::size_t>(statistics_size()) * sizeof(double)) +
                           static_cast<std::size_t>(3 * blocks_ + 2) * row_bytes() + (training_ ? 0 : saved)};
    }

    void forward(const ForwardArgs<Host, T>& args) const {
        if (!args.training) {
            State state = state_of(args);
            for (std::int64_t c = 0; c < channels_; ++c) {
                set(state, args, c, static_cast<double>(args.buffers[0][c]), static_cast<double>(args.buffers[1][c]));
            }
            apply(args, state);
            return;
        }
        auto* const sums = reinterpret_cast<double*>(args.scratch);
        forward_statistics(args, sums);
        forward_apply(args, sums);
    }

    void backward(const BackwardArgs<Host, T>& args) const {
        auto* const sums = reinterpret_cast<double*>(args.scratch);
        if (args.training || args.parameter_gradients[0] != nullptr) {
            backward_statistics(args, sums);
        } else {
            std::fill(sums, sums + statistics_size(), 0.0);  // no pass reads them
        }
        backward_apply(args, sums);
    }

    // See ops/batch_norm.hpp.
    [[nodiscard]] std::int64_t statistics_size() const { return batch_norm_sums(channels_); }
    static void merge_forward(std::span<const double* const> parts, std::int64_t size, double* merged) {
        merge_moments(parts, size, merged);
    }
    static void merge_backward(std::span<const double* const> parts, std::int64_t size, double* merged) {
        merge_gradient_sums(parts, size, merged);
    }

    void forward_statistics(const ForwardArgs<Host, T>& args, double* sums) const {
        float* const partial = partials(args);
        for_each_rows(args.context, [=, this](std::int64_t block, std::int64_t first, std::int64_t rows) {
            impl::norm_moments(args.input + first * channels_, rows, channels_, partial + block * 3 * channels_);
        });
        // Blocks in order, each channel separately: merge_moments would require doubles.
        std::fill(sums, sums + statistics_size(), 0.0);
        double *const mean = sums + 1, *const squares = mean + channels_;
        for (std::int64_t block = 0; block < blocks_; ++block) {
            const float* const from = partial + block * 3 * channels_;
            const auto rows = static_cast<double>(std::min(block_rows_, rows_ - block * block_rows_));
            const double before = sums[0], count = before + rows, fraction = rows / count;
            for (std::int64_t c = 0; c < channels_; ++c) {
                const auto rest = static_cast<double>(from[channels_ + c]);
                const double delta = static_cast<double>(from[c]) + rest / rows - mean[c];
                mean[c] += delta * fraction;
                squares[c] += static_cast<double>(from[2 * channels_ + c]) - rest * rest / rows +
                              delta * delta * before * fraction;
            }
            sums[0] = count;
        }
    }

    void forward_apply(const ForwardArgs<Host, T>& args, const double* sums) const {
        State state = state_of(args);
        for (std::int64_t c = 0; c < channels_; ++c) {
            const double mean = sums[1 + c], variance = sums[1 + channels_ + c] / sums[0];
            set(state, args, c, mean, variance);
            if (args.statistics[0] != nullptr) args.statistics[0][c] = static_cast<float>(mean);
            if (args.statistics[1] != nullptr) args.statistics[1][c] = static_cast<float>(variance);
        }
        apply(args, state);
    }

    /// Also writes the gradients of the weight and the bias, which are those of this replica's samples.
    void backward_statistics(const BackwardArgs<Host, T>& args, double* sums) const {
        const State state = state_of(args);
        float* const partial = partials(args);
        for_each_rows(args.context, [=, this](std::int64_t block, std::int64_t first, std::int64_t rows) {
            float* const to = partial + block * 2 * channels_;
            impl::norm_gradient_sums(args.input + first * channels_, args.output_gradient + first * channels_, rows,
                                     channels_, {state.mean, state.scale, args.parameters[1]}, mask_, to,
                                     to + channels_);
        });
        std::fill(sums, sums + statistics_size(), 0.0);
        for (std::int64_t block = 0; block < blocks_; ++block) {
            const float* const from = partial + block * 2 * channels_;
            for (std::int64_t i = 0; i < 2 * channels_; ++i) sums[1 + i] += static_cast<double>(from[i]);
        }
        sums[0] = static_cast<double>(rows_);
        for (std::int64_t c = 0; c < channels_; ++c) {
            double& product = sums[1 + channels_ + c];
            product *= static_cast<double>(state.inverse[c]);
            if (args.parameter_gradients[0] == nullptr) continue;
            write(args.parameter_gradients[0][c], product, args.accumulate);
            write(args.parameter_gradients[1][c], sums[1 + c], args.accumulate);
        }
    }

    void backward_apply(const BackwardArgs<Host, T>& args, const double* sums) const {
        if (args.input_gradient == nullptr) return;
        const State state = state_of(args);
        float *const offset = partials(args), *const slope = offset + channels_;
        const auto count = static_cast<double>(rows_);
        for (std::int64_t c = 0; c < channels_; ++c) {
            // Outside training the statistics are constants and have no gradient.
            const double scale = args.training ? static_cast<double>(state.scale[c]) / count : 0.0;
            offset[c] = static_cast<float>(scale * sums[1 + c]);
            slope[c] = static_cast<float>(scale * static_cast<double>(state.inverse[c]) * sums[1 + channels_ + c]);
        }
        for_each_rows(args.context, [=, this](std::int64_t, std::int64_t first, std::int64_t rows) {
            impl::norm_backward(args.input + first * channels_, args.output_gradient + first * channels_,
                                args.input_gradient + first * channels_, rows, channels_,
                                {state.mean, state.scale, args.parameters[1]}, mask_, offset, slope);
        });
    }

private:
    /// Elements per block: 64 KB, which stay in a second-level cache while they are read twice.
    static constexpr std::int64_t block_elements = 16384, fewest_rows = 32;

    struct State {
        float *mean, *inverse, *scale;
    };

    [[nodiscard]] std::size_t row_bytes() const { return static_cast<std::size_t>(channels_) * sizeof(float); }
    [[nodiscard]] float* partials(const ForwardArgs<Host, T>& args) const {
        return reinterpret_cast<float*>(args.scratch +
                                        aligned(static_cast<std::size_t>(statistics_size()) * sizeof(double)));
    }
    [[nodiscard]] State state_of(const ForwardArgs<Host, T>& args) const {
        float* const mean =
            training_ ? reinterpret_cast<float*>(args.saved) : partials(args) + (3 * blocks_ + 2) * channels_;
        return {mean, mean + channels_, mean + 2 * channels_};
    }
    void set(State& state, const ForwardArgs<Host, T>& args, std::int64_t c, double mean, double variance) const {
        const double inverse = 1 / std::sqrt(variance + epsilon_);
        state.mean[c] = static_cast<float>(mean);
        state.inverse[c] = static_cast<float>(inverse);
        state.scale[c] = static_cast<float>(inverse * static_cast<double>(args.parameters[0][c]));
    }
    static void write(float& to, double value, bool add) {
        to = static_cast<float>(add ? static_cast<double>(to) + value : value);
    }

    void apply(const ForwardArgs<Host, T>& args, const State& state) const {
        for_each_rows(args.context, [=, this](std::int64_t, std::int64_t first, std::int64_t rows) {
            impl::norm_apply(args.input + first * channels_, args.output + first * channels_, rows, channels_,
                             state.mean, state.scale, args.parameters[1], activation_);
        });
    }

    /// Calls f(block, first row, rows) per block.
    template <class Function>
    void for_each_rows(const HostContext& context, Function&& f) const {
        parallel_for(context, blocks_, [&](std::int64_t block) {
            f(block, block * block_rows_, std::min(block_rows_, rows_ - block * block_rows_));
        });
    }

    std::int64_t channels_, rows_, block_rows_, blocks_;
    double epsilon_;
    /// What forward applies, and whose mask backward applies.
    impl::FusedActivation activation_, mask_;
    bool training_;
};

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
