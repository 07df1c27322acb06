// SPDX-License-Identifier: Apache-2.0
//
// Splits a data set into a part for training and one for validation, by a seed:
//
//   const auto [training, validation] = split(data, {.validation = 0.2, .seed = 1});
//
// Which samples are in which part is a pure function of the seed and of the number of samples (and of the classes,
// where the split is stratified). Both parts are views: nothing is copied, and the data set has to outlive them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <cupola/core/element_type.hpp>
#include <cupola/core/error.hpp>
#include <cupola/core/extents.hpp>
#include <cupola/core/finite.hpp>
#include <cupola/core/hash_word.hpp>
#include <cupola/core/philox.hpp>
#include <cupola/core/split.hpp>
#include <cupola/data/dataset.hpp>
#include <cupola/data/impl/class_labels.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// Some samples of a data set, in the order of `indices`: a data set.
template <Dataset Data>
class Subset {
public:
    /// Throws InvalidArgument if there are no indices, or one is not a sample of the data set. `name` is its name in
    /// errors.
    Subset(const Data& data, std::vector<std::uint32_t> indices, std::string name)
        : data_(&data), indices_(std::move(indices)), name_(std::move(name)) {
        require(!indices_.empty(), name_, " has no samples");
        for (const std::uint32_t index : indices_) {
            require(index < data.size(), name_, " has sample ", index, ", and the data set has ", data.size());
        }
    }
    Subset(const Data&&, std::vector<std::uint32_t>, std::string) = delete;  // a temporary dies at once

    [[nodiscard]] const Data& data() const { return *data_; }
    /// The samples of the data set that are in this part.
    [[nodiscard]] const std::vector<std::uint32_t>& indices() const { return indices_; }

    [[nodiscard]] const std::string& name() const { return name_; }
    [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(indices_.size()); }
    [[nodiscard]] Shape sample_shape() const { return data_->sample_shape(); }
    [[nodiscard]] decltype(auto) sample(std::int64_t i) const { return data_->sample(index(i)); }
    [[nodiscard]] ElementType sample_type() const
        requires HasStoredSamples<Data>
    {
        return data_->sample_type();
    }
    [[nodiscard]] const std::byte* stored_sample(std::int64_t i) const
        requires HasStoredSamples<Data>
    {
        return data_->stored_sample(index(i));
    }
    /// The text by which the data of two runs are compared, where the data set has one.
    [[nodiscard, gnu::cold]] std::string description() const
        requires impl::Described<Data>
    {
        impl::SequenceHash hash;
        for (const std::uint32_t index : indices_) hash.add(std::uint64_t{index});
        return text(std::string(data_->description()), ", ", size(), " of them, hash ", hash.text());
    }
    [[nodiscard]] std::int32_t label(std::int64_t i) const
        requires HasLabels<Data>
    {
        return data_->label(index(i));
    }
    [[nodiscard]] std::int64_t class_count() const
        requires HasLabels<Data>
    {
        return data_->class_count();
    }
    [[nodiscard]] Columns target_columns() const
        requires HasTargets<Data>
    {
        return data_->target_columns();
    }
    [[nodiscard]] const void* target(std::int64_t i, std::size_t c) const
        requires HasTargets<Data>
    {
        return data_->target(index(i), c);
    }

private:
    [[nodiscard]] std::int64_t index(std::int64_t i) const { return indices_[static_cast<std::size_t>(i)]; }

    const Data* data_;
    std::vector<std::uint32_t> indices_;
    std::string name_;
};

struct SplitOptions {
    /// The fraction of the samples that is for validation, rounded to whole samples, at least one.
    double validation = 0.2;
    std::uint64_t seed = 1;
    /// The same fraction of every class, to within one sample. Needs data with classes.
    bool stratified = false;
};

/// The two parts of a data set.
template <class Data>
struct Split<Data> {
    Subset<Data> training, validation;
};

namespace impl {

/// Samples that are split separately from others; the random numbers depend on `number`.
struct SplitGroup {
    std::uint32_t number = 0;
    std::vector<std::uint32_t> samples{};
};

/// The samples of `groups`, one after another, with those for validation first in each group: `counts` has their
/// numbers. Throws InvalidArgument for a fraction or a number of samples that leaves a part empty.
[[nodiscard]] inline std::vector<std::size_t> split_groups(std::span<SplitGroup> groups, const SplitOptions& options,
                                                           std::string_view name) {
    require(impl::is_finite(options.validation) && options.validation > 0 && options.validation < 1,
            "the fraction of samples for validation must be above 0 and below 1, not ", options.validation);
    std::size_t size = 0;
    for (const SplitGroup& group : groups) size += group.samples.size();
    require(size >= 2, "the data set ", name, " has ", size, size == 1 ? " sample" : " samples",
            ", and a split needs at least 2");
    const auto rounded = [&](std::size_t count) {
        return static_cast<std::size_t>(std::llround(options.validation * static_cast<double>(count)));
    };
    const std::size_t total = std::clamp<std::size_t>(rounded(size), 1, size - 1);
    std::vector<std::size_t> counts;
    std::size_t passed = 0, taken = 0;
    for (std::size_t g = 0; g < groups.size(); ++g) {
        std::vector<std::uint32_t>& group = groups[g].samples;
        // The rounding error of one group is carried over to the next.
        passed += group.size();
        const std::size_t wanted = g + 1 == groups.size() ? total : std::min(total, rounded(passed));
        const std::size_t count = std::min(group.size(), wanted - std::min(wanted, taken));
        taken += count;
        counts.push_back(count);
        for (std::size_t i = 0; i < count; ++i) {
            const auto words = RandomStream(options.seed, RngDomain::split, groups[g].number, i).words(0);
            const auto left = static_cast<std::uint32_t>(group.size() - i);
            std::swap(group[i], group[i + uniform_below(words[0], left)]);
        }
    }
    return counts;
}

}  // namespace impl

/// Splits a data set. Throws InvalidArgument for a fraction that is not between 0 and 1, for fewer than two samples,
/// and for a stratified split of data without classes; DataError where such a split finds a label that is below 0 or no
/// class of the data set.
template <Dataset Data>
[[nodiscard]] Split<Data> split(const Data& data, const SplitOptions& options = {}) {
    constexpr std::int64_t max_size = 0xFFFF'FFFF;
    const auto size = static_cast<std::int64_t>(data.size());
    require(size <= max_size, "the data set ", data.name(), " has ", size, " samples; at most ", max_size,
            " can be split");
    std::vector<impl::SplitGroup> groups;
    if (options.stratified) {
        const impl::ClassLabels<Data> labels(data, "a stratified split");
        std::map<std::size_t, std::vector<std::uint32_t>>
            samples;  // of the classes that occur: a label may be any number
        for (std::int64_t i = 0; i < size; ++i) samples[labels[i]].push_back(static_cast<std::uint32_t>(i));
        for (auto& [label, of_class] : samples)
            groups.push_back({static_cast<std::uint32_t>(label), std::move(of_class)});
    } else {
        groups.push_back({0, std::vector<std::uint32_t>(static_cast<std::size_t>(size))});
        std::iota(groups[0].samples.begin(), groups[0].samples.end(), 0U);
    }
    const std::vector<std::size_t> counts = impl::split_groups(groups, options, data.name());
    std::vector<std::uint32_t> training, validation;
    for (std::size_t g = 0; g < groups.size(); ++g) {
        const std::vector<std::uint32_t>& group = groups[g].samples;
        const auto middle = group.begin() + static_cast<std::ptrdiff_t>(counts[g]);
        validation.insert(validation.end(), group.begin(), middle);
        training.insert(training.end(), middle, group.end());
    }
    std::ranges::sort(training);
    std::ranges::sort(validation);
    return {{data, std::move(training), text(data.name(), " (training part)")},
            {data, std::move(validation), text(data.name(), " (validation part)")}};
}

template <Dataset Data>
Split<Data> split(const Data&&, const SplitOptions& = {}) = delete;  // a temporary dies at once

}}  // namespace cupola::CUPOLA_ABI
