// SPDX-License-Identifier: Apache-2.0
//
// The concept of a data set, and `ImageSet`: the images of one split in memory, as bytes.
//
// Images lie one after another, each height x width x channels with the channels last. They stay bytes until they are
// part of a batch, so 50,000 images of 32 x 32 take 154 MB and not 614. Images of 16 bits per sample are floats.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <cupola/core/element_type.hpp>
#include <cupola/core/error.hpp>
#include <cupola/core/extents.hpp>
#include <cupola/tensor/batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// It has a number of samples, and a name for errors.
template <class D>
concept HasSampleCount = requires(const D& data) {
    { data.size() } -> std::convertible_to<std::int64_t>;
    { data.name() } -> std::convertible_to<std::string_view>;
};

/// Sample i is a contiguous row of numbers, of the same extents for every i unless HasSampleExtents.
template <class D>
concept HasSamples = requires(const D& data, std::int64_t i) {
    { data.sample_shape() } -> std::convertible_to<Shape>;
    { data.sample(i).size() } -> std::convertible_to<std::size_t>;
    requires std::is_arithmetic_v<std::remove_cvref_t<decltype(*data.sample(i).data())>>;
};

/// Its samples differ in their extents, which `sample(i).shape()` are; sample_shape() are those of the first. What a
/// transform makes of them has one shape.
template <class D>
concept HasSampleExtents = requires(const D& data, std::int64_t i) {
    { data.sample(i).shape() } -> std::convertible_to<Shape>;
};

/// The type of its samples is known at run time only: stored_sample(i) points to the elements of sample i. Then
/// sample(i) throws unless they are floats. All have the extents sample_shape().
template <class D>
concept HasStoredSamples = requires(const D& data, std::int64_t i) {
    { data.sample_type() } -> std::same_as<ElementType>;
    { data.stored_sample(i) } -> std::convertible_to<const std::byte*>;
};

/// Sample i belongs to the class label(i), in [0, class_count()).
template <class D>
concept HasLabels = requires(const D& data, std::int64_t i) {
    { data.label(i) } -> std::convertible_to<std::int32_t>;
    { data.class_count() } -> std::convertible_to<std::int64_t>;
};

/// The targets of sample i, in any number of columns: target(i, c) points to the sample's elements in the column
/// target_columns()[c], of its type and extents.
template <class D>
concept HasTargets = requires(const D& data, std::int64_t i, std::size_t c) {
    { data.target_columns() } -> std::convertible_to<Columns>;
    { data.target(i, c) } -> std::convertible_to<const void*>;
};

/// A data set: samples that any number of threads may read at once. What a network reads is `sample(i)`; what the
/// losses read is `label(i)`, the column "target" of class labels, or the columns of `target(i, c)`, which are used if
/// there are both.
template <class D>
concept Dataset = HasSampleCount<D> && HasSamples<D> && (HasLabels<D> || HasTargets<D>);

namespace impl {

/// A data set or a transform with a text of its own by which two runs are compared.
template <class T>
concept Described = requires(const T& described) { std::string(described.description()); };

[[noreturn, gnu::cold]] inline void throw_sample_size(std::string_view name, std::int64_t i, std::size_t size,
                                                      const Shape& shape) {
    throw DataError(text("sample ", i, " of the data set ", name, " has ", size, size == 1 ? " value" : " values",
                         ", and samples of ", to_string(shape), " have ", shape.size()));
}

/// The extents of a sample that the data set has returned.
template <class Data, class Sample>
[[nodiscard]] Shape sample_extents(const Data& data, [[maybe_unused]] const Sample& sample) {
    if constexpr (HasSampleExtents<Data>) {
        return sample.shape();
    } else {
        return data.sample_shape();
    }
}

/// Sample i of a data set. Throws DataError unless it has as many values as its extents.
template <Dataset Data>
[[nodiscard]] decltype(auto) whole_sample(const Data& data, std::int64_t i) {
    decltype(auto) sample = data.sample(i);
    const Shape shape = sample_extents(data, sample);
    if (static_cast<std::int64_t>(sample.size()) != shape.size()) [[unlikely]]
        throw_sample_size(data.name(), i, static_cast<std::size_t>(sample.size()), shape);
    return sample;
}

/// The elements of sample i of a data set whose type is known at run time only.
template <HasStoredSamples Data>
[[nodiscard]] std::span<const std::byte> stored_elements(const Data& data, std::int64_t i) {
    static_assert(!HasSampleExtents<Data>,
                  "a data set with stored_sample(i) has samples of one shape: sample(i) must not have a shape()");
    const auto values = static_cast<std::size_t>(Shape(data.sample_shape()).size());
    return {data.stored_sample(i), values * size_of(data.sample_type())};
}

}  // namespace impl

/// The columns of batches of `data` whose samples have the extents `input` and this type.
template <Dataset Data>
[[nodiscard]] Columns columns_of(const Data& data, const Shape& input, ElementType type = ElementType::float32) {
    Columns columns{{input_column, type, input}};
    if constexpr (HasTargets<Data>) {
        for (const ColumnSpec& each : Columns(data.target_columns())) columns.push_back(each);
    } else {
        columns.push_back({target_column, ElementType::int32, {1}});
    }
    return columns;
}

/// Copies the targets of sample i of `data` to place `at` of a batch of the columns `columns_of(data, ...)`.
template <Dataset Data>
void copy_targets(const Data& data, std::int64_t i, const BatchSpan& batch, std::int64_t at) {
    if constexpr (HasTargets<Data>) {
        for (std::size_t c = 1; c < batch.columns().size(); ++c)
            std::memcpy(batch.at(c, at), data.target(i, c - 1), batch.columns()[c].bytes());
    } else {
        const auto label = static_cast<std::int32_t>(data.label(i));
        std::memcpy(batch.at(1, at), &label, sizeof label);
    }
}

/// The labelled images of one split. `Value` is `std::uint8_t`, or `float` for images of 16 bits per sample.
template <class Value>
class BasicImageSet {
public:
    /// Throws DataError unless pixels, labels and classes fit together. `name` is the name of this set in errors.
    /// `shape` is height x width x channels: 1 channel is grey, 3 are red, green and blue.
    BasicImageSet(std::string name, const Shape& shape, std::vector<Value> pixels, std::vector<std::int32_t> labels,
                  std::vector<std::string> classes)
        : name_(std::move(name)),
          shape_(shape),
          pixels_(std::move(pixels)),
          labels_(std::move(labels)),
          classes_(std::move(classes)) {
        constexpr std::int64_t max_extent = 65'535;
        require<DataError>(shape.rank == 3 && (shape.channels() == 1 || shape.channels() == 3), name_,
                           " has images of ", to_string(shape),
                           "; images must be height x width x 1 (grey) or 3 (red, green, blue)");
        const std::int64_t height = shape.height(), width = shape.width();
        require<DataError>(height >= 1 && width >= 1 && height <= max_extent && width <= max_extent, name_,
                           " has images of ", height, " x ", width, " pixels; height and width must be 1 to ",
                           max_extent);

        require<DataError>(!labels_.empty(), name_, " has no images");
        const std::int64_t values = saturating_product(static_cast<std::int64_t>(labels_.size()), shape_.size());
        require<DataError>(pixels_.size() == static_cast<std::size_t>(values), name_, " has ", labels_.size(),
                           " labels and ", pixels_.size(), sizeof(Value) == 1 ? " bytes" : " values",
                           " of pixels; images of ", to_string(shape_), " need ", values);
        for (std::size_t i = 0; i < labels_.size(); ++i) {
            require<DataError>(labels_[i] >= 0 && labels_[i] < class_count(), name_, " has label ", labels_[i],
                               " at image ", i, "; with ", classes_.size(), " classes labels are 0 to ",
                               class_count() - 1);
        }
    }

    [[nodiscard]] const std::string& name() const { return name_; }
    [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(labels_.size()); }
    [[nodiscard]] const Shape& sample_shape() const { return shape_; }
    [[nodiscard]] std::span<const Value> sample(std::int64_t i) const {
        return {pixels_.data() + i * shape_.size(), static_cast<std::size_t>(shape_.size())};
    }
    [[nodiscard]] std::int32_t label(std::int64_t i) const { return labels_[static_cast<std::size_t>(i)]; }
    [[nodiscard]] std::int64_t class_count() const { return static_cast<std::int64_t>(classes_.size()); }
    [[nodiscard]] const std::vector<std::string>& classes() const { return classes_; }

private:
    std::string name_;
    Shape shape_;
    std::vector<Value> pixels_;
    std::vector<std::int32_t> labels_;
    std::vector<std::string> classes_;
};

/// Images of bytes.
using ImageSet = BasicImageSet<std::uint8_t>;

static_assert(Dataset<ImageSet> && Dataset<BasicImageSet<float>>);

/// The two splits of an image data set; `format` is what they were read from: "CIFAR-10 binary files".
template <class Value>
struct BasicImageData {
    BasicImageSet<Value> train;
    BasicImageSet<Value> test;
    std::string format;
};

using ImageData = BasicImageData<std::uint8_t>;

}}  // namespace cupola::CUPOLA_ABI
