// SPDX-License-Identifier: Apache-2.0
//
// Training batches as a pure function of (seed, step, replica), and the two concepts behind them.
//
// Step s (from 0) of R replicas with batches of B takes the positions [s*R*B, (s+1)*R*B) of the shuffled stream
// (data/shuffle.hpp), replica r its r-th B of them. Nothing depends on the steps that were requested before, so a run
// is resumed by requesting its next step. Another order of the samples, by weights, is WeightedOrder
// (data/weighted_order.hpp).
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include <cupola/core/element_type.hpp>
#include <cupola/core/error.hpp>
#include <cupola/core/extents.hpp>
#include <cupola/core/philox.hpp>
#include <cupola/data/dataset.hpp>
#include <cupola/data/shuffle.hpp>
#include <cupola/tensor/batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// Returns the extents of its results for samples of `Shape`.
template <class T>
concept HasTransformOutput = requires(const T& transform, const Shape& input) {
    { transform.output(input) } -> std::same_as<Shape>;
};

/// Turns sample i of the data set into floats, given the random numbers of (seed, epoch, i).
template <class T, class Data>
concept Transforms = requires(const T& transform, const Data& data, const RandomStream& random, float* to) {
    { transform(data.sample(0), data.sample_shape(), random, to) };
};

/// The type of the values of a data set's samples.
template <class Data>
using SampleValue = std::remove_cvref_t<decltype(*std::declval<const Data&>().sample(0).data())>;

/// Turns sample i into a sample of the type that it is stored in: bytes, ids or floats.
template <class T, class Data>
concept TransformsAsStored =
    requires(const T& transform, const Data& data, const RandomStream& random, SampleValue<Data>* to) {
        { transform(data.sample(0), data.sample_shape(), random, to) };
    };

/// Converts the samples of a data set to those of a batch: `TutorialAugmentation`, `CenterCrop`, or a type of your own.
template <class T, class Data>
concept SampleTransform = HasTransformOutput<T> && (Transforms<T, Data> || TransformsAsStored<T, Data>);

/// Leaves a sample as it is; bytes become floats of the same value.
struct IdentityTransform {
    /// The same as that of AsStored, which makes the same samples.
    static constexpr std::string_view description() { return "none"; }
    [[nodiscard]] Shape output(const Shape& input) const { return input; }
    template <class T>
    void operator()(std::span<const T> sample, const Shape&, const RandomStream&, float* to) const {
        std::transform(sample.begin(), sample.end(), to, [](T value) { return static_cast<float>(value); });
    }
};

/// Leaves a sample as it is stored, in its own type: the batch then has a column "input" of bytes, ids or floats, for a
/// network that reads that type.
struct AsStored {
    static constexpr std::string_view description() { return "none"; }
    [[nodiscard]] Shape output(const Shape& input) const { return input; }
    template <class T>
    void operator()(std::span<const T> sample, const Shape&, const RandomStream&, std::type_identity_t<T>* to) const {
        std::copy(sample.begin(), sample.end(), to);
    }
};

namespace impl {

/// Whether samples are copied without a call of the transform, because their type is known at run time only.
template <class Transform, class Data>
inline constexpr bool copies_samples = std::same_as<Transform, AsStored> && HasStoredSamples<Data>;

/// The type of the samples that a transform makes.
template <class Transform, class Data>
[[nodiscard]] ElementType transformed_type([[maybe_unused]] const Data& data) {
    if constexpr (copies_samples<Transform, Data>) {
        return data.sample_type();
    } else if constexpr (std::same_as<Transform, AsStored> || !Transforms<Transform, Data>) {
        return element_type_of<SampleValue<Data>>;
    } else {
        return ElementType::float32;
    }
}

/// Throws DataError unless the transform takes samples of the extents `own` and makes those of the extents `result` of
/// them, as of the first.
template <class Transform, class Data>
void require_result(const Transform& transform, const Data& data, std::int64_t i, const Shape& own,
                    const Shape& result) {
    Shape made;
    try {
        made = transform.output(own);
    } catch (const InvalidArgument& cause) {
        throw DataError(text("sample ", i, " of the data set ", data.name(), ": ", cause.what()));
    }
    require<DataError>(made == result, "sample ", i, " of the data set ", data.name(), " has the extents ",
                       to_string(own), ", of which the transform makes ", to_string(made),
                       ", and the samples of a batch are ", to_string(result),
                       ": samples that differ in their extents need a transform that makes them alike, as "
                       "RandomResizedCrop");
}

/// Writes sample i to place `at` of a batch.
template <class Transform, class Data>
void write_sample(const Transform& transform, const Data& data, std::int64_t i, const RandomStream& random,
                  const BatchSpan& batch, std::int64_t at) {
    std::byte* const to = batch.at(0, at);
    if constexpr (copies_samples<Transform, Data>) {
        const std::span<const std::byte> elements = stored_elements(data, i);
        std::memcpy(to, elements.data(), elements.size());
    } else {
        decltype(auto) sample = whole_sample(data, i);
        const Shape shape = sample_extents(data, sample);
        if constexpr (HasSampleExtents<Data>) require_result(transform, data, i, shape, batch.columns()[0].shape);
        if constexpr (std::same_as<Transform, AsStored> || !Transforms<Transform, Data>) {
            transform(sample, shape, random, reinterpret_cast<SampleValue<Data>*>(to));
        } else {
            transform(sample, shape, random, reinterpret_cast<float*>(to));
        }
    }
}

}  // namespace impl

/// A type that can fill part of a replica's batch of a step, from any number of threads at once, with the same samples
/// each time.
template <class S>
concept BatchSource = requires(const S& source, std::int64_t step, int replica, std::int64_t begin, std::int64_t end,
                               const BatchSpan& batch) {
    { source.batch_size() } -> std::convertible_to<std::int64_t>;
    { source.replicas() } -> std::convertible_to<int>;
    { source.columns() } -> std::convertible_to<Columns>;
    { source.fill(step, replica, begin, end, batch) };
};

struct BatchOptions {
    /// Samples per replica and step.
    std::int64_t batch_size = 128;
    int replicas = 1;
    std::uint64_t seed = 1;
};

namespace impl {

/// Throws InvalidArgument if the number of samples of all replicas exceeds the positions of a stream.
inline void require_global_batch(const BatchOptions& options) {
    constexpr std::int64_t most = 0xFFFF'FFFF;
    require(options.batch_size <= most / options.replicas, "the global batch (", options.replicas,
            options.replicas == 1 ? " replica of " : " replicas of ", options.batch_size, " samples) is larger than ",
            most);
}

}  // namespace impl

/// An endless stream of samples: finds the samples at some positions, by a pure function that any number of threads may
/// call.
template <class T>
concept SampleOrder = requires(const T& order, std::int64_t first, std::span<SampleOfEpoch> places) {
    { order.size() } -> std::convertible_to<std::int64_t>;
    { order.samples_at(first, places) };
};

/// The batches of a training run over `data`, which has to outlive them: each sample once per epoch, shuffled by the
/// seed, or in the order that is given.
template <Dataset Data, SampleTransform<Data> Transform, SampleOrder Order = ShuffledOrder>
class TrainingBatches {
public:
    [[gnu::cold]] TrainingBatches(const Data& data, Transform transform, BatchOptions options)
        requires std::same_as<Order, ShuffledOrder>;
    /// Throws DataError unless the order has as many samples as the data set.
    [[gnu::cold]] TrainingBatches(const Data& data, Transform transform, BatchOptions options, Order order);
    TrainingBatches(const Data&&, Transform, BatchOptions) = delete;  // a temporary dies at once
    TrainingBatches(const Data&&, Transform, BatchOptions, Order) = delete;

    [[nodiscard]] const Data& data() const { return *data_; }
    [[nodiscard]] std::int64_t batch_size() const { return options_.batch_size; }
    [[nodiscard]] int replicas() const { return options_.replicas; }
    [[nodiscard]] std::int64_t global_batch_size() const { return options_.batch_size * options_.replicas; }
    [[nodiscard]] std::int64_t samples_per_epoch() const { return data_->size(); }
    [[nodiscard]] const Columns& columns() const { return columns_; }
    [[nodiscard]] const Shape& sample_shape() const { return columns_[0].shape; }
    [[nodiscard]] const Transform& transform() const { return transform_; }
    [[nodiscard]] const Order& order() const { return order_; }
    /// The seed of the transform's random numbers.
    [[nodiscard]] std::uint64_t seed() const { return options_.seed; }
    [[nodiscard]] std::int64_t class_count() const
        requires HasLabels<Data>
    {
        return data_->class_count();
    }

    /// Which samples of the data set are in a batch, from position `begin` on.
    void samples_at(std::int64_t step, int replica, std::int64_t begin, std::span<SampleOfEpoch> places) const;
    /// Fills the samples [begin, end) of a batch; `batch` is the memory of the whole batch.
    void fill(std::int64_t step, int replica, std::int64_t begin, std::int64_t end, const BatchSpan& batch) const;
    /// Fills the whole batch.
    void fill(std::int64_t step, int replica, const BatchSpan& batch) const {
        fill(step, replica, 0, options_.batch_size, batch);
    }

private:
    const Data* data_;
    Transform transform_;
    BatchOptions options_;
    Columns columns_;
    Order order_;
};

// Outside the class, so not inline: a separately compiled program does not instantiate it.

template <Dataset Data, SampleTransform<Data> Transform, SampleOrder Order>
TrainingBatches<Data, Transform, Order>::TrainingBatches(const Data& data, Transform transform, BatchOptions options,
                                                         Order order)
    : data_(&data),
      transform_(std::move(transform)),
      options_(options),
      columns_(columns_of(data, transform_.output(data.sample_shape()), impl::transformed_type<Transform>(data))),
      order_(std::move(order)) {
    require(options.batch_size >= 1, "a batch must have at least 1 sample, not ", options.batch_size);
    require(options.replicas >= 1, "there must be at least 1 replica, not ", options.replicas);
    impl::require_global_batch(options);
    require<DataError>(order_.size() == data.size(), "the order is for ", order_.size(), " samples, and the data set ",
                       data.name(), " has ", data.size());
}

template <Dataset Data, SampleTransform<Data> Transform, SampleOrder Order>
TrainingBatches<Data, Transform, Order>::TrainingBatches(const Data& data, Transform transform, BatchOptions options)
    requires std::same_as<Order, ShuffledOrder>
    : TrainingBatches(data, std::move(transform), options, ShuffledOrder(data.size(), options.seed)) {
    require<DataError>(options.batch_size <= data.size() / options.replicas, "the global batch (", options.replicas,
                       options.replicas == 1 ? " replica of " : " replicas of ", options.batch_size,
                       " samples) is larger than the data set ", data.name(), ", which has ", data.size(),
                       data.size() == 1 ? " sample" : " samples");
}

template <Dataset Data, SampleTransform<Data> Transform, SampleOrder Order>
void TrainingBatches<Data, Transform, Order>::samples_at(std::int64_t step, int replica, std::int64_t begin,
                                                         std::span<SampleOfEpoch> places) const {
    require(step >= 0 && step < std::numeric_limits<std::int64_t>::max() / global_batch_size(), "step ", step,
            " is out of range for batches of ", global_batch_size(), " samples");
    require(replica >= 0 && replica < options_.replicas, "replica ", replica,
            " is out of range: the number of replicas is ", options_.replicas);
    order_.samples_at(step * global_batch_size() + replica * options_.batch_size + begin, places);
}

template <Dataset Data, SampleTransform<Data> Transform, SampleOrder Order>
void TrainingBatches<Data, Transform, Order>::fill(std::int64_t step, int replica, std::int64_t begin, std::int64_t end,
                                                   const BatchSpan& batch) const {
    std::array<SampleOfEpoch, 32> places;
    while (begin < end) {
        const std::int64_t count = std::min(end - begin, static_cast<std::int64_t>(places.size()));
        samples_at(step, replica, begin, std::span(places).first(static_cast<std::size_t>(count)));
        for (std::int64_t i = 0; i < count; ++i) {
            const SampleOfEpoch place = places[static_cast<std::size_t>(i)];
            const RandomStream random(options_.seed, RngDomain::augmentation, place.epoch, place.index);
            impl::write_sample(transform_, *data_, place.index, random, batch, begin + i);
            copy_targets(*data_, place.index, batch, begin + i);
        }
        begin += count;
    }
}

}}  // namespace cupola::CUPOLA_ABI
