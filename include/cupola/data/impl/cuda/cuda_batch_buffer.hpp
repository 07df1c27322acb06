// SPDX-License-Identifier: Apache-2.0
//
// Memory of a GPU for the batches of one replica, or of one slot of an evaluation.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cupola/device/cuda.hpp>
#include <cupola/tensor/batch.hpp>
#include <cupola/tensor/batch_memory.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// One batch: the next one overwrites it, in the stream's order, once what was queued before has read it.
class CudaBatchBuffer {
public:
    /// Allocates the memory on the context's device, unless it is there already.
    void provide(const CudaContext& context, std::int64_t batch_size, const Columns& columns) {
        if (place_ == context.place()) return;
        const auto scope = context.team();
        memory_ = CudaArena(batch_bytes(columns, batch_size), "the samples of a batch");
        columns_ = columns;
        batch_size_ = batch_size;
        place_ = context.place();
    }
    /// Valid until the buffer is moved.
    [[nodiscard]] BatchSpan span() { return batch_in(memory_.data(), columns_, batch_size_); }
    [[nodiscard]] BatchView view(std::int64_t size) { return span().view(size); }

private:
    CudaContext::Place place_;
    CudaArena memory_;
    Columns columns_;
    std::int64_t batch_size_ = 0;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
