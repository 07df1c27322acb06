// SPDX-License-Identifier: Apache-2.0
//
// Batches of images that are made where they are trained on: each GPU holds the data set as bytes, and a kernel cuts,
// mirrors, distorts and standardizes the samples of a batch with the random numbers that TrainingBatches and
// EvaluationBatches draw on the host: the same places, sides and factors, and pixels that are the same to rounding.
//
//     CudaBatches batches(data.train, TutorialDistortions{}, {.batch_size = 128, .replicas = 2, .seed = 1});
//     fit(training, batches, {.steps = 1000});
//
// Nothing is copied but the images and labels, at a GPU's first batch; which samples a batch has, a launch carries by
// value. A batch is queued on the context's stream and waits for nothing. For nvcc.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/sentence.hpp>
#include <cupola/core/type_name.hpp>
#include <cupola/data/batches.hpp>
#include <cupola/data/dataset.hpp>
#include <cupola/data/impl/cuda_batch_buffer.hpp>
#include <cupola/data/impl/cuda_images.hpp>
#include <cupola/data/impl/launch_phases.cuh>
#include <cupola/data/impl/sample_kernel.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

template <class Transform>
[[nodiscard]] consteval Sentence cuda_transform_mistake() {
    Sentence sentence;
    if constexpr (!DrawsForKernels<Transform>) {
        sentence
            << short_type_name<Transform>()
            << " is not made on a GPU: TutorialDistortions, PadCropFlip, CentralCrop and ScaledPixels are; Uploaded hands over "
               "what Prefetch makes with any other";
    }
    return sentence;
}

/// The images, and a buffer for each of those who ask, of which each asks from one thread.
template <class Transform>
class CudaSamples {
public:
    CudaSamples(const ImageSet& images, Transform transform, std::int64_t batch_size)
        : images_(images),
          transform_(std::move(transform)),
          shape_(transform_.output(images.sample_shape())),
          batch_size_(batch_size) {}

    [[nodiscard]] const Shape& shape() const { return shape_; }
    [[nodiscard]] int lanes() const { return static_cast<int>(lanes_.size()); }
    void provide_lanes(int lanes) {
        if (lanes > this->lanes()) lanes_.resize(static_cast<std::size_t>(lanes));
    }

    /// Where the next batch of a lane goes; the first time on a GPU, all memory is made.
    [[nodiscard]] CudaBatchBuffer& begin(CudaContext& context, int lane) {
        Lane& made = lanes_[static_cast<std::size_t>(lane)];
        if (made.ordinal != context.ordinal()) {
            made.images = images_.on(context);
            made.buffer.provide(context, batch_size_, shape_);
            made.ordinal = context.ordinal();
        }
        return made.buffer;
    }
    /// Queues the samples of `count` places, the first of which is place `at` of the lane's batch.
    template <class Places>
    void queue(const CudaContext& context, int lane, std::int64_t at, std::int64_t count, const Places& places) {
        Lane& made = lanes_[static_cast<std::size_t>(lane)];
        launch_phases(
            context, count,
            MakeSamples<Transform, Places>{made.images, transform_, places, static_cast<std::int32_t>(shape_.height()),
                                           static_cast<std::int32_t>(shape_.width()),
                                           made.buffer.samples() + at * shape_.size(), made.buffer.labels() + at});
    }

private:
    struct Lane {
        int ordinal = -1;
        ImagesOnDevice images;
        CudaBatchBuffer buffer;
    };

    CudaImages images_;
    Transform transform_;
    Shape shape_;
    std::int64_t batch_size_;
    std::vector<Lane> lanes_;
};

}  // namespace impl

/// The batches of a training run over `images`, which have to outlive them.
template <class Transform>
class CudaBatches {
    static_assert(report_mistake<impl::cuda_transform_mistake<Transform>()>());

public:
    CudaBatches(const ImageSet& images, Transform transform, BatchOptions options)
        : order_(images, transform, options),
          seed_(options.seed),
          samples_(images, std::move(transform), options.batch_size) {
        samples_.provide_lanes(options.replicas);
    }
    CudaBatches(const ImageSet&&, Transform, BatchOptions) = delete;  // the images would be gone at once

    [[nodiscard]] const ImageSet& data() const { return order_.data(); }
    [[nodiscard]] std::int64_t batch_size() const { return order_.batch_size(); }
    [[nodiscard]] int replicas() const { return order_.replicas(); }
    [[nodiscard]] const Shape& sample_shape() const { return order_.sample_shape(); }
    [[nodiscard]] std::int64_t class_count() const { return order_.class_count(); }

    /// Queues the batch of a step and replica, on the context's GPU; what is queued after this replica's next batch no
    /// longer finds it. The first call on a GPU copies the images there, and throws OutOfMemory if they do not fit.
    BatchView operator()(std::int64_t step, int replica, CudaContext& context) {
        using impl::DrawnPlaces;
        std::array<SampleOfEpoch, DrawnPlaces::capacity> places;
        impl::CudaBatchBuffer* buffer = nullptr;
        for (std::int64_t begin = 0; begin < batch_size(); begin += DrawnPlaces::capacity) {
            const std::span here = std::span(places).first(
                static_cast<std::size_t>(std::min(DrawnPlaces::capacity, batch_size() - begin)));
            order_.look_up(step, replica, begin, here);
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

/// The batches of an evaluation of `images`, which have to outlive them: each image once, in order, with what remains
/// as a last, smaller batch.
template <class Transform>
class CudaEvaluationBatches {
    static_assert(report_mistake<impl::cuda_transform_mistake<Transform>()>());

public:
    CudaEvaluationBatches(const ImageSet& images, Transform transform, std::int64_t batch_size, int lanes = 1)
        : images_(&images),
          batch_size_(batch_size),
          samples_(images, std::move(transform), std::min(batch_size, images.size())) {
        require(batch_size >= 1, "a batch has at least 1 sample, not ", batch_size);
        require(lanes >= 1, "batches are asked for by at least 1 lane, not ", lanes);
        samples_.provide_lanes(lanes);
    }
    CudaEvaluationBatches(const ImageSet&&, Transform, std::int64_t,
                          int = 1) = delete;  // the images would be gone at once

    [[nodiscard]] const ImageSet& data() const { return *images_; }
    [[nodiscard]] std::int64_t batch_size() const { return batch_size_; }
    [[nodiscard]] int lanes() const { return samples_.lanes(); }
    [[nodiscard]] const Shape& sample_shape() const { return samples_.shape(); }
    /// Lets batches be asked for from this many threads. Not while they are.
    void provide_lanes(int lanes) { samples_.provide_lanes(lanes); }
    /// How many batches there are, the smaller one included.
    [[nodiscard]] std::int64_t count() const { return (images_->size() + batch_size_ - 1) / batch_size_; }
    /// Samples of batch `index`.
    [[nodiscard]] std::int64_t size_of(std::int64_t index) const {
        require(index >= 0 && index < count(), "there is no batch ", index, " of ", count());
        return std::min(batch_size_, images_->size() - index * batch_size_);
    }

    /// Queues batch `index` on the context's GPU; what is queued after the lane's next batch no longer finds it.
    BatchView operator()(std::int64_t index, int lane, CudaContext& context) {
        require(lane >= 0 && lane < lanes(), "there is no lane ", lane, " of ", lanes());
        const std::int64_t size = size_of(index);
        impl::CudaBatchBuffer& buffer = samples_.begin(context, lane);
        samples_.queue(context, lane, 0, size, impl::NextPlaces{.first = index * batch_size_});
        return buffer.view(size);
    }

private:
    const ImageSet* images_;
    std::int64_t batch_size_;
    impl::CudaSamples<Transform> samples_;
};

}  // namespace cupola::inline CUPOLA_ABI
