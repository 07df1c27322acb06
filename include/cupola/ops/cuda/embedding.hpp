// SPDX-License-Identifier: Apache-2.0
//
// Embedding on `Cuda`. In forward, a thread writes some numbers of one position. In backward, a warp owns some columns
// of some rows of the table: it reads all ids in order, and adds the gradients of those in its rows. No two warps write
// to the same place, and a row's sum is in the order of the positions.
#pragma once

#include <algorithm>
#include <cstdint>

#include <cupola/device/cuda.hpp>
#include <cupola/ops/cuda/impl/launch.cuh>
#include <cupola/ops/embedding.hpp>
#include <cupola/ops/impl/kernel_parts/pack.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

template <class T, int n>
struct EmbeddingForward {
    EmbeddingShape shape;
    const std::int32_t* ids;
    const float* table;
    T* y;

    CUPOLA_HOST_DEVICE void operator()(std::int64_t i) const {
        const std::int64_t packs = shape.width / n, position = i / packs, column = i % packs * n;
        const std::int32_t id = ids[position];
        float value[n] = {};
        if (shape.has_row(id)) load_floats<n>(table + id * shape.width + column, value);
        store_floats<n>(y + position * shape.width + column, value);
    }
};

/// The columns that a warp owns.
inline constexpr int embedding_columns = 128;
inline constexpr std::int64_t max_embedding_warps = 2048;

template <class T>
__global__ void __launch_bounds__(block_threads)
    embedding_gradient_kernel(EmbeddingShape shape, const std::int32_t* ids, std::int64_t positions, const T* dy,
                              float* gradient, std::int64_t rows_per_warp, bool accumulate) {
    begin_kernel();
    const int lane = static_cast<int>(threadIdx.x % 32);
    const std::int64_t warp = static_cast<std::int64_t>(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
    const std::int64_t first = warp * rows_per_warp;
    const std::int64_t end = first + rows_per_warp < shape.count ? first + rows_per_warp : shape.count;
    const std::int64_t left = static_cast<std::int64_t>(blockIdx.y) * embedding_columns + lane;
    const std::int64_t right =
        left - lane + embedding_columns < shape.width ? left - lane + embedding_columns : shape.width;
    if (first >= end) return;  // the whole warp
    for (std::int64_t row = first; row < end && !accumulate; ++row) {
        for (std::int64_t c = left; c < right; c += 32) gradient[row * shape.width + c] = 0.0F;
    }
    for (std::int64_t begin = 0; begin < positions; begin += 32) {
        const std::int32_t own = begin + lane < positions ? ids[begin + lane] : -1;
        const bool here = own >= first && own < end && shape.has_row(own);
        for (unsigned found = __ballot_sync(0xFFFF'FFFFU, here ? 1 : 0); found != 0; found &= found - 1) {
            const int source = __ffs(static_cast<int>(found)) - 1;
            const std::int64_t row = __shfl_sync(0xFFFF'FFFFU, own, source), from = (begin + source) * shape.width;
            for (std::int64_t c = left; c < right; c += 32)
                gradient[row * shape.width + c] += static_cast<float>(dy[from + c]);
        }
    }
}

}  // namespace impl

namespace ops {

template <impl::CudaElement T>
class Embedding<Cuda, T> {
public:
    Embedding(const BuildContext<Cuda, T>& build, const EmbeddingShape& shape)
        : shape_(shape), positions_(build.batch * build.input.size()) {}

    void forward(const ForwardArgs<Cuda, T>& args) const {
        constexpr int n = impl::pack_size<T>;
        const bool packs = shape_.width % n == 0 && impl::aligned_for_packs(args.parameters[0], args.output);
        packs ? forward<n>(args) : forward<1>(args);
    }

    void backward(const BackwardArgs<Cuda, T>& args) const {
        if (args.parameter_gradients[0] == nullptr) return;
        constexpr std::int64_t warps_per_block = impl::block_threads / 32;
        const std::int64_t rows = (shape_.count + impl::max_embedding_warps - 1) / impl::max_embedding_warps;
        const std::int64_t warps = (shape_.count + rows - 1) / rows;
        const std::int64_t tiles = (shape_.width + impl::embedding_columns - 1) / impl::embedding_columns;
        const dim3 grid(static_cast<unsigned>((warps + warps_per_block - 1) / warps_per_block),
                        static_cast<unsigned>(tiles));
        impl::launch_kernel(impl::embedding_gradient_kernel<T>, grid, impl::block_threads, args.context, shape_,
                            ids(args), positions_, static_cast<const T*>(args.output_gradient),
                            args.parameter_gradients[0], rows, args.accumulate);
    }

private:
    [[nodiscard]] static const std::int32_t* ids(const ForwardArgs<Cuda, T>& args) {
        return static_cast<const std::int32_t*>(args.column);
    }
    template <int n>
    void forward(const ForwardArgs<Cuda, T>& args) const {
        impl::launch(args.context, positions_ * shape_.width / n,
                     impl::EmbeddingForward<T, n>{shape_, ids(args), args.parameters[0], args.output});
    }

    EmbeddingShape shape_;
    std::int64_t positions_;
};

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
