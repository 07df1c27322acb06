// SPDX-License-Identifier: Apache-2.0
//
// The parts of the batch normalisation kernels without CUDA syntax, so that tests can run them on the host: the
// partition of a tensor, a thread's part of it, and the computations per channel.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <cuda_runtime_api.h>

#include <cupola/core/abi.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

inline constexpr int norm_threads = 256;

/// The partition of a tensor of rows x channels.
struct NormBlocks {
    std::int64_t rows = 0, channels = 0;
    /// Channels per thread block (a power of two), rows per block, and the number of blocks of rows.
    std::int64_t tile = 1, block_rows = 1, blocks = 1;

    static constexpr std::int64_t max_tile = 32, enough_blocks = 512, fewest_rows = 64;

    NormBlocks(std::int64_t all_rows, std::int64_t all_channels) : rows(all_rows), channels(all_channels) {
        while (tile < max_tile && tile < channels) tile *= 2;
        const std::int64_t wanted = std::max<std::int64_t>(1, enough_blocks / tiles());
        block_rows = std::max(fewest_rows, (rows + wanted - 1) / wanted);
        blocks = (rows + block_rows - 1) / block_rows;
    }
    [[nodiscard]] std::int64_t tiles() const { return (channels + tile - 1) / tile; }
    [[nodiscard]] dim3 grid() const { return {static_cast<unsigned>(blocks), static_cast<unsigned>(tiles())}; }
    [[nodiscard]] CUPOLA_HOST_DEVICE std::int64_t rows_of(std::int64_t block) const {
        const std::int64_t left = rows - block * block_rows;
        return left < block_rows ? left : block_rows;
    }
};

/// A thread's part of a block.
template <int V>
struct NormThread {
    /// Threads that share the channels of a tile, and rows that a thread block processes at a time.
    int lanes, step;
    int lane, row;
    /// The thread's first channel, and whether the tensor has that channel.
    std::int64_t channel;
    bool there;
    /// The block's first element of that channel, and its number of rows.
    std::int64_t first;
    std::int64_t rows;

    CUPOLA_HOST_DEVICE NormThread(const NormBlocks& b, int thread, std::int64_t block, std::int64_t tile)
        : lanes(static_cast<int>(b.tile) / V),
          step(norm_threads / lanes),
          lane(thread % lanes),
          row(thread / lanes),
          channel(tile * b.tile + lane * V),
          there(channel < b.channels),
          first(block * b.block_rows * b.channels + channel),
          rows(b.rows_of(block)) {}
};

/// Values that forward saves for backward, one per channel each; `scale` is weight / sqrt(variance + epsilon).
struct NormSaved {
    float *mean, *inverse, *scale;

    CUPOLA_HOST_DEVICE void set(std::int64_t c, double of_mean, double variance, double epsilon,
                                const float* weight) const {
        const double of_inverse = 1 / std::sqrt(variance + epsilon);
        mean[c] = static_cast<float>(of_mean);
        inverse[c] = static_cast<float>(of_inverse);
        scale[c] = static_cast<float>(of_inverse * static_cast<double>(weight[c]));
    }
};

/// A count, a mean and the sum of squared deviations from it, with the update of Chan, Golub and LeVeque (1979).
struct NormMoments {
    double count = 0, mean = 0, squares = 0;

    CUPOLA_HOST_DEVICE void merge(const NormMoments& other) {
        if (other.count == 0) return;
        const double all = count + other.count, fraction = other.count / all, delta = other.mean - mean;
        mean += delta * fraction;
        squares += other.squares + delta * delta * count * fraction;
        count = all;
    }
    /// The moments of a block, from a value near its mean and the sums of the deviations from that value.
    [[nodiscard]] CUPOLA_HOST_DEVICE static NormMoments of(double count, float near, float rest, float squares) {
        const auto sum = static_cast<double>(rest);
        return {count, static_cast<double>(near) + sum / count, static_cast<double>(squares) - sum * sum / count};
    }
};

/// Converts a channel's sums of backward to gradients and factors; a null pointer is not written.
struct NormGradients {
    NormSaved state;
    float *weight, *bias, *offset, *slope;
    bool add, training;
    double count;

    CUPOLA_HOST_DEVICE void write_parameters(std::int64_t c, double sum, double product) const {
        if (weight == nullptr) return;
        write(weight[c], product);
        write(bias[c], sum);
    }
    /// The factors of norm_backward_kernel. Outside training the statistics are constants and have no gradient.
    CUPOLA_HOST_DEVICE void write_factors(std::int64_t c, double sum, double product) const {
        const double scale = training ? static_cast<double>(state.scale[c]) / count : 0.0;
        offset[c] = static_cast<float>(scale * sum);
        slope[c] = static_cast<float>(scale * static_cast<double>(state.inverse[c]) * product);
    }

private:
    CUPOLA_HOST_DEVICE void write(float& to, double value) const {
        to = static_cast<float>(add ? static_cast<double>(to) + value : value);
    }
};

}}}  // namespace cupola::CUPOLA_ABI::impl
