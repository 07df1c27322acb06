// SPDX-License-Identifier: Apache-2.0
//
// The kernels of batch normalisation over blocks of rows, where a row is the channels of one pixel, as on `Host`.
//
// A block of 256 threads processes up to 32 channels of a block of rows. A thread processes V neighbouring channels (4
// or 1) of every step-th row, where step is the number of rows of threads. The threads of a row read adjacent memory.
// Each block's sums are added over its threads by a binary tree, then the blocks' sums in double; both orders are fixed
// and depend only on the shape. Deviations are from a value near the block's mean, so nothing cancels, whatever the
// mean.
#pragma once

#include <cstdint>

#include <cupola/ops/activation.hpp>
#include <cupola/ops/cuda/impl/batch_norm_blocks.hpp>
#include <cupola/ops/cuda/impl/launch.cuh>
#include <cupola/ops/impl/kernel_parts/pack.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Forward and backward must agree on whether a normalised value is positive: the product and the sum are rounded
/// together (fused) in both.
[[nodiscard]] __device__ inline float norm_value(float x, float mean, float scale, float bias) {
    return fmaf(x - mean, scale, bias);
}

/// A thread's values for its V channels.
template <int V>
struct NormChannels {
    float mean[V], scale[V], shift[V];

    __device__ NormChannels(const NormSaved& state, const float* bias, std::int64_t channel) {
        CUPOLA_UNROLL
        for (int k = 0; k < V; ++k) {
            mean[k] = state.mean[channel + k];
            scale[k] = state.scale[channel + k];
            shift[k] = bias[channel + k];
        }
    }
    [[nodiscard]] __device__ float normalised(int k, float x) const {
        return norm_value(x, mean[k], scale[k], shift[k]);
    }
    /// dy, or 0 where the activation has the derivative 0 at the output as stored in T: in half, the smallest values
    /// are rounded to 0.
    template <class T>
    [[nodiscard]] __device__ float masked(int k, float x, float dy, const FusedActivation& activation) const {
        if (!activation.applies) return dy;
        const float y = as_stored<T>(normalised(k, x));
        return y > 0.0F && y <= activation.last ? dy : 0.0F;
    }
};

/// Adds each thread's values over the rows of threads; the first row receives the sum per lane. `shared` has
/// norm_threads elements per value. Called by all threads of the block.
template <int values>
__device__ void norm_block_sums(float (&value)[values], float (&shared)[values][norm_threads], int lanes, int step) {
    const int t = static_cast<int>(threadIdx.x);
    __syncthreads();  // the values of the previous call have been read
    CUPOLA_UNROLL
    for (int k = 0; k < values; ++k) shared[k][t] = value[k];
    for (int half = step / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t < half * lanes) {
            CUPOLA_UNROLL
            for (int k = 0; k < values; ++k) shared[k][t] += shared[k][t + half * lanes];
        }
    }
    __syncthreads();
    CUPOLA_UNROLL
    for (int k = 0; k < values; ++k) value[k] = shared[k][t % lanes];
}

/// Three rows per block: a value near each channel's mean, the sum of the deviations from it, and the sum of their
/// squares.
template <class T, int V>
__global__ void __launch_bounds__(norm_threads)
    norm_moments_kernel(const T* __restrict__ x, NormBlocks b, float* partial) {
    begin_kernel();
    __shared__ float shared[2 * V][norm_threads];
    const NormThread<V> me(b, static_cast<int>(threadIdx.x), blockIdx.x, blockIdx.y);
    // The mean of the first rows, which are few enough for an accurate sum.
    float near[2 * V] = {};
    const std::int64_t few = me.rows < me.step ? me.rows : me.step;
    if (me.there && me.row < few) load_floats<V>(x + me.first + me.row * b.channels, near);
    norm_block_sums(near, shared, me.lanes, me.step);
    float sums[2 * V] = {};
    CUPOLA_UNROLL
    for (int k = 0; k < V; ++k) near[k] /= static_cast<float>(few);
    if (me.there) {
#pragma unroll 4
        for (std::int64_t r = me.row; r < me.rows; r += me.step) {
            float value[V];
            load_floats<V>(x + me.first + r * b.channels, value);
            CUPOLA_UNROLL
            for (int k = 0; k < V; ++k) {
                const float deviation = value[k] - near[k];
                sums[k] += deviation;
                sums[V + k] = fmaf(deviation, deviation, sums[V + k]);
            }
        }
    }
    norm_block_sums(sums, shared, me.lanes, me.step);
    if (me.row != 0 || !me.there) return;
    float* const to = partial + static_cast<std::int64_t>(blockIdx.x) * 3 * b.channels + me.channel;
    CUPOLA_UNROLL
    for (int k = 0; k < V; ++k) {
        to[k] = near[k];
        to[b.channels + k] = sums[k];
        to[2 * b.channels + k] = sums[V + k];
    }
}

/// Channels per block, and threads per channel, of the kernels that add the blocks' sums.
inline constexpr int merged_channels = 8, merging_threads = norm_threads / merged_channels;

/// sums = [count, means, squares] over all blocks; finish(channel, moments) is called per channel.
template <class Finish>
__global__ void __launch_bounds__(norm_threads)
    norm_merge_moments_kernel(const float* partial, NormBlocks b, double* sums, Finish finish) {
    begin_kernel();
    __shared__ double count[norm_threads], mean[norm_threads], squares[norm_threads];
    const int t = static_cast<int>(threadIdx.x), part = t / merged_channels;
    const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * merged_channels + t % merged_channels;
    NormMoments moments;
    if (c < b.channels) {
        for (std::int64_t block = part; block < b.blocks; block += merging_threads) {
            const float* const from = partial + block * 3 * b.channels + c;
            moments.merge(NormMoments::of(static_cast<double>(b.rows_of(block)), from[0], from[b.channels],
                                          from[2 * b.channels]));
        }
    }
    for (int half = merging_threads / 2; half > 0; half /= 2) {
        count[t] = moments.count;
        mean[t] = moments.mean;
        squares[t] = moments.squares;
        __syncthreads();
        if (part < half) {
            const int other = t + half * merged_channels;
            moments.merge({count[other], mean[other], squares[other]});
        }
        __syncthreads();
    }
    if (part != 0 || c >= b.channels) return;
    if (c == 0) sums[0] = static_cast<double>(b.rows);
    sums[1 + c] = moments.mean;
    sums[1 + b.channels + c] = moments.squares;
    finish(c, moments);
}

template <class T, int V>
__global__ void __launch_bounds__(norm_threads)
    norm_apply_kernel(const T* __restrict__ x, T* __restrict__ y, NormBlocks b, NormSaved state, const float* bias,
                      FusedActivation activation) {
    begin_kernel();
    const NormThread<V> me(b, static_cast<int>(threadIdx.x), blockIdx.x, blockIdx.y);
    if (!me.there) return;
    const NormChannels<V> channels(state, bias, me.channel);
#pragma unroll 4
    for (std::int64_t r = me.row; r < me.rows; r += me.step) {
        float value[V];
        load_floats<V>(x + me.first + r * b.channels, value);
        CUPOLA_UNROLL
        for (int k = 0; k < V; ++k) {
            value[k] = channels.normalised(k, value[k]);
            if (!activation.applies) continue;
            if (value[k] < 0.0F) value[k] = 0.0F;
            if (value[k] > activation.most) value[k] = activation.most;
        }
        store_floats<V>(y + me.first + r * b.channels, value);
    }
}

/// Two rows per block: the sums of dy and of dy (x - mean), with dy masked where there is an activation.
template <class T, int V>
__global__ void __launch_bounds__(norm_threads)
    norm_gradient_sums_kernel(const T* __restrict__ x, const T* __restrict__ dy, NormBlocks b, NormSaved state,
                              const float* bias, FusedActivation activation, float* partial) {
    begin_kernel();
    __shared__ float shared[2 * V][norm_threads];
    const NormThread<V> me(b, static_cast<int>(threadIdx.x), blockIdx.x, blockIdx.y);
    float sums[2 * V] = {};
    if (me.there) {
        const NormChannels<V> channels(state, bias, me.channel);
#pragma unroll 2
        for (std::int64_t r = me.row; r < me.rows; r += me.step) {
            float value[V], gradient[V];
            load_floats<V>(x + me.first + r * b.channels, value);
            load_floats<V>(dy + me.first + r * b.channels, gradient);
            CUPOLA_UNROLL
            for (int k = 0; k < V; ++k) {
                const float masked = channels.template masked<T>(k, value[k], gradient[k], activation);
                sums[k] += masked;
                sums[V + k] = fmaf(masked, value[k] - channels.mean[k], sums[V + k]);
            }
        }
    }
    norm_block_sums(sums, shared, me.lanes, me.step);
    if (me.row != 0 || !me.there) return;
    float* const to = partial + static_cast<std::int64_t>(blockIdx.x) * 2 * b.channels + me.channel;
    CUPOLA_UNROLL
    for (int k = 0; k < V; ++k) {
        to[k] = sums[k];
        to[b.channels + k] = sums[V + k];
    }
}

/// sums = [count, sums of dy, sums of dy xhat] over all blocks, and the results of NormGradients.
template <class Gradients>
__global__ void __launch_bounds__(norm_threads)
    norm_merge_gradients_kernel(const float* partial, NormBlocks b, double* sums, Gradients to) {
    begin_kernel();
    __shared__ double sum[norm_threads], product[norm_threads];
    const int t = static_cast<int>(threadIdx.x), part = t / merged_channels;
    const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * merged_channels + t % merged_channels;
    double s = 0, p = 0;
    if (c < b.channels) {
        for (std::int64_t block = part; block < b.blocks; block += merging_threads) {
            s += static_cast<double>(partial[block * 2 * b.channels + c]);
            p += static_cast<double>(partial[(block * 2 + 1) * b.channels + c]);
        }
    }
    sum[t] = s;
    product[t] = p;
    for (int half = merging_threads / 2; half > 0; half /= 2) {
        __syncthreads();
        if (part < half) {
            sum[t] += sum[t + half * merged_channels];
            product[t] += product[t + half * merged_channels];
        }
    }
    if (part != 0 || c >= b.channels) return;
    s = sum[t];
    p = product[t] * static_cast<double>(to.state.inverse[c]);
    if (c == 0) sums[0] = static_cast<double>(b.rows);
    sums[1 + c] = s;
    sums[1 + b.channels + c] = p;
    to.write_parameters(c, s, p);
    to.write_factors(c, s, p);
}

/// dx = scale dy - offset - (x - mean) slope; `dx` may be `dy`. Two rows are loaded before either is stored.
template <class T, int V>
__global__ void __launch_bounds__(norm_threads)
    norm_backward_kernel(const T* __restrict__ x, const T* dy, T* dx, NormBlocks b, NormSaved state, const float* bias,
                         FusedActivation activation, const float* offset, const float* slope) {
    begin_kernel();
    const NormThread<V> me(b, static_cast<int>(threadIdx.x), blockIdx.x, blockIdx.y);
    if (!me.there) return;
    const NormChannels<V> channels(state, bias, me.channel);
    float o[V], d[V];
    CUPOLA_UNROLL
    for (int k = 0; k < V; ++k) {
        o[k] = offset[me.channel + k];
        d[k] = slope[me.channel + k];
    }
    for (std::int64_t r = me.row; r < me.rows; r += 2 * me.step) {
        float value[2][V], gradient[2][V];
        CUPOLA_UNROLL
        for (int i = 0; i < 2; ++i) {
            if (r + i * me.step >= me.rows) break;
            load_floats<V>(x + me.first + (r + i * me.step) * b.channels, value[i]);
            load_floats<V>(dy + me.first + (r + i * me.step) * b.channels, gradient[i]);
        }
        CUPOLA_UNROLL
        for (int i = 0; i < 2; ++i) {
            if (r + i * me.step >= me.rows) break;
            CUPOLA_UNROLL
            for (int k = 0; k < V; ++k) {
                const float masked = channels.template masked<T>(k, value[i][k], gradient[i][k], activation);
                gradient[i][k] = channels.scale[k] * masked - o[k] - (value[i][k] - channels.mean[k]) * d[k];
            }
            store_floats<V>(dx + me.first + (r + i * me.step) * b.channels, gradient[i]);
        }
    }
}

}}}  // namespace cupola::CUPOLA_ABI::impl
