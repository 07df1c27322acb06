// SPDX-License-Identifier: Apache-2.0
//
// The batches of an evaluation: each sample of a data set once, in order, with the remaining samples as a last, smaller
// batch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include <cupola/data/batches.hpp>
#include <cupola/data/impl/batch_buffer.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// The batches of `data`, which has to outlive them. Batches are requested from at most `threads` threads, each with
/// its own slot; any slot may request any batch.
template <Dataset Data, SampleTransform<Data> Transform>
class EvaluationBatches {
public:
    EvaluationBatches(const Data& data, Transform transform, std::int64_t batch_size, int threads = 1)
        : data_(&data),
          transform_(std::move(transform)),
          batch_size_(batch_size),
          columns_(columns_of(data, transform_.output(data.sample_shape()), impl::transformed_type<Transform>(data))) {
        require(batch_size >= 1, "a batch must have at least 1 sample, not ", batch_size);
        require(threads >= 1, "there must be at least 1 slot, not ", threads);
        require<DataError>(data.size() >= 1, "the data set ", data.name(), " has no samples");
        provide_slots(threads);
    }
    EvaluationBatches(const Data&&, Transform, std::int64_t, int = 1) = delete;  // a temporary dies at once

    [[nodiscard]] const Data& data() const { return *data_; }
    [[nodiscard]] std::int64_t batch_size() const { return batch_size_; }
    [[nodiscard]] int slot_count() const { return static_cast<int>(buffers_.size()); }
    [[nodiscard]] const Columns& columns() const { return columns_; }
    [[nodiscard]] const Shape& sample_shape() const { return columns_[0].shape; }
    /// Allows batches to be requested from this many threads.
    void provide_slots(int threads) const {
        while (slot_count() < threads) buffers_.emplace_back(std::min(batch_size_, data_->size()), columns_);
    }
    /// The number of batches, including the smaller one.
    [[nodiscard]] std::int64_t count() const {
        const std::int64_t size = data_->size();
        return size / batch_size_ + (size % batch_size_ == 0 ? 0 : 1);
    }
    /// Samples of batch `index`.
    [[nodiscard]] std::int64_t size_of(std::int64_t index) const {
        require(index >= 0 && index < count(), "batch ", index, " is out of range: the number of batches is ", count());
        return std::min(batch_size_, data_->size() - index * batch_size_);
    }

    /// Batch `index`, prepared by the context's team; valid until the slot requests another.
    template <class Context>
    BatchView operator()(std::int64_t index, int slot, Context& context) const {
        require(slot >= 0 && slot < slot_count(), "slot ", slot, " is out of range: the number of slots is ",
                slot_count());
        const std::int64_t size = size_of(index);
        const BatchSpan batch = buffers_[static_cast<std::size_t>(slot)].span();
        impl::fill_with_team(context, size, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t i = begin; i < end; ++i) {
                const std::int64_t sample = index * batch_size_ + i;
                const RandomStream random(0, RngDomain::augmentation, 0, static_cast<std::uint64_t>(sample));
                impl::write_sample(transform_, *data_, sample, random, batch, i);
                copy_targets(*data_, sample, batch, i);
            }
        });
        return batch.view(size);
    }

private:
    const Data* data_;
    Transform transform_;
    std::int64_t batch_size_;
    Columns columns_;
    mutable std::vector<impl::BatchBuffer> buffers_;
};

}}  // namespace cupola::CUPOLA_ABI
