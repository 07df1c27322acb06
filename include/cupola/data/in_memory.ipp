// SPDX-License-Identifier: Apache-2.0
//
// Definitions of cupola/data/in_memory.hpp.
#pragma once

#include <cupola/data/in_memory.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

/// Beyond any memory; their bytes fit into 64 bits.
inline constexpr std::int64_t max_values = std::int64_t{1} << 60;

}  // namespace impl

CUPOLA_DECL InMemory::InMemory(const Shape& sample_shape, const SampleValues& samples,
                               std::initializer_list<TargetValues> targets, BorrowedString name)
    : shape_(sample_shape), type_(samples.type), samples_(samples.values), name_(name) {
    require<DataError>(shape_.has_elements(), "samples of the data set ", name, " have no values: ", to_string(shape_));
    const std::size_t values = samples.values.size() / size_of(type_);
    require<DataError>(values > 0, "the data set ", name, " has no samples");
    require<DataError>(shape_.is_at_most(impl::max_values), "samples of the data set ", name,
                       " have too many values: ", to_string(shape_));
    const auto elements = static_cast<std::size_t>(shape_.size());
    require<DataError>(values % elements == 0, "the data set ", name, " has ", values,
                       " values, which is not a multiple of the ", elements, " of a sample of ", to_string(shape_));
    size_ = static_cast<std::int64_t>(values / elements);
    for (const TargetValues& each : targets) add(each);
}

CUPOLA_DECL InMemory::InMemory(const Shape& sample_shape, const SampleValues& samples, const Shape& target_shape,
                               BorrowedSpan<float> targets, BorrowedString name)
    : InMemory(sample_shape, samples, {{target_column, target_shape, targets}}, name) {}

CUPOLA_DECL InMemory::InMemory(const Shape& sample_shape, const SampleValues& samples,
                               BorrowedSpan<std::int32_t> labels, std::int64_t class_count, BorrowedString name)
    : InMemory(sample_shape, samples, {{target_column, {1}, labels}}, name) {
    class_count_ = class_count;
    for (std::size_t i = 0; i < labels.size(); ++i) {
        require<DataError>(labels[i] >= 0 && labels[i] < class_count, "the data set ", name, " has label ", labels[i],
                           " at sample ", i, "; with ", class_count, " classes labels are 0 to ", class_count - 1);
    }
}

CUPOLA_DECL void InMemory::throw_other_type() const {
    throw InvalidArgument(text("the samples of the data set ", name_, " are of ", to_string(type_),
                               ", not of float32: AsStored is the transform that leaves them as they are"));
}

CUPOLA_DECL void InMemory::add(const TargetValues& targets) {
    const ColumnSpec& column = targets.column;
    require<DataError>(column.shape.has_elements(), "the column ", column.name, " of the data set ", name_,
                       " has no values: ", to_string(column.shape));
    const std::size_t values = targets.values.size() / size_of(column.type);
    require<DataError>(column.shape.is_at_most(impl::max_values / size_), "the column ", column.name,
                       " of the data set ", name_, " has too many values: ", size_, " times ", to_string(column.shape));
    require<DataError>(targets.values.size() == static_cast<std::size_t>(size_) * column.bytes(), "the data set ",
                       name_, " has ", size_, size_ == 1 ? " sample" : " samples", " and ", values,
                       " values in its column ", column.name, "; of ", to_string(column.shape), " it needs ",
                       size_ * column.shape.size());
    if (column.type == ElementType::float32) {
        const auto* const floats = reinterpret_cast<const float*>(targets.values.data());
        for (std::size_t i = 0; i < values; ++i) {
            require<DataError>(impl::is_finite(floats[i]), "the data set ", name_, " has ", floats[i],
                               " in its column ", column.name, " at sample ",
                               static_cast<std::int64_t>(i) / column.shape.size());
        }
    }
    columns_.push_back(column);
    targets_[columns_.size() - 1] = targets.values.data();
}

CUPOLA_DECL InMemoryBatches::InMemoryBatches(const InMemory& data,  // misspelt? BatchOptions{...} names it
                                             BatchOptions options)
    : source_(data, AsStored{}, options), buffers_(static_cast<std::size_t>(options.replicas)) {
    for (impl::BatchBuffer& buffer : buffers_) buffer = impl::BatchBuffer(options.batch_size, source_.columns());
}

}}  // namespace cupola::CUPOLA_ABI
