// SPDX-License-Identifier: Apache-2.0
//
// Standardisation: y = (x - mean) / deviation, with constants per column of a table or per channel of an image,
// computed once from the training data and used for all other data.
//
//   const Standardization constants = Standardization::of(training);
//   TrainingBatches batches(training, constants, options);       the constants are the transform of both
//   EvaluationBatches test(validation, constants, 100);
//   constants.store_in(run.info());                              each checkpoint contains them
//   const auto same = Standardization::stored_in(checkpoint.info, path);
//
// The deviation is the square root of the mean of (x - mean)^2 over all samples. A column that has one value in all
// samples has the deviation 0 and is divided by 1: it becomes 0 in these samples, and in others the difference from
// that value. Standardisation per sample is a part of the augmentation (data/augmentation.hpp).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/extents.hpp>
#include <cupola/core/finite.hpp>
#include <cupola/core/hash_word.hpp>
#include <cupola/core/number_from_chars.hpp>
#include <cupola/core/philox.hpp>
#include <cupola/data/dataset.hpp>
#include <cupola/tensor/batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

class Standardization {
public:
    /// One mean and one deviation per position of the last extent of a sample. Throws InvalidArgument unless their
    /// numbers are equal and at least one, they are finite, and the deviations are 0 or large enough to divide by.
    Standardization(std::vector<double> means, std::vector<double> deviations)
        : means_(std::move(means)), deviations_(std::move(deviations)) {
        require(!means_.empty() && means_.size() == deviations_.size(), "a standardization has ", means_.size(),
                " means and ", deviations_.size(), " deviations");
        for (std::size_t c = 0; c < means_.size(); ++c) {
            require(impl::is_finite(means_[c]), "the mean of column ", c, " of a standardization must be finite, not ",
                    means_[c]);
            require(impl::is_finite(deviations_[c]) && deviations_[c] >= 0, "the deviation of column ", c,
                    " of a standardization must be finite and at least 0, not ", deviations_[c]);
            require(deviations_[c] == 0 || impl::is_finite(1 / deviations_[c]), "the deviation of column ", c,
                    " of a standardization is ", deviations_[c], ", which is too small to divide by");
            scales_.push_back(deviations_[c] > 0 ? 1 / deviations_[c] : 1);
        }
    }

    /// The constants of all samples of `data`, computed in double in two passes. Throws DataError for a sample that is
    /// not finite, or has another number of values than its extents say or another last extent than the first, and for
    /// data without samples.
    template <Dataset Data>
    [[nodiscard]] static Standardization of(const Data& data);
    /// The same of a column of targets, which must be floats (data/standardized_targets.hpp).
    template <Dataset Data>
        requires HasTargets<Data>
    [[nodiscard]] static Standardization of_targets(const Data& data, std::string_view column = target_column);

    [[nodiscard]] const std::vector<double>& means() const { return means_; }
    [[nodiscard]] const std::vector<double>& deviations() const { return deviations_; }

    /// Returns the extents of the sample. Throws InvalidArgument if the last one is not the number of constants.
    [[nodiscard]] Shape output(const Shape& input) const {
        require(input.rank >= 1 && input.channels() == static_cast<std::int64_t>(means_.size()), "samples of ",
                to_string(input), " cannot be standardized with ", means_.size(),
                means_.size() == 1 ? " mean" : " means", ": the last extent must be that number");
        return input;
    }
    template <class T>
    void operator()(std::span<const T> sample, const Shape&, const RandomStream&, float* to) const {
        write(sample.data(), sample.size(), to);
    }
    /// Standardizes samples in place, one after another, as Predictor takes them. Throws InvalidArgument if they are
    /// not whole.
    void apply(std::span<float> samples) const {
        require(samples.size() % means_.size() == 0, samples.size(), " values cannot be standardized with ",
                means_.size(), " means");
        write(samples.data(), samples.size(), samples.data());
    }
    /// The inverse, in place: x = y * deviation + mean, of what a network predicts for standardized targets.
    void undo(std::span<float> values) const {
        const std::size_t columns = means_.size();
        require(values.size() % columns == 0, values.size(), " values cannot have been standardized with ", columns,
                " means");
        for (std::size_t i = 0; i < values.size(); ++i)
            values[i] = static_cast<float>(static_cast<double>(values[i]) / scales_[i % columns] + means_[i % columns]);
    }

    /// Adds the constants to the description of a run (io/checkpoint_info.hpp), exactly: resuming the run with other
    /// constants is rejected, with both in the message. `column` is the column that they are for.
    template <class Info>
    void store_in(Info& info, std::string_view column = input_column) const {
        info.set(text("standardization.", column, ".means"), listed(means_));
        info.set(text("standardization.", column, ".deviations"), listed(deviations_));
    }
    /// The constants of a column in the description of a run; `path` is the checkpoint's name in errors. Throws
    /// DataError if it has none, or no valid ones.
    template <class Info>
    [[nodiscard]] static Standardization stored_in(const Info& info, std::string_view path,
                                                   std::string_view column = input_column) {
        const std::string* const means = info.find(text("standardization.", column, ".means"));
        const std::string* const deviations = info.find(text("standardization.", column, ".deviations"));
        require<DataError>(means != nullptr && deviations != nullptr, path, " has no standardization of the column ",
                           column);
        std::vector<double> all_means = parsed(*means, path), all_deviations = parsed(*deviations, path);
        try {
            return {std::move(all_means), std::move(all_deviations)};
        } catch (const InvalidArgument& cause) {
            throw DataError(text(path, ": ", cause.what()));
        }
    }

    /// The text by which two runs are compared, with a hash of the constants.
    [[nodiscard, gnu::cold]] std::string description() const {
        impl::SequenceHash hash;
        for (const auto* const list : {&means_, &deviations_}) {
            for (const double value : *list) hash.add(value);
        }
        return text("Standardization of ", means_.size(), ", hash ", hash.text());
    }

    bool operator==(const Standardization& other) const {
        return means_ == other.means_ && deviations_ == other.deviations_;
    }

private:
    template <class Sample>
    [[nodiscard]] static Standardization of_values(std::int64_t samples, const Shape& shape, const Sample& sample_of,
                                                   std::string_view what, std::string_view name);

    template <class T>
    void write(const T* from, std::size_t size, float* to) const {
        const std::size_t columns = means_.size();
        for (std::size_t i = 0; i < size; i += columns) {
            for (std::size_t c = 0; c < columns; ++c)
                to[i + c] = static_cast<float>((static_cast<double>(from[i + c]) - means_[c]) * scales_[c]);
        }
    }

    [[nodiscard]] static std::string listed(const std::vector<double>& values) {
        std::string result;
        for (const double value : values) result += (result.empty() ? "" : " ") + exact_text(value);
        return result;
    }
    [[nodiscard]] static std::vector<double> parsed(std::string_view list, std::string_view path) {
        std::vector<double> result;
        const char *at = list.data(), *const end = at + list.size();
        while (true) {
            double value = 0;
            const auto [stopped, error] = number_from_chars(at, end, value);
            require<DataError>(error == std::errc() && (stopped == end || *stopped == ' '), path,
                               " has a standardization that is not a list of numbers");
            result.push_back(value);
            if (stopped == end) return result;
            at = stopped + 1;
        }
    }

    std::vector<double> means_, deviations_, scales_;
};

template <Dataset Data>
Standardization Standardization::of(const Data& data) {
    const Shape first = data.sample_shape();
    return of_values(
        data.size(), first,
        [&](std::int64_t i) -> decltype(auto) {
            decltype(auto) sample = impl::whole_sample(data, i);
            if constexpr (HasSampleExtents<Data>) {
                const Shape own = sample.shape();
                require<DataError>(own.rank >= 1 && own.has_elements() && own.channels() == first.channels(), "sample ",
                                   i, " of the data set ", data.name(), " has the extents ", to_string(own),
                                   ", and the first ", to_string(first), ": the last extents must be the same");
            }
            return sample;
        },
        "the input", data.name());
}

template <Dataset Data>
    requires HasTargets<Data>
Standardization Standardization::of_targets(const Data& data, std::string_view column) {
    const Columns columns = data.target_columns();
    const ColumnSpec* const found = columns.find(column);
    require(found != nullptr && found->type == ElementType::float32, "the data set ", data.name(),
            " has no column of floats \"", column, "\" to standardize: its columns are ", names_of(columns));
    const auto c = static_cast<std::size_t>(found - columns.begin());
    return of_values(
        data.size(), found->shape,
        [&](std::int64_t i) {
            return std::span(reinterpret_cast<const float*>(data.target(i, c)),
                             static_cast<std::size_t>(found->shape.size()));
        },
        column, data.name());
}

template <class Sample>
Standardization Standardization::of_values(std::int64_t samples, const Shape& shape, const Sample& sample_of,
                                           std::string_view what, std::string_view name) {
    require(shape.rank >= 1 && shape.size() >= 1, "samples of the data set ", name, " have no values");
    require<DataError>(samples >= 1, "the data set ", name, " has no samples");
    const auto columns = static_cast<std::size_t>(shape.channels());
    std::vector<double> first(columns), means(columns), squares(columns), rest(columns);
    double count = 0;
    const auto for_each_value = [&](auto&& f) {
        count = 0;
        for (std::int64_t i = 0; i < samples; ++i) {
            decltype(auto) sample = sample_of(i);  // which may be computed here
            const auto* const values = sample.data();
            const auto size = static_cast<std::size_t>(sample.size());
            count += static_cast<double>(size / columns);
            // Differences from the first sample: a column of one value has exactly this mean, and the deviation 0.
            if (i == 0) std::copy_n(values, columns, first.begin());
            for (std::size_t k = 0; k < size; k += columns) {
                for (std::size_t c = 0; c < columns; ++c) f(c, static_cast<double>(values[k + c]) - first[c], i);
            }
        }
    };
    for_each_value([&](std::size_t c, double difference, std::int64_t i) {
        require<DataError>(impl::is_finite(difference), "column ", c, " of ", what, " of sample ", i,
                           " of the data set ", name, " is not finite");
        means[c] += difference;
    });
    for (double& mean : means) mean /= count;
    for_each_value([&](std::size_t c, double difference, std::int64_t) {
        const double centred = difference - means[c];
        rest[c] += centred;
        squares[c] += centred * centred;
    });
    for (std::size_t c = 0; c < columns; ++c) {
        // The second term is 0 but for rounding (Chan, Golub, LeVeque 1983).
        squares[c] = std::sqrt(std::fmax(0, squares[c] - rest[c] * rest[c] / count) / count);
        means[c] += first[c];
    }
    return {std::move(means), std::move(squares)};
}

}}  // namespace cupola::CUPOLA_ABI
