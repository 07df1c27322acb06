// SPDX-License-Identifier: Apache-2.0
//
// Batch normalisation on `Host`: Cupola's own loops over blocks of rows (ops/host/impl/batch_norm_rows.hpp).
// oneDNN's primitive cannot be split after its reduction, as synchronised statistics require, and its sums depend on
// the number of threads; these have the same bits for any. Deviations are from the mean of a few pixels, and the sums
// of blocks are added in double, so that nothing cancels.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <type_traits>
#include <utility>

#include <cupola/device/host.hpp>
#include <cupola/ops/activation.hpp>
#include <cupola/ops/batch_norm.hpp>
#include <cupola/ops/host/impl/batch_norm_rows.hpp>
#include <cupola/ops/math.hpp>
#include <cupola/tensor/algorithms.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace ops {

template <impl::HostElement T>
class BatchNorm<Host, T> {
public:
    [[gnu::cold]] BatchNorm(const BuildContext<Host, T>& build, const BatchNormShape& shape)
        : channels_(shape.channels),
          rows_(build.batch * build.input.size() / shape.channels),
          pixels_(pixels_of_row(shape.channels)),
          block_rows_(std::max(block_elements / width(), (fewest_rows + pixels_ - 1) / pixels_) * pixels_),
          blocks_((rows_ + block_rows_ - 1) / block_rows_),
          epsilon_(shape.epsilon),
          activation_(build.activation),
          mask_(build.relu_mask_applied_by_next ? Activation::none : build.activation),
          training_(build.training) {
        // The mask is that of the outputs: bfloat16 rounds to 6 what is at least halfway from the number before it.
        mask_.most = sizeof(T) == 2 && mask_.limited ? 0x1.7efffep+2F : mask_.last;
    }

    /// Saved: the mean, 1 / sqrt(variance + epsilon), and the scale of forward. Scratch: the sums, three rows a block,
    /// and the factors of a row.
    [[nodiscard]] MemoryNeeds needs() const {
        const std::size_t saved = static_cast<std::size_t>(3 * channels_) * sizeof(float);
        return {.saved = training_ ? saved : 0,
                .scratch = aligned(static_cast<std::size_t>(statistics_size()) * sizeof(double)) +
                           static_cast<std::size_t>((3 * blocks_ + 5) * width()) * sizeof(float) +
                           (training_ ? 0 : saved)};
    }

    void forward(const ForwardArgs<Host, T>& args) const {
        auto* const sums = reinterpret_cast<double*>(args.scratch);
        if (args.training) {
            forward_statistics(args, sums);
        } else {
            sums[0] = 1;
            std::copy_n(args.buffers[1], channels_, std::copy_n(args.buffers[0], channels_, sums + 1));
        }
        forward_apply(args, sums);
    }

    void backward(const BackwardArgs<Host, T>& args) const {
        auto* const sums = reinterpret_cast<double*>(args.scratch);
        if (args.training || args.parameter_gradients[0] != nullptr) backward_statistics(args, sums);
        backward_apply(args, sums);
    }

    // See ops/batch_norm.hpp.
    [[nodiscard]] std::int64_t statistics_size() const { return batch_norm_sums(channels_); }
    static constexpr auto merge_forward = merge_moments, merge_backward = merge_gradient_sums;

    void forward_statistics(const ForwardArgs<Host, T>& args, double* sums) const {
        process<8, true>(args, impl::norm_moments(), args.input);
        add_partial_sums(args, sums);
        const float* const base = partials(args) + 2 * width();
        double *const mean = sums + 1, *const squares = mean + channels_;
        for (std::int64_t c = 0; c < channels_; ++c) {
            const double difference = mean[c] / sums[0];
            squares[c] = std::max(squares[c] - difference * mean[c], 0.0);
            mean[c] = static_cast<double>(base[c]) + difference;
        }
    }

    void forward_apply(const ForwardArgs<Host, T>& args, const double* sums) const {
        const State state = state_of(args);
        for (std::int64_t c = 0; c < channels_; ++c) {
            const double mean = sums[1 + c], variance = sums[1 + channels_ + c] / sums[0];
            const double inverse = 1 / std::sqrt(variance + epsilon_);
            state.mean[c] = static_cast<float>(mean);
            state.inverse[c] = static_cast<float>(inverse);
            state.scale[c] = static_cast<float>(inverse * static_cast<double>(args.parameters[0][c]));
            if (args.training && args.statistics[0] != nullptr) args.statistics[0][c] = state.mean[c];
            if (args.training && args.statistics[1] != nullptr) args.statistics[1][c] = static_cast<float>(variance);
        }
        process<2, false>(args, impl::norm_apply(widened(args, activation_)), args.input, args.output);
    }

    /// Also writes the gradients of the weight and the bias, which are those of this replica's samples.
    void backward_statistics(const BackwardArgs<Host, T>& args, double* sums) const {
        const impl::NormState state = widened(args, mask_);
        const auto add = [&](auto activated) {
            process<4, true>(args, impl::norm_gradient_sums<activated>(state), args.input, args.output_gradient);
        };
        mask_.applies ? add(std::true_type{}) : add(std::false_type{});
        add_partial_sums(args, sums);
        for (std::int64_t c = 0; c < channels_; ++c) {
            double& product = sums[1 + channels_ + c];
            product *= static_cast<double>(state_of(args).inverse[c]);
            if (args.parameter_gradients[0] == nullptr) continue;
            write(args.parameter_gradients[0][c], product, args.accumulate);
            write(args.parameter_gradients[1][c], sums[1 + c], args.accumulate);
        }
    }

    void backward_apply(const BackwardArgs<Host, T>& args, const double* sums) const {
        if (args.input_gradient == nullptr) return;
        const State state = state_of(args);
        float *const offset = factors(args) + 3 * width(), *const slope = offset + width();
        for (std::int64_t c = 0; c < channels_; ++c) {
            // Outside training the statistics are constants and have no gradient.
            const double scale = static_cast<double>(state.scale[c]) / static_cast<double>(rows_);
            const double inverse = static_cast<double>(state.inverse[c]);
            offset[c] = args.training ? static_cast<float>(scale * sums[1 + c]) : 0.0F;
            slope[c] = args.training ? static_cast<float>(scale * inverse * sums[1 + channels_ + c]) : 0.0F;
        }
        widen(offset, offset);
        widen(slope, slope);
        const impl::NormState rows = widened(args, mask_);
        const auto apply = [&](auto activated) {
            process<2, false>(args, impl::norm_backward<activated>(rows), args.input, args.output_gradient,
                              args.input_gradient);
        };
        mask_.applies ? apply(std::true_type{}) : apply(std::false_type{});
    }

private:
    /// Elements per block (64 KB), and the least and the greatest length of a row of several pixels.
    static constexpr std::int64_t block_elements = 16384, fewest_rows = 32, fewest_lanes = 64, most_lanes = 1024;

    /// Pixels whose channels fill registers, as far as their sums stay in a first-level cache.
    static constexpr std::int64_t pixels_of_row(std::int64_t channels) {
        const std::int64_t pixels = impl::lane_count / std::gcd(impl::lane_count, channels), lanes = pixels * channels;
        return lanes > most_lanes ? 1 : std::max<std::int64_t>(fewest_lanes / lanes, 1) * pixels;
    }

    struct State {
        float *mean, *inverse, *scale;
    };

    [[nodiscard]] float* partials(const ForwardArgs<Host, T>& args) const {
        return reinterpret_cast<float*>(args.scratch +
                                        aligned(static_cast<std::size_t>(statistics_size()) * sizeof(double)));
    }
    /// Per lane of a row of pixels_: the mean, the scale, the bias, and two factors of backward.
    [[nodiscard]] float* factors(const ForwardArgs<Host, T>& args) const {
        return partials(args) + 3 * blocks_ * width();
    }
    [[nodiscard]] std::int64_t width() const { return pixels_ * channels_; }
    /// Repeats the value of each channel for the pixels of a row, and returns its end.
    float* widen(const float* from, float* to) const {
        for (std::int64_t i = 0; i < width(); ++i) to[i] = i < channels_ ? from[i] : to[i - channels_];
        return to + width();
    }
    [[nodiscard]] impl::NormState widened(const ForwardArgs<Host, T>& args, const impl::FusedActivation& a) const {
        float *const mean = factors(args), *const scale = widen(state_of(args).mean, mean);
        float *const bias = widen(state_of(args).scale, scale), *const offset = widen(args.parameters[1], bias);
        return {mean, scale, bias, offset, offset + width(), a.applies ? 0.0F : -a.most, a.most};
    }
    /// About the mean of a block, so that squares of the deviations from it do not cancel: that of some pixels, rounded
    /// to a multiple of the step between floats 16 times as large. Most deviations are then exact; those from a finer
    /// number would all be rounded in one direction. `large`, the first of the three rows, is 0 before and after.
    void sample_mean(const T* x, std::int64_t rows, float* large) const {
        float* const mean = large + 2 * width();
        const std::int64_t count = std::clamp<std::int64_t>(rows / 16, 4, 16);
        for (std::int64_t i = 0; i < count; ++i) {
            const T* const from = x + i * rows / count * channels_;
#pragma omp simd
            for (std::int64_t c = 0; c < channels_; ++c) {
                const float value = static_cast<float>(from[c]) / static_cast<float>(count);
                mean[c] += value;
                large[c] += 16.0F * math::abs(value);
            }
        }
        for (std::int64_t c = 0; c < channels_; ++c) mean[c] = (mean[c] + large[c]) - std::exchange(large[c], 0.0F);
        widen(mean, mean);
    }
    /// The count of rows, and the sums of all blocks in order, about the number of the first one. Those of a block are
    /// the same whatever the others are: replicas that share a batch add the same numbers as one that has all of it.
    void add_partial_sums(const ForwardArgs<Host, T>& args, double* sums) const {
        std::fill(sums, sums + statistics_size(), 0.0);
        sums[0] = static_cast<double>(rows_);
        double *const to = sums + 1, *const squares = to + channels_;
        const float* const first = partials(args) + 2 * width();
        for (std::int64_t lane = 0; lane < blocks_ * width(); lane += channels_) {
            const std::int64_t block = lane / width(), begin = lane % width();
            const float* const sum = partials(args) + 3 * block * width() + begin;
            const float *const square = sum + width(), *const base = square + width();
            const auto rows = static_cast<double>(begin == 0 ? rows_of(block) : 0);  // with the first pixels
#pragma omp simd
            for (std::int64_t c = 0; c < channels_; ++c) {
                const double apart = static_cast<double>(base[c]) - static_cast<double>(first[c]);
                const double all = static_cast<double>(sum[c]) + rows * apart;
                to[c] += all;
                squares[c] += static_cast<double>(square[c]) + apart * (static_cast<double>(sum[c]) + all);
            }
        }
    }
    [[nodiscard]] State state_of(const ForwardArgs<Host, T>& args) const {
        float* const mean = training_ ? reinterpret_cast<float*>(args.saved) : factors(args) + 5 * width();
        return {mean, mean + channels_, mean + 2 * channels_};
    }
    static void write(float& to, double value, bool add) {
        to = static_cast<float>(add ? static_cast<double>(to) + value : value);
    }

    [[nodiscard]] std::int64_t rows_of(std::int64_t block) const {
        return std::min(block_rows_, rows_ - block * block_rows_);
    }
    /// Calls a function of batch_norm_rows.hpp for each block; `adds`: its sums are 0 before. If it adds up moments, of
    /// the elements of one tensor, they are about the block's mean.
    template <std::size_t rows, bool adds, class Function, class... E>
    void process(const ForwardArgs<Host, T>& args, Function f, E*... at) const {
        parallel_for(args.context, blocks_, [&](std::int64_t block) {
            const std::int64_t first = block * block_rows_, count = rows_of(block);
            float* const sums = partials(args) + 3 * block * width();
            if constexpr (adds) std::fill_n(sums, 3 * width(), 0.0F);
            if constexpr (adds && sizeof...(at) == 1) sample_mean((at + first * channels_)..., count, sums);
            impl::for_norm_rows<rows>({count * channels_, width(), sums}, f, (at + first * channels_)...);
        });
    }

    /// `pixels_` rows are processed as one: see batch_norm_rows.hpp.
    std::int64_t channels_, rows_, pixels_, block_rows_, blocks_;
    double epsilon_;
    /// What forward applies, and whose mask backward applies.
    impl::FusedActivation activation_, mask_;
    bool training_;
};

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
