// SPDX-License-Identifier: Apache-2.0
//
// The images of a data set in the memory of each GPU that uses them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/data/dataset.hpp>
#include <cupola/data/impl/sample_kernel.hpp>
#include <cupola/device/cuda.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Any number of threads may call it at the same time, each with its context.
class CudaImages {
public:
    explicit CudaImages(const ImageSet& images) : images_(&images) {}

    /// The images on the context's GPU. The first call for a GPU copies them there and waits. Throws OutOfMemory.
    [[nodiscard]] ImagesOnDevice on(CudaContext& context) {
        const std::scoped_lock lock(mutex_);
        const auto gpu = static_cast<std::size_t>(context.gpu());
        if (gpu >= copies_.size()) copies_.resize(gpu + 1);
        if (copies_[gpu] == nullptr) copies_[gpu] = std::make_unique<Copy>(copy(context));
        const Copy& made = *copies_[gpu];
        const Shape& shape = images_->sample_shape();
        return {reinterpret_cast<const std::uint8_t*>(made.pixels.data()),
                reinterpret_cast<const std::int32_t*>(made.labels.data()), static_cast<std::int32_t>(shape.height()),
                static_cast<std::int32_t>(shape.width()), static_cast<std::int32_t>(shape.channels())};
    }

private:
    struct Copy {
        CudaArena pixels, labels;
    };

    [[nodiscard]] Copy copy(CudaContext& context) const {
        const auto scope = context.team();
        const auto count = static_cast<std::size_t>(images_->size());
        const std::size_t bytes = count * static_cast<std::size_t>(images_->sample_shape().size());
        Copy made{CudaArena(bytes, text("the ", count, " images of ", images_->name(),
                                        ", which CudaBatches keeps on the GPU and PinnedUploader does not,")),
                  CudaArena(count * sizeof(std::int32_t), text("the labels of ", images_->name()))};
        Cuda::copy_from_host(context, made.pixels.data(), reinterpret_cast<const std::byte*>(images_->sample(0).data()),
                             bytes);
        std::vector<std::int32_t> labels(count);
        for (std::size_t i = 0; i < count; ++i) labels[i] = images_->label(static_cast<std::int64_t>(i));
        Cuda::copy_from_host(context, made.labels.data(), reinterpret_cast<const std::byte*>(labels.data()),
                             count * sizeof(std::int32_t));
        return made;
    }

    const ImageSet* images_;
    std::mutex mutex_;
    std::vector<std::unique_ptr<Copy>> copies_;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
