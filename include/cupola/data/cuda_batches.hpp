// SPDX-License-Identifier: Apache-2.0
//
// Batches of images that are prepared on the GPU that trains on them: each GPU holds the data set as bytes, and a
// kernel crops, flips, augments and standardizes the samples of a batch with the random numbers that TrainingBatches
// and EvaluationBatches draw on the host: the same crops, flips and factors, and pixels that are equal up to rounding.
//
//     CudaBatches batches(data.train, TutorialAugmentation{}, {.batch_size = 128, .replicas = 2, .seed = 1});
//     fit(training, batches, {.steps = 1000});
//
// Only the images and labels are copied, at the first batch of a GPU; the indices of a batch's samples are arguments of
// the launch. A batch is queued on the context's stream and waits for nothing. For nvcc.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <cupola/core/compile_time_message.hpp>
#include <cupola/core/error.hpp>
#include <cupola/core/type_name.hpp>
#include <cupola/data/batches.hpp>
#include <cupola/data/dataset.hpp>
#include <cupola/data/impl/cuda/cuda_batch_buffer.hpp>
#include <cupola/data/impl/cuda/cuda_images.hpp>
#include <cupola/data/impl/cuda/launch_phases.cuh>
#include <cupola/data/impl/sample_kernel.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

template <class Transform>
[[nodiscard]] consteval CompileTimeMessage cuda_transform_diagnostic() {
    CompileTimeMessage message;
    if constexpr (!DrawsForKernels<Transform>) {
        message << short_type_name<Transform>()
                << " cannot run on a GPU, but TutorialAugmentation, RandomCropFlip, CenterCrop and ScaledPixels can; "
                   "for any other transform use PinnedUploader with Prefetch";
    }
    return message;
}

/// The images, and one buffer per slot; each slot is used by one thread.
template <class Transform>
class CudaSamples {
public:
    CudaSamples(const ImageSet& images, Transform transform, std::int64_t batch_size)
        : images_(images),
          transform_(std::move(transform)),
          columns_(columns_of(images, transform_.output(images.sample_shape()))),
          batch_size_(batch_size) {}

    [[nodiscard]] const Columns& columns() const { return columns_; }
    [[nodiscard]] const Shape& shape() const { return columns_[0].shape; }
    [[nodiscard]] int slot_count() const { return static_cast<int>(slots_.size()); }
    void provide_slots(int threads) {
        if (threads > slot_count()) slots_.resize(static_cast<std::size_t>(threads));
    }

    /// The memory of a slot's next batch; the first call on a GPU allocates all memory.
    [[nodiscard]] CudaBatchBuffer& begin(CudaContext& context, int slot) {
        Slot& made = slots_[static_cast<std::size_t>(slot)];
        if (made.place != context.place()) {
            made.images = images_.on(context);
            made.buffer.provide(context, batch_size_, columns_);
            made.place = context.place();
        }
        return made.buffer;
    }
    /// Queues the samples of `count` places, the first of which is place `at` of the slot's batch.
    template <class Places>
    void queue(const CudaContext& context, int slot, std::int64_t at, std::int64_t count, const Places& places) {
        Slot& made = slots_[static_cast<std::size_t>(slot)];
        const BatchSpan batch = made.buffer.span();
        const Shape& extents = shape();
        launch_phases(
            context, count,
            MakeSamples<Transform, Places>{made.images, transform_, places, static_cast<std::int32_t>(extents.height()),
                                           static_cast<std::int32_t>(extents.width()),
                                           batch.inputs() + at * extents.size(), batch.labels() + at});
    }

private:
    struct Slot {
        CudaContext::Place place;
        ImagesOnDevice images;
        CudaBatchBuffer buffer;
    };

    CudaImages images_;
    Transform transform_;
    Columns columns_;
    std::int64_t batch_size_;
    std::vector<Slot> slots_;
};

}  // namespace impl

/// The batches of a training run over `images`, which have to outlive them.
template <class Transform>
class CudaBatches {
    static_assert(static_assert_message<impl::cuda_transform_diagnostic<Transform>()>());

public:
    CudaBatches(const ImageSet& images, Transform transform, BatchOptions options)
        : order_(images, transform, options),
          seed_(options.seed),
          samples_(images, std::move(transform), options.batch_size) {
        samples_.provide_slots(options.replicas);
    }
    CudaBatches(const ImageSet&&, Transform, BatchOptions) = delete;  // a temporary dies at once

    [[nodiscard]] const ImageSet& data() const { return order_.data(); }
    /// The same batches, made on the host.
    [[nodiscard]] const TrainingBatches<ImageSet, Transform>& source() const { return order_; }
    [[nodiscard]] std::int64_t batch_size() const { return order_.batch_size(); }
    [[nodiscard]] int replicas() const { return order_.replicas(); }
    [[nodiscard]] std::int64_t samples_per_epoch() const { return order_.samples_per_epoch(); }
    [[nodiscard]] const Columns& columns() const { return order_.columns(); }
    [[nodiscard]] const Shape& sample_shape() const { return order_.sample_shape(); }
    [[nodiscard]] std::int64_t class_count() const { return order_.class_count(); }

    /// Queues the batch of a step and replica, on the context's GPU; work that is queued after this replica's next
    /// batch must not use it. The first call on a GPU copies the images there, and throws OutOfMemory if they do not
    /// fit.
    BatchView operator()(std::int64_t step, int replica, CudaContext& context) {
        using impl::DrawnPlaces;
        std::array<SampleOfEpoch, DrawnPlaces::capacity> places;
        impl::CudaBatchBuffer* buffer = nullptr;
        for (std::int64_t begin = 0; begin < batch_size(); begin += DrawnPlaces::capacity) {
            const std::span here = std::span(places).first(
                static_cast<std::size_t>(std::min(DrawnPlaces::capacity, batch_size() - begin)));
            order_.samples_at(step, replica, begin, here);
            if (begin == 0) buffer = &samples_.begin(context, replica);
            samples_.queue(context, replica, begin, static_cast<std::int64_t>(here.size()),
                           impl::drawn_places(here, seed_));
        }
        return buffer->view(batch_size());
    }

private:
    TrainingBatches<ImageSet, Transform> order_;
    std::uint64_t seed_;
    impl::CudaSamples<Transform> samples_;
};

/// The batches of an evaluation of `images`, which have to outlive them: each image once, in order, with the remaining
/// images as a last, smaller batch.
template <class Transform>
class CudaEvaluationBatches {
    static_assert(static_assert_message<impl::cuda_transform_diagnostic<Transform>()>());

public:
    CudaEvaluationBatches(const ImageSet& images, Transform transform, std::int64_t batch_size, int threads = 1)
        : images_(&images),
          batch_size_(batch_size),
          samples_(images, std::move(transform), std::min(batch_size, images.size())) {
        require(batch_size >= 1, "a batch must have at least 1 sample, not ", batch_size);
        require(threads >= 1, "there must be at least 1 slot, not ", threads);
        samples_.provide_slots(threads);
    }
    CudaEvaluationBatches(const ImageSet&&, Transform, std::int64_t,
                          int = 1) = delete;  // the images would be gone at once

    [[nodiscard]] const ImageSet& data() const { return *images_; }
    [[nodiscard]] std::int64_t batch_size() const { return batch_size_; }
    [[nodiscard]] int slot_count() const { return samples_.slot_count(); }
    [[nodiscard]] const Columns& columns() const { return samples_.columns(); }
    [[nodiscard]] const Shape& sample_shape() const { return samples_.shape(); }
    /// Allows batches to be requested from this many threads. Must not be called while one is requested.
    void provide_slots(int threads) { samples_.provide_slots(threads); }
    /// The number of batches, including the smaller one.
    [[nodiscard]] std::int64_t count() const { return (images_->size() + batch_size_ - 1) / batch_size_; }
    /// Samples of batch `index`.
    [[nodiscard]] std::int64_t size_of(std::int64_t index) const {
        require(index >= 0 && index < count(), "batch ", index, " is out of range: the number of batches is ", count());
        return std::min(batch_size_, images_->size() - index * batch_size_);
    }

    /// Queues batch `index` on the context's GPU; work that is queued after the slot's next batch must not use it.
    BatchView operator()(std::int64_t index, int slot, CudaContext& context) {
        require(slot >= 0 && slot < slot_count(), "slot ", slot, " is out of range: the number of slots is ",
                slot_count());
        const std::int64_t size = size_of(index);
        impl::CudaBatchBuffer& buffer = samples_.begin(context, slot);
        samples_.queue(context, slot, 0, size, impl::NextPlaces{.first = index * batch_size_});
        return buffer.view(size);
    }

private:
    const ImageSet* images_;
    std::int64_t batch_size_;
    impl::CudaSamples<Transform> samples_;
};

}}  // namespace cupola::CUPOLA_ABI
