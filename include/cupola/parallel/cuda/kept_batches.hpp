// SPDX-License-Identifier: Apache-2.0
//
// KeptBatches: the batches of a device's replicas in device memory, at fixed addresses that captured work reads.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cupola/device/cuda.hpp>
#include <cupola/device/queue.hpp>
#include <cupola/tensor/batch.hpp>
#include <cupola/tensor/batch_memory.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

class KeptBatches {
public:
    KeptBatches(const CudaContext& context, const QueueSizes& sizes)
        : columns_(*sizes.columns),
          batch_size_(sizes.batch_size),
          batch_bytes_(batch_bytes(columns_, sizes.batch_size)),
          memory_(batch_bytes_ * static_cast<std::size_t>(sizes.replicas),
                  text("the batches of device ", context.ordinal())) {}

    /// The memory of a replica's batch.
    [[nodiscard]] BatchSpan of(int replica) {
        return batch_in(memory_.data() + static_cast<std::size_t>(replica) * batch_bytes_, columns_, batch_size_);
    }
    /// Queues copies of a batch of another device to the memory of the first replica's batch.
    BatchView bring(CudaContext& context, const BatchView& batch) {
        const BatchSpan kept = of(0);
        for (std::size_t i = 0; i < columns_.size(); ++i) {
            context.queue_copy(kept.data(i), static_cast<const std::byte*>(batch.data(i)),
                               static_cast<std::size_t>(batch.size) * columns_[i].bytes());
        }
        return kept.view(batch.size);
    }

private:
    Columns columns_;
    std::int64_t batch_size_;
    std::size_t batch_bytes_;
    CudaArena memory_;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
