// SPDX-License-Identifier: Apache-2.0
//
// Batches of samples that a function makes, and their evaluation:
//
//   const auto product = [](std::int64_t index, const RandomStream& random, const BatchSpan& sample) {
//       const auto words = random.words(0);
//       float* const x = sample.inputs();
//       x[0] = uniform(words[0]), x[1] = uniform(words[1]);
//       sample.data<float>("target")[0] = x[0] * x[1];
//   };
//   const Columns columns{{"input", ElementType::float32, {2}}, {"target", ElementType::float32, {1}}};
//   Prefetch batches(Generator(columns, product, {.batch_size = 64, .seed = 1}), {.workers = 1});
//   FirstBatches test(Generator(columns, product, {.batch_size = 64, .seed = 2}), 10);
//
// The stream is endless: position p is the sample of index p, made once. With `samples_per_epoch` = n it consists of
// the samples 0 to n - 1 again and again, in another order in each epoch (data/shuffle.hpp). Sample i is a pure
// function of (seed, i), and a batch of the seed, the step and the replica, for any number of workers.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/finite.hpp>
#include <cupola/core/philox.hpp>
#include <cupola/core/type_name.hpp>
#include <cupola/data/batches.hpp>
#include <cupola/data/impl/batch_buffer.hpp>
#include <cupola/data/shuffle.hpp>
#include <cupola/tensor/batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// Writes sample `index` to the columns of `sample`, a batch of one; what it does not write is a NaN, or the lowest
/// int32, which losses reject. Several threads call it at the same time, so it may only read what it refers to; its
/// random numbers are `random`, which belongs to the sample.
template <class F>
concept SampleFunction = requires(const F& function, std::int64_t index, const RandomStream& random,
                                  const BatchSpan& sample) { function(index, random, sample); };

template <SampleFunction Function>
class Generator {
public:
    /// Throws InvalidArgument for columns without "input" or without values, a batch without samples, or a global batch
    /// that is larger than an epoch or than 2^32 - 1. The names of the columns are not copied. `samples_per_epoch` is 0
    /// for an endless stream.
    Generator(const Columns& columns, Function function, BatchOptions options, std::int64_t samples_per_epoch = 0)
        : columns_(columns), function_(std::move(function)), options_(options) {
        require(columns_.find(input_column) != nullptr, "a generator has no column \"", input_column,
                "\", which a network reads: its columns are ", names_of(columns_));
        for (const ColumnSpec& column : columns_) {
            constexpr std::int64_t most = 0xFFFF'FFFF;
            require(column.shape.has_elements() && column.shape.is_at_most(most), "the column ", column.name,
                    " of a generator has the extents ", to_string(column.shape), ", and needs 1 to ", most, " values");
        }
        require(options.batch_size >= 1, "a batch must have at least 1 sample, not ", options.batch_size);
        require(options.replicas >= 1, "there must be at least 1 replica, not ", options.replicas);
        impl::require_global_batch(options);
        require(samples_per_epoch >= 0, "an epoch of a generator must have 0 (endless) or more samples, not ",
                samples_per_epoch);
        if (samples_per_epoch == 0) return;
        require(options.batch_size <= samples_per_epoch / options.replicas, "the global batch (", options.replicas,
                options.replicas == 1 ? " replica of " : " replicas of ", options.batch_size,
                " samples) is larger than an epoch of the generator, which has ", samples_per_epoch);
        order_.emplace(samples_per_epoch, options.seed);
    }

    [[nodiscard]] std::int64_t batch_size() const { return options_.batch_size; }
    [[nodiscard]] int replicas() const { return options_.replicas; }
    [[nodiscard]] const Columns& columns() const { return columns_; }
    /// 0 for an endless stream: then `fit` counts steps and not epochs.
    [[nodiscard]] std::int64_t samples_per_epoch() const { return order_ ? order_->size() : 0; }

    /// Calls add(key, text) for what identifies the data of a run (train/training_run.hpp): the name of the function's
    /// type, if it has one, because a function cannot be compared; the columns; and the number of samples.
    template <class Add>
    [[gnu::cold]] void describe(const Add& add) const {
        constexpr std::string_view name = short_type_name<Function>();
        std::string data(name.find("lambda") == name.npos ? name : "a function");
        for (const ColumnSpec& column : columns_)
            data += text(", ", column.name, ' ', to_string(column.type), ' ', to_string(column.shape));
        add("data", order_ ? text(data, ", ", order_->size(), " samples") : data + ", endless");
        add("order", text(order_ ? "shuffled" : "by number", ", seed ", options_.seed));
    }

    /// Fills the samples [begin, end) of a batch; `batch` is the memory of the whole batch.
    void fill(std::int64_t step, int replica, std::int64_t begin, std::int64_t end, const BatchSpan& batch) const {
        const std::int64_t global_batch = options_.batch_size * options_.replicas;
        require(step >= 0 && step < std::numeric_limits<std::int64_t>::max() / global_batch, "step ", step,
                " is out of range for batches of ", global_batch, " samples");
        require(replica >= 0 && replica < options_.replicas, "replica ", replica,
                " is out of range: the number of replicas is ", options_.replicas);
        const std::int64_t first = step * global_batch + replica * options_.batch_size;
        BatchSpan sample(columns_);
        for (std::int64_t i = begin; i < end; ++i) {
            const std::int64_t index = index_at(first + i);
            for (std::size_t c = 0; c < columns_.size(); ++c) {
                sample.set_data(c, batch.at(c, i));
                poison(columns_[c], batch.at(c, i));
            }
            function_(index, RandomStream(options_.seed, RngDomain::user, 0, static_cast<std::uint64_t>(index)),
                      sample);
        }
    }

private:
    /// Without this, values that the function does not write would be those of an earlier batch.
    static void poison(const ColumnSpec& column, std::byte* to) {
        const auto count = static_cast<std::size_t>(column.shape.size());
        if (column.type == ElementType::float32) {
            std::fill_n(reinterpret_cast<float*>(to), count, impl::not_a_number<float>());
        } else if (column.type == ElementType::int32) {
            std::fill_n(reinterpret_cast<std::int32_t*>(to), count, std::numeric_limits<std::int32_t>::min());
        } else {
            std::fill_n(to, column.bytes(), std::byte{0xFF});
        }
    }
    [[nodiscard]] std::int64_t index_at(std::int64_t position) const {
        if (!order_) return position;
        std::array<SampleOfEpoch, 1> place;
        order_->samples_at(position, place);
        return place[0].index;
    }

    Columns columns_;
    Function function_;
    BatchOptions options_;
    std::optional<ShuffledOrder> order_;
};

/// The first `count` batches of a source, those of replica 0, for `evaluate`: the same in every evaluation. A generator
/// with another seed than the training's has samples that the training has not seen.
template <BatchSource Source>
class FirstBatches {
public:
    /// Throws InvalidArgument unless there is at least one batch.
    FirstBatches(Source source, std::int64_t count) : source_(std::move(source)), count_(count) {
        require(count >= 1, "an evaluation must have at least 1 batch, not ", count);
        provide_slots(1);
    }

    [[nodiscard]] const Source& source() const { return source_; }
    [[nodiscard]] std::int64_t batch_size() const { return source_.batch_size(); }
    [[nodiscard]] std::int64_t count() const { return count_; }
    [[nodiscard]] Columns columns() const { return source_.columns(); }
    [[nodiscard]] int slot_count() const { return static_cast<int>(buffers_.size()); }
    /// Allows batches to be requested from this many threads.
    void provide_slots(int threads) const {
        while (slot_count() < threads) buffers_.emplace_back(source_.batch_size(), source_.columns());
    }

    /// Batch `index`, prepared by the context's team; valid until the slot requests another.
    template <class Context>
    BatchView operator()(std::int64_t index, int slot, Context& context) const {
        require(index >= 0 && index < count_, "batch ", index, " is out of range: the number of batches is ", count_);
        require(slot >= 0 && slot < slot_count(), "slot ", slot, " is out of range: the number of slots is ",
                slot_count());
        const BatchSpan batch = buffers_[static_cast<std::size_t>(slot)].span();
        impl::fill_with_team(context, batch_size(),
                             [&](std::int64_t begin, std::int64_t end) { source_.fill(index, 0, begin, end, batch); });
        return batch.view(batch_size());
    }

private:
    Source source_;
    std::int64_t count_;
    mutable std::vector<impl::BatchBuffer> buffers_;
};

}}  // namespace cupola::CUPOLA_ABI
