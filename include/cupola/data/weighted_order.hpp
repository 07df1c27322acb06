// SPDX-License-Identifier: Apache-2.0
//
// Sampling with replacement by weights: an endless stream in which each position is sample i with the probability
// weight i / sum of the weights, independently of all others.
//
//   const WeightedOrder order(balanced_weights(data), 1);                every class equally often; 1 is the seed
//   TrainingBatches batches(data, transform, {.batch_size = 50, .seed = 1}, order);
//
// The sample of a position is a pure function of the weights, the seed and the position, and a batch of the seed, the
// step and the replica. A sample of weight 0 never occurs. Source: Vose 1991, "A linear algorithm for generating random
// numbers with a given distribution": one look-up per position, whatever the weights are.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/finite.hpp>
#include <cupola/core/hash_word.hpp>
#include <cupola/core/philox.hpp>
#include <cupola/data/dataset.hpp>
#include <cupola/data/impl/class_labels.hpp>
#include <cupola/data/shuffle.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// Looks up positions of the stream; any number of threads may do so at once. Used as ShuffledOrder is.
class WeightedOrder {
public:
    /// Throws InvalidArgument for a weight that is below 0 or not finite, for weights that are all 0, and for more than
    /// 2^32 - 1 of them. The scale of the weights is irrelevant.
    WeightedOrder(std::span<const double> weights, std::uint64_t seed) : seed_(seed) {
        constexpr std::size_t max_size = 0xFFFF'FFFF;
        require(!weights.empty() && weights.size() <= max_size, "the number of weights must be 1 to ", max_size,
                ", not ", weights.size());
        double largest = 0;
        for (std::size_t i = 0; i < weights.size(); ++i) {
            require(impl::is_finite(weights[i]) && weights[i] >= 0, "the weight of sample ", i,
                    " must be finite and at least 0, not ", weights[i]);
            largest = std::max(largest, weights[i]);
        }
        require(largest > 0, "the weights of all ", weights.size(), " samples are 0");
        make_table(weights, largest);
    }

    [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(places_.size()); }
    [[nodiscard]] std::uint64_t seed() const { return seed_; }
    /// The text by which two runs are compared, in addition to the seed: "by weights, hash 9e3779b97f4a7c15", of their
    /// table.
    [[nodiscard, gnu::cold]] std::string description() const {
        impl::SequenceHash hash;
        for (const Place& place : places_) {
            hash.add(place.probability);
            hash.add(std::uint64_t{place.other});
        }
        return "by weights, hash " + hash.text();
    }

    /// The samples at the positions [first, first + places.size()). `epoch` counts the positions modulo 2^32, so that a
    /// sample that occurs twice has different augmentations.
    void samples_at(std::int64_t first, std::span<SampleOfEpoch> places) const {
        require(
            first >= 0 && first <= std::numeric_limits<std::int64_t>::max() - static_cast<std::int64_t>(places.size()),
            "position ", first, " of the sample stream is out of range");
        const std::uint64_t size = places_.size();
        for (SampleOfEpoch& place : places) {
            const auto position = static_cast<std::uint64_t>(first++);
            const RandomWords<4> words = RandomStream(seed_, RngDomain::sampling, 0, position).words(0);
            // Uniform in [0, size): the upper half of the product of 64 random bits and the size.
            const std::uint64_t at = (words[0] * size + (words[1] * size >> 32)) >> 32;
            const double uniform = static_cast<double>((std::uint64_t{words[2]} << 32 | words[3]) >> 11) * 0x1p-53;
            const Place& drawn = places_[at];
            place = {uniform < drawn.probability ? static_cast<std::uint32_t>(at) : drawn.other,
                     static_cast<std::uint32_t>(position)};
        }
    }

private:
    /// Sample i with this probability, and otherwise another one.
    struct Place {
        double probability = 0;
        std::uint32_t other = 0;
    };

    void make_table(std::span<const double> weights, double largest) {
        const std::size_t size = weights.size();
        double sum = 0;
        for (const double weight : weights) sum += weight / largest;
        places_.resize(size);
        std::vector<std::uint32_t> small, large;
        for (std::size_t i = 0; i < size; ++i) {
            places_[i].probability = weights[i] / largest / sum * static_cast<double>(size);
            (places_[i].probability < 1 ? small : large).push_back(static_cast<std::uint32_t>(i));
        }
        while (!small.empty() && !large.empty()) {
            const std::uint32_t given = small.back(), giver = large.back();
            small.pop_back();
            places_[given].other = giver;
            places_[giver].probability -= 1 - places_[given].probability;
            if (places_[giver].probability < 1) {
                large.pop_back();
                small.push_back(giver);
            }
        }
        // The remaining probabilities are 1 except for rounding: their sum is their number. So none of them has the
        // weight 0.
        for (const auto* list : {&small, &large}) {
            for (const std::uint32_t i : *list) places_[i].probability = 1;
        }
    }

    std::uint64_t seed_;
    std::vector<Place> places_;
};

/// The weight of each sample from those of the classes: `class_weights(data, std::vector{1.0, 5.0})`. Throws
/// InvalidArgument for data without classes or with a class that has no weight, and for a weight that is negative or
/// not finite; DataError for a label that is below 0 or no class of the data set.
template <Dataset Data>
[[nodiscard]] std::vector<double> class_weights(const Data& data, std::span<const double> weights) {
    const impl::ClassLabels<Data> labels(data, "a weight per class");
    for (std::size_t c = 0; c < weights.size(); ++c) {
        require(impl::is_finite(weights[c]) && weights[c] >= 0, "the weight of class ", c,
                " must be finite and at least 0, not ", weights[c]);
    }
    std::vector<double> result(static_cast<std::size_t>(data.size()));
    for (std::size_t i = 0; i < result.size(); ++i) {
        const std::size_t label = labels[static_cast<std::int64_t>(i)];
        require(label < weights.size(), "sample ", i, " of the data set ", data.name(), " has class ", label,
                ", and there are ", weights.size(), " weights of classes");
        result[i] = weights[label];
    }
    return result;
}

/// Weights with which every class that has samples occurs equally often: 1 / the number of samples of its class. Throws
/// InvalidArgument for data without classes, and DataError for a label that is below 0 or no class of the data set.
template <Dataset Data>
[[nodiscard]] std::vector<double> balanced_weights(const Data& data) {
    const impl::ClassLabels<Data> labels(data, "a weight per class");
    std::map<std::size_t, std::int64_t> counts;  // of the classes that occur: a label may be any number
    for (std::int64_t i = 0; i < data.size(); ++i) ++counts[labels[i]];
    std::vector<double> result(static_cast<std::size_t>(data.size()));
    for (std::size_t i = 0; i < result.size(); ++i)
        result[i] = 1 / static_cast<double>(counts[labels[static_cast<std::int64_t>(i)]]);
    return result;
}

}}  // namespace cupola::CUPOLA_ABI
