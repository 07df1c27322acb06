// SPDX-License-Identifier: Apache-2.0
//
// bias_gradient[c] = (or +=) the sum over the rows of gradient[r, c], in a fixed order. Where `output` is given,
// gradient is first set to zero where output is not positive: the mask of a fused ReLU.
//
// A thread block processes eight columns, which are in one or two memory sectors per row, and 128 rows at a time.
#pragma once

#include <algorithm>
#include <cstdint>

#include <cupola/ops/cuda/impl/launch.cuh>
#include <cupola/ops/impl/kernel_parts/pack.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

inline constexpr int bias_columns = 8, bias_rows = 128;

/// One such sum. `output` and `bias_gradient` may be null.
template <class T>
struct BiasGradient {
    const T* output;
    T* gradient;
    float* bias_gradient;
    std::int64_t rows, columns;
    bool accumulate;
};

template <class T>
struct BiasGradients {
    static constexpr int max_parts = 4;

    int parts;
    BiasGradient<T> part[max_parts];
    /// The first block of the next part.
    unsigned end[max_parts];
};

template <class T>
__global__ void __launch_bounds__(bias_columns* bias_rows) bias_gradient_kernel(BiasGradients<T> all) {
    begin_kernel();
    constexpr int at_once = 4;  // reads in flight per thread
    __shared__ float sums[bias_rows][bias_columns];
    int p = 0;
    while (blockIdx.x >= all.end[p]) ++p;
    const BiasGradient<T> part = all.part[p];
    const T* const output = part.output;
    T* const gradient = part.gradient;
    const std::int64_t rows = part.rows, columns = part.columns;
    const unsigned first_block = p == 0 ? 0 : all.end[p - 1], blocks = all.end[p] - first_block;
    const int lane = static_cast<int>(threadIdx.x) % bias_columns, row = static_cast<int>(threadIdx.x) / bias_columns;
    for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x - first_block) * bias_columns; first < columns;
         first += static_cast<std::int64_t>(blocks) * bias_columns) {
        const std::int64_t column = first + lane;
        float sum = 0;
        if (column < columns) {
            for (std::int64_t r = row; r < rows; r += at_once * bias_rows) {
                T g[at_once], y[at_once];
                for (int k = 0; k < at_once; ++k) {
                    const std::int64_t here = r + k * bias_rows;
                    if (here >= rows) break;
                    g[k] = gradient[here * columns + column];
                    if (output != nullptr) y[k] = output[here * columns + column];
                }
                for (int k = 0; k < at_once; ++k) {
                    const std::int64_t here = r + k * bias_rows;
                    if (here >= rows) break;
                    if (output != nullptr && !(static_cast<float>(y[k]) > 0.0F)) {
                        g[k] = T{};
                        gradient[here * columns + column] = g[k];
                    }
                    sum += static_cast<float>(g[k]);
                }
            }
        }
        sums[row][lane] = sum;
        __syncthreads();
        for (int half = bias_rows / 2; half > 0; half /= 2) {
            if (row < half) sums[row][lane] += sums[row + half][lane];
            __syncthreads();
        }
        if (row == 0 && column < columns && part.bias_gradient != nullptr) {
            part.bias_gradient[column] = part.accumulate ? part.bias_gradient[column] + sums[0][lane] : sums[0][lane];
        }
        __syncthreads();  // before the sums of the next columns
    }
}

/// The sums that wait to be launched together: none reads or writes what another writes.
template <class T>
struct JoinedBiasGradients {
    /// Whether `sum`, which may be null, can be written by the same kernel: layers with tied parameters add to the
    /// same.
    [[nodiscard]] bool takes(const float* sum) const {
        for (int p = 0; p < all.parts; ++p) {
            if (sum != nullptr && all.part[p].bias_gradient == sum) return false;
        }
        return all.parts < BiasGradients<T>::max_parts;
    }
    void add(const BiasGradient<T>& part) {
        constexpr std::int64_t max_blocks = 1 << 20;
        const auto blocks =
            static_cast<unsigned>(std::min((part.columns + bias_columns - 1) / bias_columns, max_blocks));
        all.end[all.parts] = (all.parts == 0 ? 0 : all.end[all.parts - 1]) + blocks;
        all.part[all.parts++] = part;
    }
    void launch(const CudaContext& context) const {
        launch_kernel(bias_gradient_kernel<T>, all.end[all.parts - 1], bias_columns * bias_rows, context, all);
    }

    BiasGradients<T> all{};
};

/// Queues such a sum, joined with those that are queued before and after it.
template <CudaElement T>
void queue_bias_gradient(const CudaContext& context, const T* output, T* gradient, float* bias_gradient,
                         std::int64_t rows, std::int64_t columns, bool accumulate) {
    if (columns <= 0) return;
    if (!context.joined<JoinedBiasGradients<T>>().takes(bias_gradient)) context.launch_joined();
    context.joined<JoinedBiasGradients<T>>().add({output, gradient, bias_gradient, rows, columns, accumulate});
}

}}}  // namespace cupola::CUPOLA_ABI::impl
