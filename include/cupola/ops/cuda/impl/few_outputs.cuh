// SPDX-License-Identifier: Apache-2.0
//
// Backward of a linear layer with few outputs, such as a classifier's last one, in one kernel: the gradient of the
// input, with the mask of the ReLU before the layer and its sums where they are needed, and the gradients of weights
// and bias in parts. Products of such narrow matrices take less time than launching a library's kernels.
//
//   G = gradient, 0 where `output` is given and not positive
//   input_gradient[r, i]       = sum over o of G[r, o] weight[o, i], or 0 where masked and input[r, i] is not positive
//   gradient of weight[o, i]   = sum over r of G[r, o] input[r, i]
//   gradient of bias[o]        = sum over r of G[r, o]
//
// Each block processes eight columns of a slab of rows. The sums over rows are added within a slab in a fixed order,
// and then over the slabs by queue_slab_sums: the number of slabs depends only on the rows.
#pragma once

#include <algorithm>
#include <cstdint>

#include <cupola/ops/cuda/impl/launch.cuh>
#include <cupola/ops/impl/kernel_parts/pack.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The slabs of rows of such a layer.
struct FewOutputs {
    static constexpr std::int64_t max_outputs = 16, max_slabs = 1024;
    static constexpr int columns = 8, row_lanes = block_threads / columns, chunk_rows = 128;

    std::int64_t rows, slabs, rows_per_slab;

    [[nodiscard]] static constexpr bool fits(std::int64_t outputs) { return outputs <= max_outputs; }
    [[nodiscard]] static constexpr FewOutputs of(std::int64_t rows) {
        const std::int64_t chunks = (rows + chunk_rows - 1) / chunk_rows;
        const std::int64_t chunks_per_slab = (chunks + max_slabs - 1) / max_slabs;
        const std::int64_t rows_per_slab = std::max<std::int64_t>(chunks_per_slab, 1) * chunk_rows;
        return {rows, std::max<std::int64_t>((rows + rows_per_slab - 1) / rows_per_slab, 1), rows_per_slab};
    }
};

/// The arguments of the kernel. `output`, `weight` with `input_gradient`, and each array of parts may be null.
template <class T>
struct FewOutputsBackward {
    FewOutputs slabs;
    int inputs, outputs;
    const T *input, *output, *gradient, *weight;
    T* input_gradient;
    bool masks_input;
    /// For slab s: [s, output, input], [s, output] and [s, input].
    float *weight_parts, *bias_parts, *input_parts;
};

template <class T>
__global__ void __launch_bounds__(block_threads)
    few_outputs_backward_kernel(const FewOutputsBackward<T> __grid_constant__ args) {
    begin_kernel();
    constexpr int outputs = static_cast<int>(FewOutputs::max_outputs), columns = FewOutputs::columns,
                  lanes = FewOutputs::row_lanes, chunk = FewOutputs::chunk_rows, bias_lanes = block_threads / outputs;
    __shared__ float gradients[chunk][outputs];
    __shared__ float sums[(outputs + 1) * block_threads];
    const int thread = static_cast<int>(threadIdx.x), row_lane = thread / columns;
    const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * columns + thread % columns;
    const std::int64_t slab = blockIdx.y, begin = slab * args.slabs.rows_per_slab;
    const std::int64_t end =
        args.slabs.rows - begin < args.slabs.rows_per_slab ? args.slabs.rows : begin + args.slabs.rows_per_slab;
    const bool here = column < args.inputs;

    float weight[outputs], of_weight[outputs] = {}, of_input = 0, of_bias = 0;
    CUPOLA_UNROLL
    for (int o = 0; o < outputs; ++o) {
        const bool read = here && args.weight != nullptr && o < args.outputs;
        weight[o] = read ? static_cast<float>(args.weight[static_cast<std::int64_t>(o) * args.inputs + column]) : 0.0F;
    }
    for (std::int64_t first = begin; first < end; first += chunk) {
        const int rows = static_cast<int>(end - first < chunk ? end - first : chunk);
        __syncthreads();  // the gradients of the chunk before have been read
        for (int k = thread; k < chunk * outputs; k += block_threads) {
            const int row = k / outputs, o = k % outputs;
            float value = 0;
            if (row < rows && o < args.outputs) {
                const std::int64_t at = (first + row) * args.outputs + o;
                value = static_cast<float>(args.gradient[at]);
                if (args.output != nullptr && !(static_cast<float>(args.output[at]) > 0.0F)) value = 0;
            }
            gradients[row][o] = value;
        }
        __syncthreads();
        for (int row = thread / outputs; row < rows; row += bias_lanes) of_bias += gradients[row][thread % outputs];
        for (int row = row_lane; here && row < rows; row += lanes) {
            const std::int64_t at = (first + row) * args.inputs + column;
            const float x = static_cast<float>(args.input[at]);
            float dx = 0;
            CUPOLA_UNROLL
            for (int o = 0; o < outputs; ++o) {
                if (o >= args.outputs) break;
                const float g = gradients[row][o];
                dx += g * weight[o];
                of_weight[o] += g * x;
            }
            if (args.input_gradient == nullptr) continue;
            if (args.masks_input && !(x > 0.0F)) dx = 0;
            args.input_gradient[at] = T(dx);
            of_input += as_stored<T>(dx);
        }
    }
    CUPOLA_UNROLL
    for (int o = 0; o < outputs; ++o) sums[o * block_threads + thread] = of_weight[o];
    sums[outputs * block_threads + thread] = of_input;
    for (int step = lanes / 2; step > 0; step /= 2) {
        __syncthreads();
        if (row_lane >= step) continue;
        for (int k = 0; k <= outputs; ++k) {
            if (k < args.outputs || k == outputs)
                sums[k * block_threads + thread] += sums[k * block_threads + thread + step * columns];
        }
    }
    if (row_lane == 0 && here) {
        if (args.weight_parts != nullptr) {
            for (int o = 0; o < args.outputs; ++o)
                args.weight_parts[(slab * args.outputs + o) * args.inputs + column] = sums[o * block_threads + thread];
        }
        if (args.input_parts != nullptr)
            args.input_parts[slab * args.inputs + column] = sums[outputs * block_threads + thread];
    }
    if (blockIdx.x != 0 || args.bias_parts == nullptr) return;
    __syncthreads();  // the sums have been read
    sums[thread] = of_bias;
    for (int step = bias_lanes / 2; step > 0; step /= 2) {
        __syncthreads();
        if (thread / outputs < step) sums[thread] += sums[thread + step * outputs];
    }
    if (thread < args.outputs) args.bias_parts[slab * args.outputs + thread] = sums[thread];
}

/// Queues the kernel, unless there are no rows or no columns.
template <CudaElement T>
void queue_few_outputs_backward(const CudaContext& context, const FewOutputsBackward<T>& args) {
    if (args.inputs <= 0 || args.slabs.rows <= 0) return;
    const auto blocks = static_cast<unsigned>((args.inputs + FewOutputs::columns - 1) / FewOutputs::columns);
    launch_kernel(few_outputs_backward_kernel<T>, dim3(blocks, static_cast<unsigned>(args.slabs.slabs)), block_threads,
                  context, args);
}

}}}  // namespace cupola::CUPOLA_ABI::impl
