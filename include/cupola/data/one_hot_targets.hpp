// SPDX-License-Identifier: Apache-2.0
//
// Class labels as targets of one float per class, 1 for the class and 0 for the others (`one_hot` of PyTorch): what a
// training with SoftCrossEntropy is evaluated on, whose batches MixUp (data/mixup.hpp) makes.
//
//   const OneHotTargets test(pets.test);
//   EvaluationBatches batches(test, transform, 100);
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <cupola/core/element_type.hpp>
#include <cupola/core/error.hpp>
#include <cupola/core/extents.hpp>
#include <cupola/data/dataset.hpp>
#include <cupola/data/impl/class_labels.hpp>
#include <cupola/tensor/batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// The samples of `data`, which has to outlive it, with the column "target" of as many floats as there are classes.
template <Dataset Data>
    requires requires(const Data& data) { data.class_count(); }
class OneHotTargets {
public:
    /// Throws InvalidArgument unless the data set has class labels and at least two classes.
    explicit OneHotTargets(const Data& data) : data_(&data), labels_(data, "a one-hot target") {
        const auto classes = static_cast<std::int64_t>(data.class_count());
        require(classes >= 2, "one-hot targets need at least 2 classes, and the data set ", data.name(), " has ",
                classes);
        columns_ = {{target_column, ElementType::float32, {classes}}};
        // The targets of all classes overlap: each is a part of these, with the 1 at its place.
        values_.resize(static_cast<std::size_t>(2 * classes - 1));
        values_[static_cast<std::size_t>(classes - 1)] = 1;
    }
    explicit OneHotTargets(const Data&&) = delete;  // a temporary dies at once

    [[nodiscard]] const Data& data() const { return *data_; }
    [[nodiscard]] decltype(auto) name() const { return data_->name(); }
    [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(data_->size()); }
    [[nodiscard]] Shape sample_shape() const { return data_->sample_shape(); }
    [[nodiscard]] decltype(auto) sample(std::int64_t i) const { return data_->sample(i); }
    [[nodiscard]] ElementType sample_type() const
        requires HasStoredSamples<Data>
    {
        return data_->sample_type();
    }
    [[nodiscard]] const std::byte* stored_sample(std::int64_t i) const
        requires HasStoredSamples<Data>
    {
        return data_->stored_sample(i);
    }
    /// The text by which the data of two runs are compared, where the data set has one.
    [[nodiscard, gnu::cold]] std::string description() const
        requires impl::Described<Data>
    {
        return text(std::string(data_->description()), ", one-hot targets");
    }
    [[nodiscard]] const Columns& target_columns() const { return columns_; }
    /// Throws DataError for a label that is none of the classes.
    [[nodiscard]] const void* target(std::int64_t i, std::size_t) const {
        const std::int64_t label = static_cast<std::int64_t>(labels_[i]), classes = columns_[0].shape.size();
        require<DataError>(label < classes, "the data set ", data_->name(), " has label ", label, " at sample ", i,
                           "; with ", classes, " classes labels are 0 to ", classes - 1);
        return values_.data() + (classes - 1 - label);
    }

private:
    const Data* data_;
    impl::ClassLabels<Data> labels_;
    Columns columns_;
    std::vector<float> values_;
};

}}  // namespace cupola::CUPOLA_ABI
