// SPDX-License-Identifier: Apache-2.0
//
// Memory of a GPU for the batches of one replica, or of one slot of an evaluation.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cupola/core/extents.hpp>
#include <cupola/device/cuda.hpp>
#include <cupola/tensor/batch.hpp>

namespace cupola::inline CUPOLA_ABI::impl {

/// One batch: the next one overwrites it, in the stream's order, once what was queued before has read it.
class CudaBatchBuffer {
public:
    /// Makes room on the context's GPU, unless there is.
    void provide(const CudaContext& context, std::int64_t batch_size, const Shape& sample_shape) {
        if (ordinal_ == context.ordinal()) return;
        const auto scope = context.team();
        const std::size_t of_samples =
            aligned(static_cast<std::size_t>(batch_size * sample_shape.size()) * sizeof(float));
        memory_ = CudaArena(of_samples + static_cast<std::size_t>(batch_size) * sizeof(std::int32_t),
                            "the samples of a batch");
        labels_ = memory_.data() + of_samples;
        sample_shape_ = sample_shape;
        ordinal_ = context.ordinal();
    }
    [[nodiscard]] float* samples() { return reinterpret_cast<float*>(memory_.data()); }
    [[nodiscard]] std::int32_t* labels() { return reinterpret_cast<std::int32_t*>(labels_); }
    [[nodiscard]] BatchView view(std::int64_t size) { return {samples(), labels(), size, sample_shape_}; }

private:
    int ordinal_ = -1;
    CudaArena memory_;
    std::byte* labels_ = nullptr;
    Shape sample_shape_;
};

}  // namespace cupola::inline CUPOLA_ABI::impl
