// SPDX-License-Identifier: Apache-2.0
//
// Training on numbers that the caller has in memory: samples as floats, one after another, and their labels.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <cupola/data/batches.hpp>
#include <cupola/data/dataset.hpp>
#include <cupola/data/impl/batch_buffer.hpp>

namespace cupola::inline CUPOLA_ABI {

/// The caller's samples as a data set. It owns nothing: samples and labels have to outlive it.
class InMemory {
public:
    /// Throws DataError if there are no samples, or not one label per sample, or a label is not in [0, class_count).
    InMemory(const Shape& sample_shape, std::span<const float> samples, std::span<const std::int32_t> labels,
             std::int64_t class_count, std::string_view name = "in memory");

    [[nodiscard]] std::string_view name() const { return name_; }
    [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(labels_.size()); }
    [[nodiscard]] const Shape& sample_shape() const { return shape_; }
    [[nodiscard]] std::span<const float> sample(std::int64_t i) const {
        return samples_.subspan(static_cast<std::size_t>(i * shape_.size()), static_cast<std::size_t>(shape_.size()));
    }
    [[nodiscard]] std::int32_t label(std::int64_t i) const { return labels_[static_cast<std::size_t>(i)]; }
    [[nodiscard]] std::int64_t class_count() const { return class_count_; }

private:
    Shape shape_;
    std::span<const float> samples_;
    std::span<const std::int32_t> labels_;
    std::int64_t class_count_;
    std::string_view name_;
};

static_assert(Dataset<InMemory>);

/// Training batches of samples in memory, shuffled by seed and epoch. Copying a sample is cheap, so the device that
/// asks for a batch prepares it, without a queue or workers; `Prefetch` adds those. `InMemoryBatches batches(data,
/// {.batch_size = 32, .replicas = 2, .seed = 1});`
class InMemoryBatches {
public:
    InMemoryBatches(const InMemory& data, BatchOptions options);
    InMemoryBatches(const InMemory&&, BatchOptions) = delete;  // a temporary dies at once

    [[nodiscard]] std::int64_t batch_size() const { return source_.batch_size(); }
    [[nodiscard]] int replicas() const { return source_.replicas(); }
    [[nodiscard]] const Shape& sample_shape() const { return source_.sample_shape(); }

    /// The batch of a step and replica, prepared by the context's team; valid until this replica asks for another.
    template <class Context>
    BatchView operator()(std::int64_t step, int replica, Context& context);

private:
    TrainingBatches<InMemory, IdentityTransform> source_;
    std::vector<impl::BatchBuffer> buffers_;
};

template <class Context>
BatchView InMemoryBatches::operator()(std::int64_t step, int replica, Context& context) {
    require(replica >= 0 && replica < replicas(), "replica ", replica, " is out of range: the number of replicas is ",
            replicas());
    const impl::BatchBuffer& buffer = buffers_[static_cast<std::size_t>(replica)];
    impl::fill_with_team(context, batch_size(), [&](std::int64_t begin, std::int64_t end) {
        source_.fill(step, replica, begin, end, buffer.samples(), buffer.labels());
    });
    return buffer.view(batch_size());
}

#ifndef CUPOLA_OPS

CUPOLA_INLINE InMemory::InMemory(const Shape& sample_shape, std::span<const float> samples,
                                 std::span<const std::int32_t> labels, std::int64_t class_count, std::string_view name)
    : shape_(sample_shape), samples_(samples), labels_(labels), class_count_(class_count), name_(name) {
    require<DataError>(shape_.rank >= 1 && shape_.size() >= 1, "samples of the data set ", name,
                       " have no values: ", to_string(shape_));
    require<DataError>(!labels.empty(), "the data set ", name, " has no samples");
    require<DataError>(samples.size() == labels.size() * static_cast<std::size_t>(shape_.size()), "the data set ", name,
                       " has ", labels.size(), " labels and ", samples.size(), " values; samples of ",
                       to_string(shape_), " need ", labels.size() * static_cast<std::size_t>(shape_.size()));
    for (std::size_t i = 0; i < labels.size(); ++i) {
        require<DataError>(labels[i] >= 0 && labels[i] < class_count, "the data set ", name, " has label ", labels[i],
                           " at sample ", i, "; with ", class_count, " classes labels are 0 to ", class_count - 1);
    }
}

CUPOLA_INLINE InMemoryBatches::InMemoryBatches(const InMemory& data, BatchOptions options)
    : source_(data, IdentityTransform{}, options) {
    for (int r = 0; r < options.replicas; ++r) buffers_.emplace_back(options.batch_size, source_.sample_shape());
}

#endif

}  // namespace cupola::inline CUPOLA_ABI
