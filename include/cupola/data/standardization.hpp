// SPDX-License-Identifier: Apache-2.0
//
// Standardisation of the input: y = (x - mean) / deviation, with constants per column of a table or per channel of an image,
// computed once from the training data and used for all other data.
//
//   const Standardization constants = Standardization::of(training);
//   TrainingBatches batches(training, constants, options);       the constants are the transform of both
//   EvaluationBatches test(validation, constants, 100);
//   constants.store_in(run.info());                              each checkpoint contains them
//   const auto same = Standardization::stored_in(checkpoint.info, path);
//
// The deviation is the square root of the mean of (x - mean)^2 over all samples. A column that has one value in all samples
// has the deviation 0: it is divided by 1, so that it becomes 0 there, and its difference from that value elsewhere. Per
// sample standardisation is a matter of the augmentation (data/augmentation.hpp).
#pragma once

#include <charconv>
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
#include <cupola/core/philox.hpp>
#include <cupola/data/dataset.hpp>

namespace cupola::inline CUPOLA_ABI {

class Standardization {
public:
    static constexpr std::string_view means_key = "standardization.means",
                                      deviations_key = "standardization.deviations";

    /// One mean and one deviation per position of the last extent of a sample. Throws InvalidArgument unless they are as
    /// many, at least one, finite, and the deviations at least 0.
    Standardization(std::vector<double> means, std::vector<double> deviations)
        : means_(std::move(means)), deviations_(std::move(deviations)) {
        require(!means_.empty() && means_.size() == deviations_.size(), "a standardization has ", means_.size(),
                " means and ", deviations_.size(), " deviations");
        for (std::size_t c = 0; c < means_.size(); ++c) {
            require(std::isfinite(means_[c]), "the mean of column ", c, " of a standardization is ", means_[c]);
            require(std::isfinite(deviations_[c]) && deviations_[c] >= 0, "the deviation of column ", c,
                    " of a standardization is ", deviations_[c]);
            scales_.push_back(deviations_[c] > 0 ? 1 / deviations_[c] : 1);
        }
    }

    /// The constants of all samples of `data`, computed in double in two passes. Throws DataError for a sample that is not
    /// finite.
    template <Dataset Data>
    [[nodiscard]] static Standardization of(const Data& data);

    [[nodiscard]] const std::vector<double>& means() const { return means_; }
    [[nodiscard]] const std::vector<double>& deviations() const { return deviations_; }

    /// The extents of a sample remain. Throws InvalidArgument if the last one is not the number of constants.
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
    /// Standardizes samples in place, one after another, as Predictor takes them. Throws InvalidArgument if they are not whole.
    void apply(std::span<float> samples) const {
        require(samples.size() % means_.size() == 0, samples.size(), " values cannot be standardized with ",
                means_.size(), " means");
        write(samples.data(), samples.size(), samples.data());
    }

    /// Adds the constants to the description of a run (io/checkpoint_info.hpp), exactly: a run that is resumed with others
    /// is rejected with both.
    template <class Info>
    void store_in(Info& info) const {
        info.set(means_key, listed(means_));
        info.set(deviations_key, listed(deviations_));
    }
    /// The constants in the description of a run; `path` is the checkpoint's name in errors. Throws DataError if it has none,
    /// or no valid ones.
    template <class Info>
    [[nodiscard]] static Standardization stored_in(const Info& info, std::string_view path) {
        const std::string *means = info.find(means_key), *deviations = info.find(deviations_key);
        require<DataError>(means != nullptr && deviations != nullptr, path, " has no standardization of the input");
        std::vector<double> all_means = parsed(*means, path), all_deviations = parsed(*deviations, path);
        try {
            return {std::move(all_means), std::move(all_deviations)};
        } catch (const InvalidArgument& cause) {
            throw DataError(text(path, ": ", cause.what()));
        }
    }

    bool operator==(const Standardization& other) const {
        return means_ == other.means_ && deviations_ == other.deviations_;
    }

private:
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
            const auto [stopped, error] = std::from_chars(at, end, value);
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
    const Shape shape = data.sample_shape();
    require(shape.rank >= 1 && shape.size() >= 1, "samples of the data set ", data.name(), " have no values");
    const auto columns = static_cast<std::size_t>(shape.channels()), size = static_cast<std::size_t>(shape.size());
    const auto first_sample = data.sample(0);
    // Sums of differences from the first sample: a column of one value has exactly this mean, and the deviation 0.
    std::vector<double> first(first_sample.begin(), first_sample.begin() + static_cast<std::ptrdiff_t>(columns));
    std::vector<double> means(columns), squares(columns), rest(columns);
    const double count = static_cast<double>(data.size()) * static_cast<double>(size / columns);
    const auto for_each_value = [&](auto&& f) {
        for (std::int64_t i = 0; i < data.size(); ++i) {
            const auto sample = data.sample(i);
            const auto* values = sample.data();
            for (std::size_t k = 0; k < size; k += columns) {
                for (std::size_t c = 0; c < columns; ++c) f(c, static_cast<double>(values[k + c]) - first[c], i);
            }
        }
    };
    for_each_value([&](std::size_t c, double difference, std::int64_t i) {
        require<DataError>(std::isfinite(difference), "column ", c, " of sample ", i, " of the data set ", data.name(),
                           " is not finite");
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

}  // namespace cupola::inline CUPOLA_ABI
