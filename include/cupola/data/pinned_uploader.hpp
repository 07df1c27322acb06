// SPDX-License-Identifier: Apache-2.0
//
// Batches that the host prepares for a training on a GPU: for data sets that do not fit there, samples that are floats,
// and your own transforms. (CudaBatches prepares batches of images on the GPU itself.)
//
//     Prefetch prefetch(TrainingBatches(images, MyTransform{}, {.batch_size = 128, .replicas = 2}), {.workers = 6});
//     PinnedUploader batches(prefetch);
//     fit(training, batches, {.steps = 1000});
//
// A batch passes through pinned memory, with room for several batches per replica, and its copy to the GPU is queued on
// the context's stream. So the host is ahead of the GPU by that number of batches, and waits only for the copy of the
// oldest.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/extents.hpp>
#include <cupola/data/batches.hpp>
#include <cupola/data/impl/cuda_batch_buffer.hpp>
#include <cupola/device/cuda.hpp>
#include <cupola/device/cuda_event.hpp>
#include <cupola/device/cuda_pinned.hpp>
#include <cupola/device/wait_until.hpp>
#include <cupola/tensor/batch.hpp>
#include <cupola/tensor/require_batch.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

/// What a host's batches are asked for with: they are made by the thread that asks, where no workers make them.
struct CallingThread {
    template <class Function>
    friend void parallel_for(const CallingThread&, std::int64_t count, Function&& f) {
        for (std::int64_t i = 0; i < count; ++i) f(i);
    }
};

}  // namespace impl

/// Gives batches of the host, as Prefetch and InMemoryBatches do.
template <class S>
concept GivesBatches = requires(S& source, std::int64_t step, int replica, impl::CallingThread& thread) {
    { source(step, replica, thread) } -> std::same_as<BatchView>;
    { source.batch_size() } -> std::convertible_to<std::int64_t>;
    { source.replicas() } -> std::convertible_to<int>;
    { source.sample_shape() } -> std::convertible_to<Shape>;
};

struct PinnedUploaderOptions {
    /// Batches per replica that pinned memory has room for.
    int ahead = 3;
    /// How long the host waits for a copy before it throws DeviceError.
    double timeout_seconds = 600;
};

/// `Source` is a BatchSource, whose batches are then made in the pinned memory itself, by the thread of the device that
/// asks, or gives batches. It has to outlive this.
template <class Source>
    requires BatchSource<Source> || GivesBatches<Source>
class PinnedUploader {
public:
    explicit PinnedUploader(Source& source, PinnedUploaderOptions options = {})
        : source_(&source), options_(options), batch_size_(source.batch_size()), sample_shape_(source.sample_shape()) {
        require(options.ahead >= 1 && options.ahead <= max_ahead, "PinnedUploader's ahead must be 1 to ", max_ahead,
                " batches, not ", options.ahead);
        require(options.timeout_seconds > 0, "PinnedUploader's timeout_seconds must be more than 0, not ",
                options.timeout_seconds);
        rings_.resize(static_cast<std::size_t>(replicas()));
    }
    explicit PinnedUploader(const Source&&, PinnedUploaderOptions = {}) = delete;  // a temporary dies at once

    [[nodiscard]] std::int64_t batch_size() const { return batch_size_; }
    [[nodiscard]] int replicas() const { return source_->replicas(); }
    [[nodiscard]] const Shape& sample_shape() const { return sample_shape_; }

    /// Queues the copy of the batch of a step and replica; work that is queued after this replica's next batch must not
    /// use it. Throws the exceptions of the source, and DeviceError if the GPU does not make a copy in time.
    BatchView operator()(std::int64_t step, int replica, CudaContext& context) {
        require(replica >= 0 && replica < replicas(), "replica ", replica,
                " is out of range: the number of replicas is ", replicas());
        Ring& ring = rings_[static_cast<std::size_t>(replica)];
        if (ring.ordinal != context.ordinal()) provide(ring, context, replica, step);
        Pinned& pinned = ring.buffers[ring.next];
        await(pinned.copied, replica, step);
        const std::int64_t size = fill(pinned, step, replica);
        context.queue_copy(ring.buffer.samples(), pinned.samples(),
                           static_cast<std::size_t>(size * sample_shape_.size()) * sizeof(float));
        context.queue_copy(ring.buffer.labels(), pinned.labels, static_cast<std::size_t>(size) * sizeof(std::int32_t));
        pinned.copied.record(context);
        ring.next = (ring.next + 1) % ring.buffers.size();
        return ring.buffer.view(size);
    }

private:
    static constexpr int max_ahead = 64;

    struct Pinned {
        impl::CudaPinned memory;
        std::int32_t* labels = nullptr;
        impl::StepEvent copied;
        [[nodiscard]] float* samples() const { return reinterpret_cast<float*>(memory.data()); }
    };
    struct Ring {
        int ordinal = -1;
        std::vector<Pinned> buffers;
        std::size_t next = 0;
        impl::CudaBatchBuffer buffer;
    };

    void provide(Ring& ring, const CudaContext& context, int replica, std::int64_t step) {
        const auto scope = context.team();
        for (const Pinned& pinned : ring.buffers) await(pinned.copied, replica, step);
        ring.buffers = std::vector<Pinned>(static_cast<std::size_t>(options_.ahead));
        ring.next = 0;
        const std::size_t of_samples =
            aligned(static_cast<std::size_t>(batch_size_ * sample_shape_.size()) * sizeof(float));
        for (Pinned& pinned : ring.buffers) {
            pinned.memory = impl::CudaPinned(of_samples + static_cast<std::size_t>(batch_size_) * sizeof(std::int32_t));
            pinned.labels = reinterpret_cast<std::int32_t*>(pinned.memory.data() + of_samples);
        }
        ring.buffer.provide(context, batch_size_, sample_shape_);
        ring.ordinal = context.ordinal();
    }

    void await(const impl::StepEvent& copied, int replica, std::int64_t step) const {
        impl::wait_until([&] { return copied.happened(); }, options_.timeout_seconds, "the batch of step ", step,
                         " and replica ", replica, " has waited ", options_.timeout_seconds,
                         " s for the GPU to copy one that was queued ", options_.ahead,
                         options_.ahead == 1 ? " batch earlier" : " batches earlier");
    }

    /// Answers how many samples there are.
    std::int64_t fill(const Pinned& pinned, std::int64_t step, int replica) {
        if constexpr (BatchSource<Source>) {
            source_->fill(step, replica, std::int64_t{0}, batch_size_, pinned.samples(), pinned.labels);
            return batch_size_;
        } else {
            impl::CallingThread thread;
            const BatchView batch = (*source_)(step, replica, thread);
            require(batch.size >= 1 && batch.size <= batch_size_, "a batch of step ", step, " has ", batch.size,
                    " samples; its source declared 1 to ", batch_size_);
            require_batch(batch, sample_shape_, "their source declared");
            std::memcpy(pinned.samples(), batch.samples,
                        static_cast<std::size_t>(batch.size * sample_shape_.size()) * sizeof(float));
            std::memcpy(pinned.labels, batch.labels, static_cast<std::size_t>(batch.size) * sizeof(std::int32_t));
            return batch.size;
        }
    }

    Source* source_;
    PinnedUploaderOptions options_;
    std::int64_t batch_size_;
    Shape sample_shape_;
    std::vector<Ring> rings_;
};

}  // namespace cupola::inline CUPOLA_ABI
