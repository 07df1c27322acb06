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
#include <cupola/core/finite.hpp>
#include <cupola/data/batches.hpp>
#include <cupola/data/impl/cuda/cuda_batch_buffer.hpp>
#include <cupola/device/cuda.hpp>
#include <cupola/device/cuda/event.hpp>
#include <cupola/device/cuda/pinned.hpp>
#include <cupola/device/wait_until.hpp>
#include <cupola/tensor/batch.hpp>
#include <cupola/tensor/batch_memory.hpp>
#include <cupola/tensor/require_batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

/// The context with which batches of the host are requested: without workers, the requesting thread makes them.
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
    { source.columns() } -> std::convertible_to<Columns>;
};

struct PinnedUploaderOptions {
    /// Batches per replica that pinned memory has room for.
    int ahead = 3;
    /// How long the host waits for a copy before it throws DeviceError.
    double timeout_seconds = 600;
};

/// `Source` is a BatchSource, whose batches are made in the pinned memory itself by the thread of the requesting
/// device, or a type that returns batches. It must outlive this object.
template <class Source>
    requires BatchSource<Source> || GivesBatches<Source>
class PinnedUploader {
public:
    explicit PinnedUploader(Source& source, PinnedUploaderOptions options = {})
        : source_(&source), options_(options), batch_size_(source.batch_size()), columns_(source.columns()) {
        require(options.ahead >= 1 && options.ahead <= max_ahead, "PinnedUploader's ahead must be 1 to ", max_ahead,
                " batches, not ", options.ahead);
        require(
            impl::is_finite(options.timeout_seconds) && options.timeout_seconds > 0 && options.timeout_seconds <= 1e9,
            "PinnedUploader's timeout_seconds must be more than 0, not ", options.timeout_seconds);
        rings_.resize(static_cast<std::size_t>(replicas()));
    }
    explicit PinnedUploader(const Source&&, PinnedUploaderOptions = {}) = delete;  // a temporary dies at once

    [[nodiscard]] const Source& source() const { return *source_; }
    [[nodiscard]] std::int64_t batch_size() const { return batch_size_; }
    [[nodiscard]] int replicas() const { return source_->replicas(); }
    [[nodiscard]] std::int64_t samples_per_epoch() const
        requires requires(const Source& source) { source.samples_per_epoch(); }
    {
        return source_->samples_per_epoch();
    }
    [[nodiscard]] const Columns& columns() const { return columns_; }
    [[nodiscard]] Shape sample_shape() const { return input_shape_of(columns_); }

    /// Queues the copy of the batch of a step and replica; work that is queued after this replica's next batch must not
    /// use it. Throws the exceptions of the source, and DeviceError if the GPU does not make a copy in time.
    BatchView operator()(std::int64_t step, int replica, CudaContext& context) {
        require(replica >= 0 && replica < replicas(), "replica ", replica,
                " is out of range: the number of replicas is ", replicas());
        Ring& ring = rings_[static_cast<std::size_t>(replica)];
        if (ring.place != context.place()) provide(ring, context, replica, step);
        Pinned& pinned = ring.buffers[ring.next];
        await(pinned.copied, replica, step);
        const std::int64_t size = fill(pinned, step, replica);
        const BatchSpan from = in(pinned), to = ring.buffer.span();
        for (std::size_t i = 0; i < columns_.size(); ++i)
            context.queue_copy(to.data(i), from.data(i), static_cast<std::size_t>(size) * columns_[i].bytes());
        pinned.copied.record(context);
        ring.next = (ring.next + 1) % ring.buffers.size();
        return ring.buffer.view(size);
    }

private:
    static constexpr int max_ahead = 64;

    struct Pinned {
        impl::CudaPinned memory;
        impl::StepEvent copied;
    };
    struct Ring {
        CudaContext::Place place;
        std::vector<Pinned> buffers;
        std::size_t next = 0;
        impl::CudaBatchBuffer buffer;
    };

    void provide(Ring& ring, const CudaContext& context, int replica, std::int64_t step) {
        const auto scope = context.team();
        for (const Pinned& pinned : ring.buffers) await(pinned.copied, replica, step);
        ring.buffers = std::vector<Pinned>(static_cast<std::size_t>(options_.ahead));
        ring.next = 0;
        for (Pinned& pinned : ring.buffers) pinned.memory = impl::CudaPinned(batch_bytes(columns_, batch_size_));
        ring.buffer.provide(context, batch_size_, columns_);
        ring.place = context.place();
    }

    void await(const impl::StepEvent& copied, int replica, std::int64_t step) const {
        impl::wait_until([&] { return copied.happened(); }, options_.timeout_seconds, "the batch of step ", step,
                         " and replica ", replica, " has waited ", options_.timeout_seconds,
                         " s for the GPU to copy one that was queued ", options_.ahead,
                         options_.ahead == 1 ? " batch earlier" : " batches earlier");
    }

    [[nodiscard]] BatchSpan in(const Pinned& pinned) const {
        return batch_in(pinned.memory.data(), columns_, batch_size_);
    }

    /// Returns the number of samples.
    std::int64_t fill(const Pinned& pinned, std::int64_t step, int replica) {
        if constexpr (BatchSource<Source>) {
            source_->fill(step, replica, std::int64_t{0}, batch_size_, in(pinned));
            return batch_size_;
        } else {
            impl::CallingThread thread;
            const BatchView batch = (*source_)(step, replica, thread);
            require(batch.size >= 1 && batch.size <= batch_size_, "a batch of step ", step, " has ", batch.size,
                    " samples; its source declared 1 to ", batch_size_);
            std::vector<RequiredColumn> declared;
            for (const ColumnSpec& each : columns_) declared.push_back({each, "their source"});
            require_batch(batch, declared);
            const BatchSpan to = in(pinned);
            for (std::size_t i = 0; i < columns_.size(); ++i) {
                const std::size_t place = batch.columns().place_of(columns_[i].name);
                std::memcpy(to.data(i), batch.data(place), static_cast<std::size_t>(batch.size) * columns_[i].bytes());
            }
            return batch.size;
        }
    }

    Source* source_;
    PinnedUploaderOptions options_;
    std::int64_t batch_size_;
    Columns columns_;
    std::vector<Ring> rings_;
};

}}  // namespace cupola::CUPOLA_ABI
