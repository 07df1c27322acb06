// SPDX-License-Identifier: Apache-2.0
//
// The part of a convolution's backward that cuDNN does not compute: the mask of the fused ReLU on the gradient of the
// output and, in the same pass, its sum over all positions, which is the gradient of the bias. The sum is added in an
// order that does not depend on the GPU: within slabs of rows, whose number depends only on the rows, and then over the
// slabs (joined_gradients.cuh).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

#include <cupola/device/cuda.hpp>
#include <cupola/ops/cuda/impl/launch.cuh>
#include <cupola/ops/impl/kernel_parts/convolution_rows.hpp>
#include <cupola/ops/impl/kernel_parts/pack.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// gradient = 0 where `masked` and output is not positive; partial[slab, channel] = the sum of gradient over the slab's
/// rows.
template <int n, bool masked, class T>
__global__ void __launch_bounds__(row_sum_threads)
    sum_slabs_kernel(const T* output, T* gradient, RowSlabs rows, float* partial) {
    begin_kernel();
    __shared__ float sums[n * row_sum_threads];
    const int thread = static_cast<int>(threadIdx.x);
    const int columns = rows.columns(n), lane = thread / columns, lanes = row_sum_threads / columns;
    const std::int64_t channel = (static_cast<std::int64_t>(blockIdx.y) * columns + thread % columns) * n;
    float sum[n] = {};
    if (channel < rows.channels) {
        const std::int64_t end = rows.end(blockIdx.x);
        for (std::int64_t row = rows.begin(blockIdx.x) + lane; row < end; row += lanes) {
            const std::int64_t at = row * rows.channels + channel;
            float value[n];
            load_floats<n>(gradient + at, value);
            if constexpr (masked) {
                float y[n];
                load_floats<n>(output + at, y);
                CUPOLA_UNROLL
                for (int k = 0; k < n; ++k) value[k] = y[k] > 0.0F ? value[k] : 0.0F;
                store_floats<n>(gradient + at, value);
            }
            CUPOLA_UNROLL
            for (int k = 0; k < n; ++k) sum[k] += value[k];
        }
    }
    CUPOLA_UNROLL
    for (int k = 0; k < n; ++k) sums[k * row_sum_threads + thread] = sum[k];
    for (int step = lanes / 2; step > 0; step /= 2) {
        __syncthreads();
        if (lane < step) {
            CUPOLA_UNROLL
            for (int k = 0; k < n; ++k)
                sums[k * row_sum_threads + thread] += sums[k * row_sum_threads + thread + step * columns];
        }
    }
    if (lane == 0 && channel < rows.channels) {
        float* const to = partial + static_cast<std::int64_t>(blockIdx.x) * rows.channels + channel;
        CUPOLA_UNROLL
        for (int k = 0; k < n; ++k) to[k] = sums[k * row_sum_threads + thread];
    }
}

template <int n, class T>
void launch_sum_slabs(const CudaContext& context, const RowSlabs& rows, const T* output, T* gradient, float* partial) {
    const dim3 grid(static_cast<unsigned>(rows.slabs), static_cast<unsigned>(rows.column_blocks(n)));
    if (output != nullptr) {
        launch_kernel(sum_slabs_kernel<n, true, T>, grid, row_sum_threads, context, output, gradient, rows, partial);
    } else {
        launch_kernel(sum_slabs_kernel<n, false, T>, grid, row_sum_threads, context, output, gradient, rows, partial);
    }
}

/// Queues: gradient = 0 where there is an `output` and it is not positive; partial[slab, channel] = the sum of gradient
/// over the rows of the slab, for queue_slab_sums. `gradient` and `output` are aligned to 16 bytes; `partial` has
/// rows.partial_bytes() bytes.
template <class T>
void mask_and_sum_slabs(const CudaContext& context, const RowSlabs& rows, const T* output, T* gradient,
                        float* partial) {
    if (rows.channels % pack_size<T> == 0) {
        launch_sum_slabs<pack_size<T>>(context, rows, output, gradient, partial);
    } else {
        launch_sum_slabs<1>(context, rows, output, gradient, partial);
    }
}

}}}  // namespace cupola::CUPOLA_ABI::impl
