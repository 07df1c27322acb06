// SPDX-License-Identifier: Apache-2.0
//
// Training on numbers that the caller has in memory: samples of floats, ids or bytes, one after another, and their
// targets.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include <cupola/core/borrowed.hpp>
#include <cupola/core/compile_time_message.hpp>
#include <cupola/core/element_type.hpp>
#include <cupola/core/error.hpp>
#include <cupola/core/extents.hpp>
#include <cupola/core/finite.hpp>
#include <cupola/core/fixed_array.hpp>
#include <cupola/data/batches.hpp>
#include <cupola/data/dataset.hpp>
#include <cupola/data/impl/batch_buffer.hpp>
#include <cupola/tensor/batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

template <class R, class T>
concept RangeOf = std::convertible_to<R, std::span<const T>>;

/// The element type of a contiguous range of values.
template <class R>
using RangeElement = typename decltype(std::span(std::declval<std::remove_reference_t<R>&>()))::value_type;
/// A contiguous range of another type than those that are accepted.
template <class R, class... Accepted>
concept RangeOfOthers = requires { typename RangeElement<R>; } && !(RangeOf<R, Accepted> || ...);

}  // namespace impl

/// The samples in the caller's memory: a vector, a span or another contiguous range of floats, of ids (int32) or of
/// bytes (uint8). A temporary that owns its values does not compile.
struct SampleValues {
    /// Does not compile.
    template <impl::RangeOfOthers<float, std::int32_t, std::uint8_t> Range>
    SampleValues(Range&&) {  // NOLINT: converts as the others do
        static_assert(static_assert_message<impl::other_type<impl::RangeElement<Range>>(
                          "samples in memory are float, std::int32_t (ids) or std::uint8_t (bytes)")>());
    }
    template <class Range>
        requires impl::RangeOf<Range, float> || impl::RangeOf<Range, std::int32_t> || impl::RangeOf<Range, std::uint8_t>
    // NOLINTNEXTLINE(bugprone-forwarding-reference-overload): the constraint leaves copies to the copy constructor
    SampleValues(Range&& range) {  // implicit: a range converts
        if constexpr (impl::RangeOf<Range, float>) {
            set(BorrowedSpan<float>(std::forward<Range>(range)));
        } else if constexpr (impl::RangeOf<Range, std::int32_t>) {
            set(BorrowedSpan<std::int32_t>(std::forward<Range>(range)));
        } else {
            set(BorrowedSpan<std::uint8_t>(std::forward<Range>(range)));
        }
    }

    ElementType type = ElementType::float32;
    std::span<const std::byte> values;

private:
    template <class T>
    void set(std::span<const T> of) {
        type = element_type_of<T>;
        values = std::as_bytes(of);
    }
};

/// One column of targets, or of another input of the network, in the caller's memory: `shape.size()` values per sample.
/// Neither they nor the name are copied; temporaries do not compile.
struct TargetValues {
    TargetValues(BorrowedString name, const Shape& shape, BorrowedSpan<float> floats)
        : column{name, ElementType::float32, shape}, values(std::as_bytes(floats)) {}
    TargetValues(BorrowedString name, const Shape& shape, BorrowedSpan<std::int32_t> integers)
        : column{name, ElementType::int32, shape}, values(std::as_bytes(integers)) {}
    TargetValues(BorrowedString name, const Shape& shape, BorrowedSpan<std::uint8_t> bytes)
        : column{name, ElementType::uint8, shape}, values(std::as_bytes(bytes)) {}
    /// Does not compile.
    template <impl::RangeOfOthers<float, std::int32_t, std::uint8_t> Range>
    TargetValues(BorrowedString, const Shape&, Range&&) {
        static_assert(static_assert_message<impl::other_type<impl::RangeElement<Range>>(
                          "the values of a column are float, std::int32_t or std::uint8_t")>());
    }

    ColumnSpec column;
    std::span<const std::byte> values;
};

/// The caller's samples as a data set. It owns nothing: samples, targets and names have to outlive it, and a temporary
/// of them does not compile.
class InMemory {
public:
    /// Samples of classes. Throws DataError if there are no samples, or not one label per sample, or a label is not in
    /// [0, class_count).
    InMemory(const Shape& sample_shape, const SampleValues& samples, BorrowedSpan<std::int32_t> labels,
             std::int64_t class_count, BorrowedString name = "in memory");
    /// Samples with the column "target" of floats. Throws DataError if there are no samples, or not one target per
    /// sample, or a target is a NaN or an infinity.
    InMemory(const Shape& sample_shape, const SampleValues& samples, const Shape& target_shape,
             BorrowedSpan<float> targets, BorrowedString name = "in memory");
    /// Samples with any columns of targets, each by its name. Throws as the others; labels of these columns are checked
    /// by the losses that read them.
    InMemory(const Shape& sample_shape, const SampleValues& samples, std::initializer_list<TargetValues> targets,
             BorrowedString name = "in memory");
    /// These do not compile.
    template <impl::RangeOfOthers<std::int32_t> Labels>
    InMemory(const Shape&, const SampleValues&, Labels&&, std::int64_t, BorrowedString = {}) {
        static_assert(static_assert_message<impl::other_type<impl::RangeElement<Labels>>(
                          "class labels in memory are std::int32_t (targets of floats follow their extents)")>());
    }
    template <impl::RangeOfOthers<float> Targets>
    InMemory(const Shape&, const SampleValues&, const Shape&, Targets&&, BorrowedString = {}) {
        static_assert(
            static_assert_message<impl::other_type<impl::RangeElement<Targets>>(
                "targets in memory are float (those of other types have names: {{name, extents, values}})")>());
    }

    [[nodiscard]] std::string_view name() const { return name_; }
    [[nodiscard]] std::int64_t size() const { return size_; }
    [[nodiscard]] const Shape& sample_shape() const { return shape_; }
    /// Throws InvalidArgument unless the samples are of floats.
    [[nodiscard]] std::span<const float> sample(std::int64_t i) const {
        if (type_ != ElementType::float32) throw_other_type();
        return {reinterpret_cast<const float*>(stored_sample(i)), static_cast<std::size_t>(shape_.size())};
    }
    /// The elements of sample i, in their type, which the transform AsStored copies.
    [[nodiscard]] ElementType sample_type() const { return type_; }
    [[nodiscard]] const std::byte* stored_sample(std::int64_t i) const {
        return samples_.data() + static_cast<std::size_t>(i * shape_.size()) * size_of(type_);
    }
    [[nodiscard]] const Columns& target_columns() const { return columns_; }
    /// The values of sample i in the column target_columns()[c].
    [[nodiscard]] const std::byte* target(std::int64_t i, std::size_t c) const {
        return targets_[c] + static_cast<std::size_t>(i) * columns_[c].bytes();
    }
    /// 0 unless the data set was made of classes.
    [[nodiscard]] std::int64_t class_count() const { return class_count_; }

private:
    [[gnu::cold]] void add(const TargetValues& targets);
    [[noreturn, gnu::cold]] void throw_other_type() const;

    Shape shape_;
    ElementType type_ = ElementType::float32;
    std::span<const std::byte> samples_;
    std::int64_t size_ = 0, class_count_ = 0;
    std::string_view name_;
    Columns columns_;
    std::array<const std::byte*, max_columns> targets_{};
};

static_assert(Dataset<InMemory>);

/// Training batches of samples in memory, shuffled by seed and epoch. Copying a sample is cheap, so the device that
/// requests a batch prepares it, without a queue or workers; `Prefetch` adds those. `InMemoryBatches batches(data,
/// {.batch_size = 32, .replicas = 2, .seed = 1});`
class InMemoryBatches {
public:
    [[gnu::cold]] InMemoryBatches(const InMemory& data, BatchOptions options);  // misspelt? BatchOptions{...} names it
    InMemoryBatches(const InMemory&&, BatchOptions) = delete;                   // a temporary dies at once
    template <Dataset Data>
        requires(!std::derived_from<Data, InMemory>)
    InMemoryBatches(const Data&, BatchOptions options) : InMemoryBatches(in_memory(), options) {
        static_assert(!Dataset<Data>,
                      "InMemoryBatches is for InMemory alone: for another data set, such as a part of a split, "
                      "write Prefetch batches(TrainingBatches(data, IdentityTransform{}, {...}))");
    }

    [[nodiscard]] const TrainingBatches<InMemory, AsStored>& source() const { return source_; }
    [[nodiscard]] std::int64_t batch_size() const { return source_.batch_size(); }
    [[nodiscard]] int replicas() const { return source_.replicas(); }
    [[nodiscard]] std::int64_t samples_per_epoch() const { return source_.samples_per_epoch(); }
    [[nodiscard]] const Columns& columns() const { return source_.columns(); }
    [[nodiscard]] const Shape& sample_shape() const { return source_.sample_shape(); }

    /// The batch of a step and replica, prepared by the context's team; valid until this replica requests another.
    template <class Context>
    BatchView operator()(std::int64_t step, int replica, Context& context);

private:
    static const InMemory& in_memory();  // of the constructor that does not compile

    TrainingBatches<InMemory, AsStored> source_;
    FixedArray<impl::BatchBuffer> buffers_;
};

template <class Context>
BatchView InMemoryBatches::operator()(std::int64_t step, int replica, Context& context) {
    require(replica >= 0 && replica < replicas(), "replica ", replica, " is out of range: the number of replicas is ",
            replicas());
    const BatchSpan batch = buffers_[static_cast<std::size_t>(replica)].span();
    impl::fill_with_team(context, batch_size(),
                         [&](std::int64_t begin, std::int64_t end) { source_.fill(step, replica, begin, end, batch); });
    return batch.view(batch_size());
}

}}  // namespace cupola::CUPOLA_ABI

#ifdef CUPOLA_DECL
#include <cupola/data/in_memory.ipp>
#endif
